/* Each channel of a sample times a factor. */
#include "backend/onednn/ops/op.h"

static enum ls_status run_mul(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_map map = tensor_map(p, p->core.g->nodes[node].in[0], run);
    p->k.mul(&map, IN(0), IN(1), OUT(0));
    return LS_OK;
}

static enum ls_status run_mul_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_map map = tensor_map(p, p->core.g->nodes[node].in[0], run);
    p->k.mul_bwd(&map, IN(0), IN(1), IN(2), OUT(0), OUT(1));
    return LS_OK;
}

const struct kernel ls_onednn_ops_mul[] = {
    {"mul", prepare_plain, NULL, run_mul},
    {"mul_bwd", prepare_plain, NULL, run_mul_bwd},
    {0},
};
