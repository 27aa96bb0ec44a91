/* The part that every module has: it carries its own copy of src/base, so that it can be loaded into any program, and what
 * it says goes to that program's log. */
#include "comm/modules/join.h"

void ls_module_join(ls_log_ear *ear)
{
    ls_log_forward(ear);
}
