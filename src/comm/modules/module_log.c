/* The part that every module has: it carries its own copy of src/base, so that it can be loaded into any program, and what
 * it says goes to that program's log. */
#include "comm/modules/module_log.h"

void ls_module_forward_log(ls_log_sink *ear)
{
    ls_log_forward(ear);
}
