/* Convolution: y = x * w + b, optionally followed by an activation. Weights are (O, I/groups, KH, KW), as in
 * PyTorch. */
#include "graph/ops/op.h"

#include <inttypes.h>

static enum ls_status conv_infer(struct ls_graph *g, struct ls_node *n)
{
    struct ls_attr *a = &n->attr;
    LS_TRY(ls_op_want_rank(g, n, 0, 4));
    const struct ls_shape x = *ls_op_shape(g, n->in[0]);
    int64_t channels = x.dim[1], out_h, out_w;
    LS_TRY(ls_op_window(n, x.dim[2], x.dim[3], &out_h, &out_w));
    if (a->out < 1)
        return ls_fail(LS_BAD_INPUT, "layer %s: out %" PRId64 " is not a number of channels", n->name, a->out);
    if (a->groups < 1 || channels % a->groups || a->out % a->groups)
        return ls_fail(LS_BAD_INPUT,
                       "layer %s: groups %" PRId64 " does not divide both its %" PRId64 " input and %" PRId64
                       " output channels",
                       n->name, a->groups, channels, a->out);
    struct ls_shape w = ls_shape_make(4, a->out, channels / a->groups, a->kernel_h, a->kernel_w);
    LS_TRY(ls_op_want_shape(g, n, 1, "weight", w));
    LS_TRY(ls_op_want_shape(g, n, 2, "bias", ls_shape_make(1, a->out, 0, 0, 0)));
    return ls_op_output_act(g, n, ls_shape_make(4, x.dim[0], a->out, out_h, out_w));
}

/* The weights' gradient comes first. It is the last reader of the input, so dx may reuse the input's memory, and the
 * exchange of the gradient can start earlier. */
static enum ls_status conv_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    int x = g->nodes[node].in[0], w = g->nodes[node].in[1], b = g->nodes[node].in[2], dz;
    LS_TRY(ls_op_act_backward(g, node, dout[0], &dz));
    if (want[1] || want[2]) {
        int dparam[] = {ls_grad_param(g, w), b == LS_NONE ? LS_NONE : ls_grad_param(g, b)};
        if (dparam[0] == LS_NONE || (b != LS_NONE && dparam[1] == LS_NONE))
            return LS_FAILED;
        LS_TRY(ls_backward_node(g, &ls_op_conv_bwd_weights, node, (int[]){dz, x}, 2, dparam, 2));
    }
    return ls_op_unary_backward(g, &ls_op_conv_bwd_data, node, (int[]){dz, w}, 2, want, din);
}

static int64_t conv_macs(const struct ls_graph *g, const struct ls_node *n)
{
    const struct ls_shape *y = ls_op_shape(g, n->out[0]), *w = ls_op_shape(g, n->in[1]);
    return ls_shape_count(w) * y->dim[2] * y->dim[3];
}

static const struct ls_attr_key conv_attrs[] = {
    LS_ATTR("out", LS_ATTR_INT, out, 1, 0, true, "output channels", .low = 1),
    LS_ATTR("kernel", LS_ATTR_INT, kernel_h, 2, 0, true, "window height and width", .low = 1),
    LS_ATTR("stride", LS_ATTR_INT, stride_h, 2, 1, false, "steps of the window down and across", .low = 1),
    LS_ATTR("pad", LS_ATTR_INT, pad_t, 4, 0, false, "zeros around the input: top, left, bottom, right"),
    LS_ATTR("dilation", LS_ATTR_INT, dilation_h, 2, 1, false, "distance between the window's taps", .low = 1),
    LS_ATTR("groups", LS_ATTR_INT, groups, 1, 1, false, "independent channel groups; input channels = depthwise",
            .low = 1),
    LS_ATTR("bias", LS_ATTR_BOOL, bias, 1, 1, false, "add a value per output channel"),
    {0},
};

const struct ls_op ls_op_conv = {
    .name = "conv",
    .help = "convolution",
    .min_in = 2,
    .max_in = 3,
    .layer = true,
    .weights = true,
    .attrs = conv_attrs,
    .infer = conv_infer,
    .backward = conv_backward,
    .macs = conv_macs,
};

const struct ls_op ls_op_conv_bwd_data = {.name = "conv_bwd_data", .min_in = 2, .max_in = 2};

const struct ls_op ls_op_conv_bwd_weights = {.name = "conv_bwd_weights", .min_in = 2, .max_in = 2};
