/* Part of every module. A module has its own copy of src/base, so that any program can load it; its messages go to the
 * program's log. */
#include "comm/modules/module_log.h"

void ls_module_forward_log(ls_log_sink *ear)
{
    ls_log_forward(ear);
}
