/* Dense layer: y = x w' + b on the flattened input, optionally followed by an activation. Weights are (O, K). */
#include "graph/ops/op.h"
#include "graph/split.h"

#include <inttypes.h>

static enum ls_status dense_infer(struct ls_graph *g, struct ls_node *n)
{
    const struct ls_shape x = *ls_op_shape(g, n->in[0]);
    int64_t out = n->attr.out;
    if (x.rank != 4)
        LS_TRY(ls_op_want_rank(g, n, 0, 2));
    if (out < 1)
        return ls_fail(LS_BAD_INPUT, "layer %s: out %" PRId64 " is not a number of features", n->name, out);
    int64_t features = ls_shape_count(&x) / x.dim[0];
    LS_TRY(ls_op_want_shape(g, n, 1, "weight", ls_shape_make(2, out, features, 0, 0)));
    LS_TRY(ls_op_want_shape(g, n, 2, "bias", ls_shape_make(1, out, 0, 0, 0)));
    return ls_op_output_act(g, n, ls_shape_make(2, x.dim[0], out, 0, 0));
}

static enum ls_status dense_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    int x = g->nodes[node].in[0], w = g->nodes[node].in[1], b = g->nodes[node].in[2], dz;
    LS_TRY(ls_op_act_backward(g, node, dout[0], &dz));
    if (want[1] || want[2]) {
        int dparam[] = {ls_grad_param(g, w), b == LS_NONE ? LS_NONE : ls_grad_param(g, b)};
        if (dparam[0] == LS_NONE || (b != LS_NONE && dparam[1] == LS_NONE))
            return LS_FAILED;
        LS_TRY(ls_backward_node(g, &ls_op_dense_bwd_weights, node, (int[]){dz, x}, 2, dparam, 2));
    }
    LS_TRY(ls_op_unary_backward(g, &ls_op_dense_bwd_data, node, (int[]){dz, w}, 2, want, din));
    struct ls_split_range r;
    int at[LS_SPLIT_CHUNKS + 1];
    if (din[0] != LS_NONE && g->nodes[node].attr.whole_rows > 0 &&
        ls_split_range_of(&g->nodes[node].attr, ls_op_shape(g, w), &r)) {
        g->tensors[din[0]].shape.dim[0] *= ls_split_parts(r.first, r.end, r.chunks, at); /* SPLIT-2 */
        g->tensors[din[0]].dtype = LS_F32;
    }
    return LS_OK;
}

static int64_t dense_macs(const struct ls_graph *g, const struct ls_node *n)
{
    return ls_shape_count(ls_op_shape(g, n->in[1]));
}

static const struct ls_attr_key dense_attrs[] = {
    LS_ATTR("out", LS_ATTR_INT, out, 1, 0, true, "output features", .low = 1),
    LS_ATTR("bias", LS_ATTR_BOOL, bias, 1, 1, false, "add a value per output feature"),
    {0},
};

const struct ls_op ls_op_dense = {
    .name = "dense",
    .help = "matrix product with a weight for each input and output; images are flattened first",
    .min_in = 2,
    .max_in = 3,
    .layer = true,
    .weights = true,
    .attrs = dense_attrs,
    .infer = dense_infer,
    .backward = dense_backward,
    .macs = dense_macs,
};

const struct ls_op ls_op_dense_bwd_data = {.name = "dense_bwd_data", .min_in = 2, .max_in = 2};

const struct ls_op ls_op_dense_bwd_weights = {.name = "dense_bwd_weights", .min_in = 2, .max_in = 2};
