/* Activation functions, one op. The gradient of those that clip needs only the output; the others need the input. */
#include "graph/ops/op.h"

static enum ls_status act_infer(struct ls_graph *g, struct ls_node *n)
{
    return ls_op_output_act(g, n, *ls_op_shape(g, n->in[0]));
}

static enum ls_status act_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    const struct ls_node *n = &g->nodes[node];
    int from = ls_act_clips(n->attr.act) ? n->out[0] : n->in[0];
    return ls_op_unary_backward(g, &ls_op_act_bwd, node, (int[]){dout[0], from}, 2, want, din);
}

static const struct ls_attr_key act_attrs[] = {
    LS_ATTR("act", LS_ATTR_ACT, act, 1, LS_ACT_RELU, false, "which function"),
    {0},
};

const struct ls_op ls_op_act = {
    .name = "act",
    .help = "activation function",
    .min_in = 1,
    .max_in = 1,
    .layer = true,
    .attrs = act_attrs,
    .infer = act_infer,
    .backward = act_backward,
    .inplace = 1,
};

const struct ls_op ls_op_act_bwd = {.name = "act_bwd", .min_in = 2, .max_in = 2, .inplace = 1};
