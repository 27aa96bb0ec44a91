/* Dropout. The gradient passes through the same mask, drawn again. */
#include "backend/onednn/ops/op.h"
#include "base/random.h"

static enum ls_status run_dropout(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    uint64_t stream = ls_random_stream(LS_RANDOM_DROPOUT, run->step, run->replica, n->attr.layer);
    p->k.dropout(tensor_shape(p, n->out[0]), p->layouts[n->out[0]].blocked, n->attr.training ? n->attr.p : 0.0f,
                 run->seed, stream, IN(0), OUT(0));
    return LS_OK;
}

const struct kernel ls_onednn_ops_dropout[] = {
    {"dropout", prepare_plain, NULL, run_dropout},
    {"dropout_bwd", prepare_plain, NULL, run_dropout},
    {0},
};
