/* What a module shows beside ls_transport_module: called once, after loading. */
#ifndef LS_COMM_MODULES_JOIN_H
#define LS_COMM_MODULES_JOIN_H

#include "base/log.h"

void ls_module_join(ls_log_ear *ear);

#endif
