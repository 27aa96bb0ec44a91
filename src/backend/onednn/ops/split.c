/* The step does what these ops are for (exec/split). Sums of gradients are f32 until they are complete. */
#include "backend/onednn/ops/op.h"

static enum ls_status run_nothing(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)p;
    (void)node;
    (void)run;
    return LS_OK;
}

static enum ls_status run_in_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    (void)run;
    p->k.from_f32((const float *)(const void *)tensor_data(p, n->in[0]), tensor_data(p, n->out[0]),
                  tensor_stored(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_onednn_ops_split[] = {
    {"split_in", prepare_plain, NULL, run_nothing},
    {"split_in_bwd", prepare_plain, NULL, run_in_bwd},
    {"split_out", prepare_plain, NULL, run_nothing},
    {"split_out_bwd", prepare_plain, NULL, run_nothing},
    {0},
};
