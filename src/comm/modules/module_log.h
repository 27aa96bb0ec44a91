/* The program calls it once after it has loaded a module. */
#ifndef LS_COMM_MODULES_MODULE_LOG_H
#define LS_COMM_MODULES_MODULE_LOG_H

#include "base/log.h"

void ls_module_forward_log(ls_log_sink *ear);

#endif
