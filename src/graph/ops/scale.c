/* Multiplies by a constant, such as logits by a temperature. Its gradient is the same op. */
#include "graph/ops/op.h"

static enum ls_status scale_infer(struct ls_graph *g, struct ls_node *n)
{
    return ls_op_output_act(g, n, *ls_op_shape(g, n->in[0]));
}

static enum ls_status scale_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    return ls_op_unary_backward(g, &ls_op_scale, node, (int[]){dout[0]}, 1, want, din);
}

static const struct ls_attr_key scale_attrs[] = {
    LS_ATTR("factor", LS_ATTR_FLOAT, factor, 1, 1, true, "what values are multiplied by"),
    {0},
};

const struct ls_op ls_op_scale = {
    .name = "scale",
    .help = "multiplication by a constant",
    .min_in = 1,
    .max_in = 1,
    .layer = true,
    .attrs = scale_attrs,
    .infer = scale_infer,
    .backward = scale_backward,
    .inplace = 1,
};
