/* The step does what these ops are for (exec/split). */
#include "backend/onednn/ops/op.h"

static enum ls_status run_nothing(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)p;
    (void)node;
    (void)run;
    return LS_OK;
}

const struct kernel ls_onednn_ops_split[] = {
    {"split_in", prepare_plain, NULL, run_nothing},
    {"split_in_bwd", prepare_plain, NULL, run_nothing},
    {"split_out", prepare_plain, NULL, run_nothing},
    {"split_out_bwd", prepare_plain, NULL, run_nothing},
    {0},
};
