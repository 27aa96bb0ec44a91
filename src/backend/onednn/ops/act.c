/* Activation functions. */
#include "backend/onednn/ops/op.h"

static enum ls_status run_act(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    p->k.act(p->core.g->nodes[node].attr.act, IN(0), OUT(0), tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

static enum ls_status run_act_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    p->k.act_bwd(p->core.g->nodes[node].attr.act, IN(0), IN(1), OUT(0),
                 tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

const struct kernel ls_onednn_ops_act[] = {
    {"act", prepare_plain, NULL, run_act},
    {"act_bwd", prepare_plain, NULL, run_act_bwd},
    {0},
};
