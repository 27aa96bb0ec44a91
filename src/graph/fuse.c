/* Rewrites of the forward nodes before autodiff, so that each fused form has a single gradient rule. Every rule
 * keeps the values: sums and products stay in the same order, and max commutes with relu. With 16-bit activations, what a
 * joined node does not store is not rounded.
 *
 *   conv 1x1 with a stride        ->  avgpool 1x1 with it, conv 1x1  where asked for (dense_1x1)
 *   flatten, dropout|act          ->  dropout|act, flatten           so that the next rule applies
 *   flatten, dense                ->  dense over (N,C,H,W)           no copy into rows
 *   conv|dense|bn|add, act        ->  the op with .act               relu and relu6; bn: also silu, hardswish and gelu
 *   bn, add                       ->  bn with a residual input
 *   conv(act), maxpool            ->  conv, maxpool(act)             the mask is computed on the smaller tensor
 *   bn(act), maxpool              ->  bn(act, pool)                  the large tensor between them is never stored
 *
 * Poolings and residuals are joined with relu and relu6 alone. A rule applies only when the tensor between the two
 * nodes has no other reader and is not the model's output.
 * Invariant F1: after a rewrite the nodes are again in execution order (G1), because the joined node takes the
 * position of the later one. */
#include "base/log.h"
#include "graph/graph.h"
#include "graph/ops.h"

#include <string.h>

static bool private_between(const struct ls_graph *g, int tensor)
{
    return tensor != g->logits && ls_graph_readers(g, tensor) == 1;
}

static void drop(struct ls_graph *g, int n)
{
    memmove(g->nodes + n, g->nodes + n + 1, (size_t)(g->n_nodes - n - 1) * sizeof *g->nodes);
    g->n_nodes--;
}

/* The node that produces input `slot` of node n, if n is its only reader; otherwise LS_NONE. */
static int sole_source(const struct ls_graph *g, int n, int slot)
{
    int t = g->nodes[n].in[slot];
    return t != LS_NONE && private_between(g, t) ? ls_graph_producer(g, t) : LS_NONE;
}

/* A 1x1 convolution with a stride reads every stride-th pixel. An avgpool over 1x1 windows selects these pixels
 * first. The convolution is then a plain matrix product, and the gradient of the avgpool puts the pixels back in
 * place. */
static bool pick_pixels(struct ls_graph *g, int n)
{
    const struct ls_node conv = g->nodes[n];
    const struct ls_attr *a = &conv.attr;
    if (conv.op != &ls_op_conv || a->kernel_h != 1 || a->kernel_w != 1 || (a->stride_h == 1 && a->stride_w == 1) ||
        a->pad_t || a->pad_l || a->pad_b || a->pad_r || a->groups != 1)
        return false;
    int pick;
    struct ls_attr attr = {.kernel_h = 1, .kernel_w = 1, .stride_h = a->stride_h, .stride_w = a->stride_w};
    if (ls_graph_node(g, &ls_op_avgpool, conv.name, &attr, conv.in, 1, &pick) != LS_OK)
        return false;
    struct ls_node picked = g->nodes[pick];
    memmove(g->nodes + n + 1, g->nodes + n, (size_t)(pick - n) * sizeof *g->nodes);
    g->nodes[n] = picked;
    g->nodes[n + 1].in[0] = picked.out[0];
    g->nodes[n + 1].attr.stride_h = g->nodes[n + 1].attr.stride_w = 1;
    return true;
}

static bool sink_flatten(struct ls_graph *g, int n)
{
    struct ls_node *later = &g->nodes[n];
    if (later->op != &ls_op_dropout && later->op != &ls_op_act)
        return false;
    int s = sole_source(g, n, 0);
    if (s == LS_NONE || g->nodes[s].op != &ls_op_flatten || later->out[0] == g->logits)
        return false;
    struct ls_node *flatten = &g->nodes[s];
    /* x -> flatten -> f -> act -> y   becomes   x -> act -> f' -> flatten -> y, with f' shaped like x. */
    int x = flatten->in[0], f = flatten->out[0], y = later->out[0];
    g->tensors[f].shape = g->tensors[x].shape;
    struct ls_node moved = *later;
    moved.in[0] = x;
    moved.out[0] = f;
    struct ls_node sunk = *flatten;
    sunk.in[0] = f;
    sunk.out[0] = y;
    g->nodes[s] = moved;
    g->nodes[n] = sunk;
    return true;
}

static bool dense_over_map(struct ls_graph *g, int n)
{
    if (g->nodes[n].op != &ls_op_dense)
        return false;
    int s = sole_source(g, n, 0);
    if (s == LS_NONE || g->nodes[s].op != &ls_op_flatten)
        return false;
    g->nodes[n].in[0] = g->nodes[s].in[0];
    drop(g, s);
    return true;
}

static bool takes_act(const struct ls_node *n, enum ls_act act)
{
    bool other = n->op == &ls_op_conv || n->op == &ls_op_dense || n->op == &ls_op_add;
    return (n->op == &ls_op_bn ? ls_act_keeps_zero(act) : other && ls_act_clips(act)) && n->attr.act == LS_ACT_NONE &&
           !n->attr.pool;
}

static bool join_act(struct ls_graph *g, int n)
{
    if (g->nodes[n].op != &ls_op_act)
        return false;
    int s = sole_source(g, n, 0);
    if (s == LS_NONE || !takes_act(&g->nodes[s], g->nodes[n].attr.act) || g->nodes[s].out[0] != g->nodes[n].in[0])
        return false;
    struct ls_node joined = g->nodes[s];
    joined.attr.act = g->nodes[n].attr.act;
    joined.out[0] = g->nodes[n].out[0];
    g->nodes[n] = joined;
    drop(g, s);
    return true;
}

enum { BN_RESIDUAL = 5, BN_INDEX = 4 };

static bool join_residual(struct ls_graph *g, int n)
{
    if (g->nodes[n].op != &ls_op_add || g->nodes[n].in[0] == g->nodes[n].in[1])
        return false;
    for (int slot = 0; slot < 2; slot++) {
        int s = sole_source(g, n, slot);
        if (s == LS_NONE || g->nodes[s].op != &ls_op_bn || g->nodes[s].attr.act != LS_ACT_NONE ||
            g->nodes[s].attr.pool || g->nodes[s].in[BN_RESIDUAL] != LS_NONE)
            continue;
        if (g->nodes[s].attr.training != g->training)
            continue; /* a frozen BN has no gradient rule, and the residual may need one */
        struct ls_node joined = g->nodes[s];
        joined.in[BN_RESIDUAL] = g->nodes[n].in[1 - slot];
        joined.out[0] = g->nodes[n].out[0];
        joined.attr.act = g->nodes[n].attr.act;
        g->nodes[n] = joined;
        drop(g, s);
        return true;
    }
    return false;
}

static bool join_pool(struct ls_graph *g, int n)
{
    struct ls_node *pool = &g->nodes[n];
    if (pool->op != &ls_op_maxpool || pool->attr.act != LS_ACT_NONE)
        return false;
    int s = sole_source(g, n, 0);
    if (s == LS_NONE)
        return false;
    struct ls_node *source = &g->nodes[s];
    if (source->op == &ls_op_conv && source->attr.act != LS_ACT_NONE) {
        pool->attr.act = source->attr.act;
        source->attr.act = LS_ACT_NONE;
        return true;
    }
    if (source->op != &ls_op_bn || source->attr.pool || source->in[BN_RESIDUAL] != LS_NONE ||
        !ls_act_clips(source->attr.act))
        return false;
    struct ls_node joined = *source;
    joined.attr.pool = true;
    joined.attr.kernel_h = pool->attr.kernel_h, joined.attr.kernel_w = pool->attr.kernel_w;
    joined.attr.stride_h = pool->attr.stride_h, joined.attr.stride_w = pool->attr.stride_w;
    joined.attr.pad_t = pool->attr.pad_t, joined.attr.pad_l = pool->attr.pad_l;
    joined.attr.pad_b = pool->attr.pad_b, joined.attr.pad_r = pool->attr.pad_r;
    joined.out[0] = pool->out[0];
    joined.out[BN_INDEX] = pool->out[1];
    g->nodes[n] = joined;
    drop(g, s);
    return true;
}

enum ls_status ls_graph_fuse(struct ls_graph *g, bool dense_1x1)
{
    static bool (*const rules[])(struct ls_graph *, int) = {pick_pixels, sink_flatten,  dense_over_map,
                                                            join_act,    join_residual, join_pool};
    /* Each rule is tried over the whole array before the next: a residual add is fused with its act first, and a
     * pool sees acts that are already fused. Each application removes what it matched, so the loop ends. */
    for (size_t r = dense_1x1 ? 0 : 1; r < sizeof rules / sizeof *rules; r++)
        for (int n = 0; n < g->n_nodes; n++)
            if (rules[r](g, n))
                n = -1;
    return LS_OK;
}
