/* Activation functions. */
#include "backend/onednn/ops/op.h"

static enum ls_status run_act(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    enum ls_act act = n->attr.act;
    int y = n->out[0];
    (ls_act_clips(act) ? p->k.act : p->k.smooth)(act, IN(0), OUT(0), tensor_stored(p, y));
    /* These two do not map 0 to 0. */
    if ((act == LS_ACT_SIGMOID || act == LS_ACT_HARDSIGMOID) && p->layouts[y].blocked) {
        struct ls_map map = tensor_map(p, y, run);
        p->k.clear_padding(&map, tensor_shape(p, y)->dim[1], OUT(0));
    }
    return LS_OK;
}

static enum ls_status run_act_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    enum ls_act act = p->core.g->nodes[node].attr.act;
    (ls_act_clips(act) ? p->k.act_bwd : p->k.smooth_bwd)(act, IN(0), IN(1), OUT(0),
                                                         tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

const struct kernel ls_onednn_ops_act[] = {
    {"act", prepare_plain, NULL, run_act},
    {"act_bwd", prepare_plain, NULL, run_act_bwd},
    {0},
};
