/* Multiplication by a constant. */
#include "backend/onednn/ops/op.h"

static enum ls_status run_scale(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    (void)run;
    p->k.scale(n->attr.factor, IN(0), OUT(0), tensor_stored(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_onednn_ops_scale[] = {
    {"scale", prepare_plain, NULL, run_scale},
    {0},
};
