/* Multiplies each channel of a sample by a factor, as squeeze-and-excitation does. */
#include "graph/ops/op.h"

enum { A, S };

static enum ls_status mul_infer(struct ls_graph *g, struct ls_node *n)
{
    LS_TRY(ls_op_want_rank(g, n, A, 4));
    const struct ls_shape a = *ls_op_shape(g, n->in[A]);
    LS_TRY(ls_op_want_shape(g, n, S, "second input", ls_shape_make(4, a.dim[0], a.dim[1], 1, 1)));
    return ls_op_output_act(g, n, a);
}

/* One node computes both gradients, so that dy and a are read once. */
static enum ls_status mul_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    int a = g->nodes[node].in[A], s = g->nodes[node].in[S];
    if (!want[A] && !want[S])
        return LS_OK;
    int out[] = {ls_grad_act(g, a), ls_grad_act(g, s)};
    if (out[A] == LS_NONE || out[S] == LS_NONE)
        return LS_FAILED;
    LS_TRY(ls_backward_node(g, &ls_op_mul_bwd, node, (int[]){dout[0], a, s}, 3, out, 2));
    for (int i = 0; i < 2; i++)
        if (want[i])
            din[i] = out[i];
    return LS_OK;
}

const struct ls_op ls_op_mul = {
    .name = "mul",
    .help =
        "each channel of the first input times the second's value for it (1 x 1 pixels), as in squeeze-and-excitation",
    .min_in = 2,
    .max_in = 2,
    .layer = true,
    .infer = mul_infer,
    .backward = mul_backward,
    .inplace = 1,
};

const struct ls_op ls_op_mul_bwd = {.name = "mul_bwd", .min_in = 3, .max_in = 3, .inplace = 1};
