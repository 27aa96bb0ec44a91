/* Losses. */
#include "backend/core/mix.h"
#include "backend/onednn/ops/op.h"

static struct ls_loss loss_of(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_shape *s = tensor_shape(p, n->in[0]);
    return (struct ls_loss){.n = s->dim[0],
                            .classes = s->dim[1],
                            .scores = IN(0),
                            .label = (int32_t *)IN(1),
                            .smoothing = n->attr.smoothing,
                            .weight = ls_mix_of_run(&n->attr.mix, run).weight,
                            .valid = run->valid,
                            .scale = run->grad_scale};
}

static enum ls_status run_softmax(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_loss a = loss_of(p, node, run);
    a.loss = (float *)OUT(0);
    a.rank = (int32_t *)OUT(1);
    a.out = OUT(2);
    p->k.softmax(&a);
    return LS_OK;
}

static enum ls_status run_softmax_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_loss a = loss_of(p, node, run);
    a.out = OUT(0);
    p->k.softmax_bwd(&a);
    return LS_OK;
}

static enum ls_status run_l2(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_loss a = loss_of(p, node, run);
    a.loss = (float *)OUT(0);
    a.rank = (int32_t *)OUT(1);
    p->k.l2(&a);
    return LS_OK;
}

static enum ls_status run_l2_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_loss a = loss_of(p, node, run);
    a.out = OUT(0);
    p->k.l2_bwd(&a);
    return LS_OK;
}

const struct kernel ls_onednn_ops_loss[] = {
    {"softmax_xent", prepare_plain, NULL, run_softmax},
    {"softmax_xent_bwd", prepare_plain, NULL, run_softmax_bwd},
    {"l2_loss", prepare_plain, NULL, run_l2},
    {"l2_loss_bwd", prepare_plain, NULL, run_l2_bwd},
    {0},
};
