/* Stochastic depth: drops a whole sample of a residual branch. What is kept is a function of (seed, step, replica, layer,
 * sample), so backward draws it again. */
#include "graph/ops/op.h"

static enum ls_status drop_path_infer(struct ls_graph *g, struct ls_node *n)
{
    if (!(n->attr.p >= 0 && n->attr.p < 1))
        return ls_fail(LS_BAD_INPUT, "layer %s: p %g is not a share from 0 to below 1", n->name, (double)n->attr.p);
    return ls_op_output_act(g, n, *ls_op_shape(g, n->in[0]));
}

static enum ls_status drop_path_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    if (g->nodes[node].attr.training)
        return ls_op_unary_backward(g, &ls_op_drop_path_bwd, node, dout, 1, want, din);
    if (want[0])
        din[0] = dout[0];
    return LS_OK;
}

static const struct ls_attr_key drop_path_attrs[] = {
    LS_ATTR("p", LS_ATTR_FLOAT, p, 1, 0.1, false, "share of the samples set to zero in training", .high = 1,
            .below = true),
    {0},
};

const struct ls_op ls_op_drop_path = {
    .name = "drop_path",
    .help = "stochastic depth: sets random samples to zero in training and scales the others up; stands before an add",
    .min_in = 1,
    .max_in = 1,
    .layer = true,
    .attrs = drop_path_attrs,
    .infer = drop_path_infer,
    .backward = drop_path_backward,
    .inplace = 1,
};

const struct ls_op ls_op_drop_path_bwd = {.name = "drop_path_bwd", .min_in = 1, .max_in = 1, .inplace = 1};
