/* Stochastic depth. The gradient has the same factors, drawn again. */
#include "backend/onednn/ops/op.h"
#include "base/random.h"

static enum ls_status run_drop_path(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    uint64_t stream = ls_random_stream(LS_RANDOM_DROPOUT, run->step, run->replica, n->attr.layer);
    const struct ls_shape *shape = tensor_shape(p, n->out[0]);
    int64_t size = p->layouts[n->out[0]].blocked ? tensor_stored(p, n->out[0]) / shape->dim[0]
                                                 : ls_shape_count(shape) / shape->dim[0];
    p->k.drop_path(shape->dim[0], size, n->attr.training ? n->attr.p : 0.0f, run->seed, stream, IN(0), OUT(0));
    return LS_OK;
}

const struct kernel ls_onednn_ops_drop_path[] = {
    {"drop_path", prepare_plain, NULL, run_drop_path},
    {"drop_path_bwd", prepare_plain, NULL, run_drop_path},
    {0},
};
