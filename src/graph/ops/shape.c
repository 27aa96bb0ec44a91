/* Ops that move values without changing them: flatten, unflatten, which is the gradient of flatten, and reorder.
 * Backends insert reorder where a tensor must change its layout or type. */
#include "graph/ops/op.h"

static enum ls_status flatten_infer(struct ls_graph *g, struct ls_node *n)
{
    const struct ls_shape x = *ls_op_shape(g, n->in[0]);
    return ls_op_output_act(g, n, ls_shape_make(2, x.dim[0], ls_shape_count(&x) / x.dim[0], 0, 0));
}

static enum ls_status flatten_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    return ls_op_unary_backward(g, &ls_op_unflatten, node, dout, 1, want, din);
}

static enum ls_status reorder_infer(struct ls_graph *g, struct ls_node *n)
{
    return ls_op_output_act(g, n, *ls_op_shape(g, n->in[0]));
}

const struct ls_op ls_op_flatten = {
    .name = "flatten",
    .help = "channels, rows and columns as one vector",
    .min_in = 1,
    .max_in = 1,
    .layer = true,
    .infer = flatten_infer,
    .backward = flatten_backward,
    .inplace = 1,
};

const struct ls_op ls_op_unflatten = {.name = "unflatten", .min_in = 1, .max_in = 1, .inplace = 1};

const struct ls_op ls_op_reorder = {.name = "reorder", .min_in = 1, .max_in = 1, .infer = reorder_infer};
