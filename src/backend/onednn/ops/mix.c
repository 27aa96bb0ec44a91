/* Mixup and cutmix. */
#include "backend/core/mix.h"
#include "backend/onednn/ops/op.h"

static enum ls_status run_mix(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_map map = tensor_map(p, n->in[0], run);
    struct ls_mix mix = ls_mix_of_run(&n->attr.mix, run);
    p->k.mix(&map, &mix, IN(0), OUT(0));
    return LS_OK;
}

const struct kernel ls_onednn_ops_mix[] = {
    {"mix", prepare_plain, NULL, run_mix},
    {0},
};
