/* Max, average and adaptive average pooling. Global pooling is adaptive pooling with an output of 1 x 1. */
#include "graph/ops/op.h"

#include <inttypes.h>

static enum ls_status maxpool_infer(struct ls_graph *g, struct ls_node *n)
{
    LS_TRY(ls_op_want_rank(g, n, 0, 4));
    const struct ls_shape x = *ls_op_shape(g, n->in[0]);
    struct ls_shape y;
    LS_TRY(ls_op_maxpool_shape(n, &x, &y));
    LS_TRY(ls_op_output_act(g, n, y));
    return n->attr.training ? ls_op_output(g, n, 1, "index", LS_ROLE_ACT, LS_U8, y) : LS_OK;
}

static enum ls_status maxpool_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    const struct ls_node *n = &g->nodes[node];
    if (n->out[1] == LS_NONE)
        return ls_fail(LS_FAILED, "layer %s: maxpool has no gradient outside training", n->name);
    int in[] = {dout[0], n->out[1], n->attr.act == LS_ACT_NONE ? LS_NONE : n->out[0]};
    return ls_op_unary_backward(g, &ls_op_maxpool_bwd, node, in, 3, want, din);
}

static enum ls_status avgpool_infer(struct ls_graph *g, struct ls_node *n)
{
    int64_t out_h, out_w;
    LS_TRY(ls_op_want_rank(g, n, 0, 4));
    const struct ls_shape x = *ls_op_shape(g, n->in[0]);
    LS_TRY(ls_op_pool_window(n, x.dim[2], x.dim[3], &out_h, &out_w));
    return ls_op_output_act(g, n, ls_shape_make(4, x.dim[0], x.dim[1], out_h, out_w));
}

static enum ls_status avgpool_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    return ls_op_unary_backward(g, &ls_op_avgpool_bwd, node, dout, 1, want, din);
}

static enum ls_status adaptive_infer(struct ls_graph *g, struct ls_node *n)
{
    LS_TRY(ls_op_want_rank(g, n, 0, 4));
    const struct ls_shape x = *ls_op_shape(g, n->in[0]);
    if (n->attr.out_h < 1 || n->attr.out_w < 1)
        return ls_fail(LS_BAD_INPUT, "layer %s: out %" PRId64 "x%" PRId64 " is not a size", n->name, n->attr.out_h,
                       n->attr.out_w);
    return ls_op_output_act(g, n, ls_shape_make(4, x.dim[0], x.dim[1], n->attr.out_h, n->attr.out_w));
}

static enum ls_status adaptive_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    return ls_op_unary_backward(g, &ls_op_adaptive_avgpool_bwd, node, dout, 1, want, din);
}

#define WINDOW_ATTRS                                                                                              \
    LS_ATTR("kernel", LS_ATTR_INT, kernel_h, 2, 0, true, "window height and width", .low = 1),                    \
        LS_ATTR("stride", LS_ATTR_INT, stride_h, 2, 0, false, "steps of the window down and across; 0 = kernel"), \
        LS_ATTR("pad", LS_ATTR_INT, pad_t, 4, 0, false, "padding around the input: top, left, bottom, right")

static const struct ls_attr_key maxpool_attrs[] = {
    WINDOW_ATTRS,
    LS_ATTR("ceil", LS_ATTR_BOOL, ceil, 1, 0, false,
            "round the output size up; bottom and right padding follow from it"),
    {0},
};

static const struct ls_attr_key avgpool_attrs[] = {
    WINDOW_ATTRS,
    LS_ATTR("include_pad", LS_ATTR_BOOL, include_pad, 1, 1, false, "padding counts in the mean"),
    {0},
};

static const struct ls_attr_key adaptive_attrs[] = {
    LS_ATTR("out", LS_ATTR_INT, out_h, 2, 1, false, "output height and width", .low = 1),
    {0},
};

const struct ls_op ls_op_maxpool = {
    .name = "maxpool",
    .help = "largest value of each window",
    .min_in = 1,
    .max_in = 1,
    .layer = true,
    .attrs = maxpool_attrs,
    .infer = maxpool_infer,
    .backward = maxpool_backward,
};

const struct ls_op ls_op_maxpool_bwd = {.name = "maxpool_bwd", .min_in = 2, .max_in = 3};

const struct ls_op ls_op_avgpool = {
    .name = "avgpool",
    .help = "mean of each window",
    .min_in = 1,
    .max_in = 1,
    .layer = true,
    .attrs = avgpool_attrs,
    .infer = avgpool_infer,
    .backward = avgpool_backward,
};

const struct ls_op ls_op_avgpool_bwd = {.name = "avgpool_bwd", .min_in = 1, .max_in = 1};

const struct ls_op ls_op_adaptive_avgpool = {
    .name = "adaptive_avgpool",
    .help = "mean of windows chosen so that the output has a given size; 1 is global pooling",
    .min_in = 1,
    .max_in = 1,
    .layer = true,
    .attrs = adaptive_attrs,
    .infer = adaptive_infer,
    .backward = adaptive_backward,
};

const struct ls_op ls_op_adaptive_avgpool_bwd = {.name = "adaptive_avgpool_bwd", .min_in = 1, .max_in = 1};
