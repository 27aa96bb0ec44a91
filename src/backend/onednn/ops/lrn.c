/* Local response normalisation. */
#include "backend/onednn/ops/op.h"
#include "base/log.h"

static enum ls_status prepare_lrn(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    if (tensor_shape(p, n->in[0])->dim[1] > LS_LRN_CHANNELS)
        return ls_fail(LS_USAGE, "layer %s: lrn takes at most %d channels", n->name, LS_LRN_CHANNELS);
    return prepare_plain(p, node);
}

static enum ls_status run_lrn(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_map m = tensor_map(p, n->in[0], run);
    p->k.lrn(&m, tensor_shape(p, n->in[0])->dim[1], n->attr.size, n->attr.alpha, n->attr.beta, n->attr.k, IN(0),
             OUT(0));
    return LS_OK;
}

static enum ls_status run_lrn_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_map m = tensor_map(p, n->in[1], run);
    p->k.lrn_bwd(&m, tensor_shape(p, n->in[1])->dim[1], n->attr.size, n->attr.alpha, n->attr.beta, n->attr.k, IN(0),
                 IN(1), OUT(0));
    return LS_OK;
}

const struct kernel ls_onednn_ops_lrn[] = {
    {"lrn", prepare_lrn, NULL, run_lrn},
    {"lrn_bwd", prepare_lrn, NULL, run_lrn_bwd},
    {0},
};
