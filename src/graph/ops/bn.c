/* Batch normalisation over (N, H, W), optionally fused with a residual sum, an activation and a max pooling:
 * y = pool(act(gamma * (x - mean) * rstd + beta + residual)). */
#include "graph/ops/op.h"

enum { X, GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, RESIDUAL };
enum { Y, MEAN, RSTD, STAT, INDEX };

static enum ls_status bn_infer(struct ls_graph *g, struct ls_node *n)
{
    static const char *const parameters[] = {"", "weight", "bias", "running mean", "running variance"};
    LS_TRY(ls_op_want_rank(g, n, X, 4));
    const struct ls_shape x = *ls_op_shape(g, n->in[X]);
    const struct ls_shape channels = ls_shape_make(1, x.dim[1], 0, 0, 0);
    for (int slot = GAMMA; slot <= RUNNING_VAR; slot++)
        LS_TRY(ls_op_want_shape(g, n, slot, parameters[slot], channels));
    LS_TRY(ls_op_want_shape(g, n, RESIDUAL, "residual", x));
    if (!(n->attr.eps > 0))
        return ls_fail(LS_BAD_INPUT, "layer %s: eps %g is not above 0", n->name, (double)n->attr.eps);
    struct ls_shape y = x;
    if (n->attr.pool)
        LS_TRY(ls_op_maxpool_shape(n, &x, &y));
    LS_TRY(ls_op_output_act(g, n, y));
    if (!n->attr.training)
        return LS_OK;
    LS_TRY(ls_op_output(g, n, MEAN, "mean", LS_ROLE_ACT, LS_F32, channels));
    LS_TRY(ls_op_output(g, n, RSTD, "rstd", LS_ROLE_ACT, LS_F32, channels));
    LS_TRY(ls_op_output(g, n, STAT, "stat", LS_ROLE_GRAD, LS_F32, ls_shape_make(2, 2, x.dim[1], 0, 0)));
    if (n->attr.pool)
        LS_TRY(ls_op_output(g, n, INDEX, "index", LS_ROLE_ACT, LS_U8, y));
    return LS_OK;
}

/* bn_bwd reads y only when the activation's mask cannot be recomputed from x alone, which is the case with a
 * residual. Activations that do not clip come without one. */
static enum ls_status bn_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    const struct ls_node n = g->nodes[node];
    if (!n.attr.training)
        return ls_fail(LS_FAILED, "layer %s: bn has no gradient outside training", n.name);
    bool mask = n.attr.act != LS_ACT_NONE && n.in[RESIDUAL] != LS_NONE;
    int in[] = {dout[Y],     LS_NONE,     n.in[X],     n.in[GAMMA],
                n.in[BETA],  n.out[MEAN], n.out[RSTD], mask ? n.out[Y] : LS_NONE,
                n.out[INDEX]};
    int out[] = {ls_grad_act(g, n.in[X]), ls_grad_param(g, n.in[GAMMA]), ls_grad_param(g, n.in[BETA]), LS_NONE};
    if (out[0] == LS_NONE || out[1] == LS_NONE || out[2] == LS_NONE)
        return LS_FAILED;
    if (want[RESIDUAL]) {
        out[3] = ls_grad_act(g, n.in[RESIDUAL]);
        if (out[3] == LS_NONE)
            return LS_FAILED;
    }
    LS_TRY(ls_backward_node(g, &ls_op_bn_bwd, node, in, 9, out, 4));
    if (want[X])
        din[X] = out[0];
    din[RESIDUAL] = out[3];
    return LS_OK;
}

static enum ls_status bn_running_infer(struct ls_graph *g, struct ls_node *n)
{
    const struct ls_shape stat = *ls_op_shape(g, n->in[0]);
    const struct ls_shape channels = ls_shape_make(1, stat.dim[1], 0, 0, 0);
    LS_TRY(ls_op_want_shape(g, n, 1, "running mean", channels));
    return ls_op_want_shape(g, n, 2, "running variance", channels);
}

static const struct ls_attr_key bn_attrs[] = {
    LS_ATTR("eps", LS_ATTR_FLOAT, eps, 1, 1e-5, false, "added to the variance", .above = true),
    LS_ATTR("momentum", LS_ATTR_FLOAT, momentum, 1, 0.1, false, "share of the new value in the running statistics",
            .high = 1),
    LS_ATTR("scale", LS_ATTR_BOOL, scale, 1, 1, false, "train a factor for each channel; false: only a shift"),
    {0},
};

const struct ls_op ls_op_bn = {
    .name = "bn",
    .help = "batch normalisation: each channel to mean 0 and variance 1, then scaled and shifted",
    .min_in = 5,
    .max_in = 6,
    .layer = true,
    .weights = true,
    .attrs = bn_attrs,
    .infer = bn_infer,
    .backward = bn_backward,
    .inplace = 1,
};

const struct ls_op ls_op_bn_bwd = {.name = "bn_bwd", .min_in = 7, .max_in = 9, .inplace = 1};

const struct ls_op ls_op_bn_running = {.name = "bn_running", .min_in = 3, .max_in = 3, .infer = bn_running_infer};
