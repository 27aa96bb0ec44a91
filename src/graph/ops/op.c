#include "graph/ops/op.h"

#include <inttypes.h>
#include <stdio.h>

/* Limits for the attributes of model files: products of these sizes cannot overflow. */
#define MAX_EXTENT ((int64_t)1 << 20)
#define MAX_ELEMENTS ((int64_t)1 << 40)

enum ls_status ls_op_want_rank(const struct ls_graph *g, const struct ls_node *n, int slot, int rank)
{
    char text[64];
    const struct ls_shape *s = ls_op_shape(g, n->in[slot]);
    if (s->rank == rank)
        return LS_OK;
    return ls_fail(LS_BAD_INPUT, "layer %s: %s takes an input of %d dimensions (%s), got %s", n->name, n->op->name,
                   rank, rank == 4 ? "batch x channels x height x width" : "batch x features", ls_shape_text(s, text));
}

enum ls_status ls_op_want_shape(const struct ls_graph *g, const struct ls_node *n, int slot, const char *what,
                                struct ls_shape shape)
{
    char got[64], expected[64];
    if (n->in[slot] == LS_NONE)
        return LS_OK;
    const struct ls_shape *s = ls_op_shape(g, n->in[slot]);
    if (ls_shape_equal(s, &shape))
        return LS_OK;
    return ls_fail(LS_BAD_INPUT, "layer %s: its %s is %s, expected %s", n->name, what, ls_shape_text(s, got),
                   ls_shape_text(&shape, expected));
}

enum ls_status ls_op_output(struct ls_graph *g, struct ls_node *n, int slot, const char *suffix, enum ls_role role,
                            enum ls_dtype dtype, struct ls_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if (__builtin_mul_overflow(count, shape.dim[i], &count) || count < 1 || count > MAX_ELEMENTS) {
            char text[64];
            return ls_fail(LS_BAD_INPUT, "layer %s: its output %s has no size a machine can hold", n->name,
                           ls_shape_text(&shape, text));
        }
    const char *name = suffix ? ls_arena_format(&g->strings, "%s.%s", n->name, suffix) : n->name;
    if (!name)
        return LS_FAILED;
    n->out[slot] = ls_graph_tensor(g, name, role, dtype, shape);
    return n->out[slot] == LS_NONE ? LS_FAILED : LS_OK;
}

enum ls_status ls_op_output_act(struct ls_graph *g, struct ls_node *n, struct ls_shape shape)
{
    return ls_op_output(g, n, 0, NULL, LS_ROLE_ACT, g->act_dtype, shape);
}

static enum ls_status want_range(const struct ls_node *n, const char *what, int64_t value, int64_t least)
{
    if (value >= least && value <= MAX_EXTENT)
        return LS_OK;
    return ls_fail(LS_BAD_INPUT, "layer %s: %s %" PRId64 " is not in %" PRId64 " to %" PRId64, n->name, what, value,
                   least, MAX_EXTENT);
}

/* "1", or "1,2,1,2" (top, left, bottom, right) when the sides differ. */
static const char *pad_text(const struct ls_attr *a, char text[96])
{
    if (a->pad_t == a->pad_l && a->pad_t == a->pad_b && a->pad_t == a->pad_r)
        snprintf(text, 96, "%" PRId64, a->pad_t);
    else
        snprintf(text, 96, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, a->pad_t, a->pad_l, a->pad_b, a->pad_r);
    return text;
}

enum ls_status ls_op_window(struct ls_node *n, int64_t h, int64_t w, int64_t *out_h, int64_t *out_w)
{
    const struct ls_attr *a = &n->attr;
    const int64_t kernel[] = {a->kernel_h, a->kernel_w}, stride[] = {a->stride_h, a->stride_w};
    const int64_t dilation[] = {a->dilation_h, a->dilation_w};
    const int64_t pad[] = {a->pad_t, a->pad_l, a->pad_b, a->pad_r};
    for (int i = 0; i < 2; i++) {
        LS_TRY(want_range(n, "kernel", kernel[i], 1));
        LS_TRY(want_range(n, "stride", stride[i], 1));
        LS_TRY(want_range(n, "dilation", dilation[i], 1));
    }
    for (int i = 0; i < 4; i++)
        LS_TRY(want_range(n, "pad", pad[i], 0));
    int64_t room_h = h + pad[0] + pad[2] - (dilation[0] * (kernel[0] - 1) + 1);
    int64_t room_w = w + pad[1] + pad[3] - (dilation[1] * (kernel[1] - 1) + 1);
    if (room_h < 0 || room_w < 0) {
        char text[96];
        return ls_fail(
            LS_BAD_INPUT,
            "layer %s: a %" PRId64 "x%" PRId64 " window does not fit its %" PRId64 "x%" PRId64 " input (padding %s)",
            n->name, dilation[0] * (kernel[0] - 1) + 1, dilation[1] * (kernel[1] - 1) + 1, h, w, pad_text(a, text));
    }
    *out_h = room_h / stride[0] + 1;
    *out_w = room_w / stride[1] + 1;
    return LS_OK;
}

/* The padding behind the input that makes room for a last, partial window, as in PyTorch: such a window begins in front
 * of the input's end. */
static int64_t ceil_padding(int64_t size, int64_t kernel, int64_t stride, int64_t pad)
{
    int64_t room = size + 2 * pad - kernel, starts = (room + stride - 1) / stride;
    if (room < 0 || starts * stride >= size + pad)
        return pad;
    return pad + starts * stride - room;
}

enum ls_status ls_op_pool_window(struct ls_node *n, int64_t h, int64_t w, int64_t *out_h, int64_t *out_w)
{
    struct ls_attr *a = &n->attr;
    a->stride_h = a->stride_h ? a->stride_h : a->kernel_h;
    a->stride_w = a->stride_w ? a->stride_w : a->kernel_w;
    a->dilation_h = a->dilation_w = 1;
    LS_TRY(ls_op_window(n, h, w, out_h, out_w));
    bool wide = a->pad_t >= a->kernel_h || a->pad_l >= a->kernel_w;
    if (a->ceil && !wide) {
        a->pad_b = ceil_padding(h, a->kernel_h, a->stride_h, a->pad_t);
        a->pad_r = ceil_padding(w, a->kernel_w, a->stride_w, a->pad_l);
        return ls_op_window(n, h, w, out_h, out_w);
    }
    if (wide || a->pad_b >= a->kernel_h || a->pad_r >= a->kernel_w) {
        char text[96];
        return ls_fail(LS_BAD_INPUT,
                       "layer %s: padding %s must be smaller than its %" PRId64 "x%" PRId64
                       " window, or a window would hold nothing but padding",
                       n->name, pad_text(a, text), a->kernel_h, a->kernel_w);
    }
    return LS_OK;
}

enum ls_status ls_op_maxpool_shape(struct ls_node *n, const struct ls_shape *x, struct ls_shape *y)
{
    int64_t out_h, out_w;
    LS_TRY(ls_op_pool_window(n, x->dim[2], x->dim[3], &out_h, &out_w));
    if (n->attr.kernel_h * n->attr.kernel_w > 255)
        return ls_fail(LS_BAD_INPUT,
                       "layer %s: a max pooling window of %" PRId64 "x%" PRId64 " is too large; at most 255 pixels",
                       n->name, n->attr.kernel_h, n->attr.kernel_w);
    *y = ls_shape_make(4, x->dim[0], x->dim[1], out_h, out_w);
    return LS_OK;
}

enum ls_status ls_op_act_backward(struct ls_graph *g, int node, int dy, int *dz)
{
    int y = g->nodes[node].out[0];
    if (g->nodes[node].attr.act == LS_ACT_NONE) {
        *dz = dy;
        return LS_OK;
    }
    int masked = ls_grad_act(g, y);
    if (masked == LS_NONE)
        return LS_FAILED;
    LS_TRY(ls_backward_node(g, &ls_op_act_bwd, node, (int[]){dy, y}, 2, &masked, 1));
    *dz = masked;
    return LS_OK;
}

enum ls_status ls_op_unary_backward(struct ls_graph *g, const struct ls_op *op, int node, const int *in, int n_in,
                                    const bool *want, int *din)
{
    if (!want[0])
        return LS_OK;
    int dx = ls_grad_act(g, g->nodes[node].in[0]);
    if (dx == LS_NONE)
        return LS_FAILED;
    LS_TRY(ls_backward_node(g, op, node, in, n_in, &dx, 1));
    din[0] = dx;
    return LS_OK;
}
