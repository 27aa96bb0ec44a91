/* The step does what these ops are for (exec/split). */
#include "backend/ref/ref.h"

static void nothing(const struct ls_ref_call *call)
{
    (void)call;
}

const struct ls_ref_op ls_ref_ops_split[] = {
    {"split_in", nothing}, {"split_in_bwd", nothing}, {"split_out", nothing}, {"split_out_bwd", nothing}, {0},
};
