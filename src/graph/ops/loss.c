/* Losses per sample, and the rank of the label among the scores, which gives the top-1 and top-5 accuracy. */
#include "graph/ops/op.h"

#include <inttypes.h>

static enum ls_status loss_infer(struct ls_graph *g, struct ls_node *n)
{
    LS_TRY(ls_op_want_rank(g, n, 0, 2));
    const struct ls_shape x = *ls_op_shape(g, n->in[0]);
    const struct ls_shape samples = ls_shape_make(1, x.dim[0], 0, 0, 0);
    LS_TRY(ls_op_want_shape(g, n, 1, "label", samples));
    LS_TRY(ls_op_output(g, n, 0, NULL, LS_ROLE_ACT, LS_F32, samples));
    return ls_op_output(g, n, 1, "rank", LS_ROLE_ACT, LS_I32, samples);
}

static enum ls_status softmax_xent_infer(struct ls_graph *g, struct ls_node *n)
{
    if (!(n->attr.smoothing >= 0 && n->attr.smoothing < 1))
        return ls_fail(LS_BAD_INPUT, "layer %s: smoothing %g is not a share from 0 to below 1", n->name,
                       (double)n->attr.smoothing);
    LS_TRY(loss_infer(g, n));
    /* The probabilities are f32. In 16 bits the label's probability would soon round to 1, and its gradient to 0. */
    return ls_op_output(g, n, 2, "prob", LS_ROLE_ACT, LS_F32, *ls_op_shape(g, n->in[0]));
}

static enum ls_status softmax_xent_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    (void)dout; /* gradients start at the loss */
    const struct ls_node *n = &g->nodes[node];
    return ls_op_unary_backward(g, &ls_op_softmax_xent_bwd, node, (int[]){n->out[2], n->in[1]}, 2, want, din);
}

static enum ls_status l2_loss_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    (void)dout;
    const struct ls_node *n = &g->nodes[node];
    return ls_op_unary_backward(g, &ls_op_l2_loss_bwd, node, (int[]){n->in[0], n->in[1]}, 2, want, din);
}

const struct ls_op ls_op_softmax_xent = {
    .name = "softmax_xent",
    .min_in = 2,
    .max_in = 2,
    .infer = softmax_xent_infer,
    .backward = softmax_xent_backward,
};

const struct ls_op ls_op_softmax_xent_bwd = {.name = "softmax_xent_bwd", .min_in = 2, .max_in = 2, .inplace = 1};

const struct ls_op ls_op_l2_loss = {
    .name = "l2_loss",
    .min_in = 2,
    .max_in = 2,
    .infer = loss_infer,
    .backward = l2_loss_backward,
};

const struct ls_op ls_op_l2_loss_bwd = {.name = "l2_loss_bwd", .min_in = 2, .max_in = 2};
