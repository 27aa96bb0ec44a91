/* Maps into rows, and back. */
#include "backend/onednn/ops/op.h"

static enum ls_status run_flatten(struct ls_program *p, int node, const struct ls_run *run)
{
    int map = p->core.g->nodes[node].in[0];
    struct ls_map m = tensor_map(p, map, run);
    p->k.flatten(&m, tensor_shape(p, map)->dim[1], IN(0), OUT(0));
    return LS_OK;
}

static enum ls_status run_unflatten(struct ls_program *p, int node, const struct ls_run *run)
{
    int map = p->core.g->nodes[node].out[0];
    struct ls_map m = tensor_map(p, map, run);
    p->k.unflatten(&m, tensor_shape(p, map)->dim[1], IN(0), OUT(0));
    return LS_OK;
}

const struct kernel ls_onednn_ops_shape[] = {
    {"flatten", prepare_plain, NULL, run_flatten},
    {"unflatten", prepare_plain, NULL, run_unflatten},
    {0},
};
