/* Local response normalisation across channels, as in AlexNet. */
#include "graph/ops/op.h"

#include <inttypes.h>

static enum ls_status lrn_infer(struct ls_graph *g, struct ls_node *n)
{
    LS_TRY(ls_op_want_rank(g, n, 0, 4));
    if (n->attr.size < 1)
        return ls_fail(LS_BAD_INPUT, "layer %s: size %" PRId64 " is not a number of channels", n->name, n->attr.size);
    if (!(n->attr.k > 0))
        return ls_fail(LS_BAD_INPUT, "layer %s: k %g is not above 0", n->name, (double)n->attr.k);
    return ls_op_output_act(g, n, *ls_op_shape(g, n->in[0]));
}

static enum ls_status lrn_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    return ls_op_unary_backward(g, &ls_op_lrn_bwd, node, (int[]){dout[0], g->nodes[node].in[0]}, 2, want, din);
}

static const struct ls_attr_key lrn_attrs[] = {
    LS_ATTR("size", LS_ATTR_INT, size, 1, 5, false, "channels in the window", .low = 1),
    LS_ATTR("alpha", LS_ATTR_FLOAT, alpha, 1, 1e-4, false, "weight of the mean square"),
    LS_ATTR("beta", LS_ATTR_FLOAT, beta, 1, 0.75, false, "exponent"),
    LS_ATTR("k", LS_ATTR_FLOAT, k, 1, 1, false, "constant added to the mean square", .above = true),
    {0},
};

const struct ls_op ls_op_lrn = {
    .name = "lrn",
    .help = "local response normalisation across channels, as AlexNet's",
    .min_in = 1,
    .max_in = 1,
    .layer = true,
    .attrs = lrn_attrs,
    .infer = lrn_infer,
    .backward = lrn_backward,
};

const struct ls_op ls_op_lrn_bwd = {.name = "lrn_bwd", .min_in = 2, .max_in = 2};
