/* Ops that combine tensors: add (a residual), concat along channels, slice, which is the gradient of concat, and
 * sum, which adds the gradients of a tensor that several nodes read. */
#include "graph/ops/op.h"

#include <inttypes.h>

static enum ls_status add_infer(struct ls_graph *g, struct ls_node *n)
{
    const struct ls_shape a = *ls_op_shape(g, n->in[0]);
    LS_TRY(ls_op_want_shape(g, n, 1, "second input", a));
    return ls_op_output_act(g, n, a);
}

static enum ls_status add_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    int dz;
    LS_TRY(ls_op_act_backward(g, node, dout[0], &dz));
    for (int i = 0; i < 2; i++)
        if (want[i])
            din[i] = dz;
    return LS_OK;
}

static enum ls_status concat_infer(struct ls_graph *g, struct ls_node *n)
{
    struct ls_shape y = *ls_op_shape(g, n->in[0]);
    if (y.rank != 2)
        LS_TRY(ls_op_want_rank(g, n, 0, 4));
    for (int i = 1; i < LS_MAX_IN && n->in[i] != LS_NONE; i++) {
        const struct ls_shape *x = ls_op_shape(g, n->in[i]);
        struct ls_shape expected = y;
        char first[64], other[64];
        expected.dim[1] = x->rank > 1 ? x->dim[1] : 0;
        if (!ls_shape_equal(x, &expected))
            return ls_fail(LS_BAD_INPUT, "layer %s: input %d is %s, which differs from %s in more than its channels",
                           n->name, i + 1, ls_shape_text(x, other), ls_shape_text(ls_op_shape(g, n->in[0]), first));
        y.dim[1] += x->dim[1];
    }
    return ls_op_output_act(g, n, y);
}

static enum ls_status concat_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    int64_t offset = 0;
    for (int i = 0; i < LS_MAX_IN && g->nodes[node].in[i] != LS_NONE; i++) {
        int x = g->nodes[node].in[i];
        if (want[i]) {
            int dx = ls_grad_act(g, x);
            if (dx == LS_NONE)
                return LS_FAILED;
            LS_TRY(ls_backward_node(g, &ls_op_slice, node, dout, 1, &dx, 1));
            g->nodes[g->n_nodes - 1].attr.offset = offset;
            din[i] = dx;
        }
        offset += ls_op_shape(g, x)->dim[1];
    }
    return LS_OK;
}

const struct ls_op ls_op_add = {
    .name = "add",
    .help = "sum of two tensors of one shape, as in a residual block",
    .min_in = 2,
    .max_in = 2,
    .layer = true,
    .infer = add_infer,
    .backward = add_backward,
    .inplace = 1,
};

const struct ls_op ls_op_concat = {
    .name = "concat",
    .help = "several tensors one after the other along the channels",
    .min_in = 1,
    .max_in = LS_MAX_IN,
    .layer = true,
    .infer = concat_infer,
    .backward = concat_backward,
};

const struct ls_op ls_op_slice = {.name = "slice", .min_in = 1, .max_in = 1};

const struct ls_op ls_op_sum = {.name = "sum", .min_in = 2, .max_in = 2, .infer = add_infer, .inplace = 1};
