/* The program calls it once after it has loaded a module. */
#ifndef LS_COMM_MODULES_MODULE_LOG_H
#define LS_COMM_MODULES_MODULE_LOG_H

#include "base/log.h"

/* Exported, also by modules that hide everything else: otherwise the messages of the module miss log.txt. */
__attribute__((visibility("default"))) void ls_module_forward_log(ls_log_sink *ear);

#endif
