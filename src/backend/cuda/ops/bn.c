/* Batch normalisation.
 *
 * Where a residual input of a bn, a, is the output of another bn, b, as in the first block of a stage of a ResNet, the two
 * are twins and are computed together:
 *
 *   TWIN-1  b has no activation, residual or pooling; a has no pooling; only a reads the y of b.
 *   TWIN-2  Forward, b computes its statistics and no y. a normalises both and adds.
 *   TWIN-3  Backward, the node of a computes the gradients of b as well, and the node of b does nothing. The only dy of b is
 *           the dresidual of a. The gradients of b live from the node of a on.
 *   TWIN-4  What a reads of b (x, mean, rstd) is alive then, because the later backward node of b reads it, too. */
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/ops/conv_bn.h"
#include "backend/cuda/ops/conv_fold.h"
#include "backend/cuda/ops/conv_stem.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

struct ls_cuda_bn bn_of(const struct ls_program *p, int node, int x, int y)
{
    const struct ls_attr *a = &p->core.g->nodes[node].attr;
    return (struct ls_cuda_bn){
        .t = type_of(p),
        .x = map_of(p, x),
        .y = map_of(p, y),
        .act = a->act,
        .pool = a->pool,
        .kernel_h = (int)a->kernel_h,
        .kernel_w = (int)a->kernel_w,
        .stride_h = (int)a->stride_h,
        .stride_w = (int)a->stride_w,
        .pad_t = (int)a->pad_t,
        .pad_l = (int)a->pad_l,
        .eps = a->eps,
        .scratch = (float *)(void *)p->sums,
    };
}

/* The node backward of a bn, whose mean (and y, if it asks for y) are this one's; LS_NONE: there is none. */
static int bn_backward(const struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    for (int i = node + 1; n->out[BN_MEAN] != LS_NONE && i < p->core.g->n_nodes; i++) {
        const struct ls_node *back = &p->core.g->nodes[i];
        if (strcmp(back->op->name, "bn_bwd") == 0 && back->in[B_MEAN] == n->out[BN_MEAN] &&
            (back->in[B_Y] == LS_NONE || back->in[B_Y] == n->out[BN_Y]))
            return i;
    }
    return LS_NONE;
}

/* --- twins ----------------------------------------------------------------------------------------------------- */

static bool sole_reader(const struct ls_graph *g, int tensor, int node, int slot)
{
    return g->nodes[node].in[slot] == tensor && ls_graph_readers(g, tensor) == 1;
}

static bool trains_without_pool(const struct ls_node *n)
{
    return strcmp(n->op->name, "bn") == 0 && n->attr.training && !n->attr.pool;
}

/* The node whose residual is this one's output and nothing else; LS_NONE: there is none. */
static int residual_reader(const struct ls_program *p, int node)
{
    const struct ls_graph *g = p->core.g;
    int y = g->nodes[node].out[BN_Y];
    for (int i = node + 1; i < g->n_nodes; i++)
        if (trains_without_pool(&g->nodes[i]) && sole_reader(g, y, i, BN_RESIDUAL))
            return i;
    return LS_NONE;
}

/* TWIN-1 to TWIN-4, of node `b`. */
static void find_twin(struct ls_program *p, int b, const struct ls_cuda_bn *shape)
{
    const struct ls_graph *g = p->core.g;
    const struct ls_node *n = &g->nodes[b];
    if (!trains_without_pool(n) || n->attr.act != LS_ACT_NONE || n->in[BN_RESIDUAL] != LS_NONE ||
        n->out[BN_Y] == g->logits || !ls_cuda_bn_twins(shape))
        return;
    int a = residual_reader(p, b), back_b = bn_backward(p, b), back_a = a == LS_NONE ? LS_NONE : bn_backward(p, a);
    if (back_a == LS_NONE || back_b == LS_NONE || back_a >= back_b || g->nodes[back_b].in[DY2] != LS_NONE ||
        g->nodes[back_a].out[DRESIDUAL] == LS_NONE || !sole_reader(g, g->nodes[back_a].out[DRESIDUAL], back_b, DY))
        return;
    p->execs[a].twin = b;
    p->execs[b].twin = a;
    p->execs[back_a].twin = back_b;
    p->execs[back_b].twin = back_a;
    p->execs[back_b].early = back_a;
    p->core.places[n->out[BN_Y]].unmade = true;
    snprintf(p->execs[b].note, sizeof p->execs[b].note, "statistics");
    snprintf(p->execs[a].note, sizeof p->execs[a].note, "with its residual's");
    snprintf(p->execs[back_a].note, sizeof p->execs[back_a].note, "with its residual's");
    snprintf(p->execs[back_b].note, sizeof p->execs[back_b].note, "done already");
}

/* --- forward --------------------------------------------------------------------------------------------------- */

static enum ls_status bn_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    for (int i = BN_GAMMA; i <= BN_RUNNING_VAR; i++)
        LS_TRY(place_default(p, n->in[i]));
    LS_TRY(place_outputs(p, node));
    struct ls_cuda_bn b = bn_of(p, node, n->in[BN_X], n->out[BN_Y]);
    int back = bn_backward(p, node);
    find_twin(p, node, &b);
    if (back != LS_NONE) {
        p->core.nodes[node].keep_bytes = ls_cuda_bn_kept(&b, n->in[BN_RESIDUAL] != LS_NONE);
        p->core.nodes[node].keep_until = back;
    }
    want_sums(p, ls_cuda_bn_scratch(&b));
    return back == LS_NONE ? LS_OK : conv_fold_forward_prepare(p, node, back);
}

struct ls_cuda_bn_twin bn_twin_of(const struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    return (struct ls_cuda_bn_twin){
        .x = data_of(p, n->in[BN_X]),
        .gamma = floats(p, n->in[BN_GAMMA]),
        .beta = floats(p, n->in[BN_BETA]),
        .mean = floats(p, n->out[BN_MEAN]),
        .rstd = floats(p, n->out[BN_RSTD]),
    };
}

static enum ls_status bn_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_bn b = bn_of(p, node, n->in[BN_X], n->out[BN_Y]);
    const void *x = data_of(p, n->in[BN_X]), *residual = data_of(p, n->in[BN_RESIDUAL]);
    const float *gamma = floats(p, n->in[BN_GAMMA]), *beta = floats(p, n->in[BN_BETA]);
    void *y = data_of(p, n->out[BN_Y]);
    if (!n->attr.training) {
        ls_cuda_bn_inference(stream_of(p), &b, x, residual, gamma, beta, floats(p, n->in[BN_RUNNING_MEAN]),
                             floats(p, n->in[BN_RUNNING_VAR]), y);
        return LS_OK;
    }
    if (p->execs[node].folded) { /* FOLD-7 */
        conv_fold_forward_run(p, node);
        return LS_OK;
    }
    bool twin = p->execs[node].twin != LS_NONE, has_stats = p->execs[node].early != LS_NONE; /* F1 */
    float *mean = floats(p, n->out[BN_MEAN]), *rstd = floats(p, n->out[BN_RSTD]), *stat = floats(p, n->out[BN_STAT]);
    uint8_t *index = (uint8_t *)data_of(p, n->out[BN_INDEX]);
    if ((twin || p->execs[node].with != LS_NONE) && !has_stats)
        ls_cuda_bn_stats(stream_of(p), &b, p->run, x, mean, rstd, stat);
    if (p->execs[node].with != LS_NONE) { /* MAPPED-1 */
        linear_run_mapped(p, p->execs[node].with);
        return LS_OK;
    }
    if (twin && p->execs[node].twin < node) {
        const struct ls_cuda_bn_twin twins[2] = {bn_twin_of(p, node), bn_twin_of(p, p->execs[node].twin)};
        ls_cuda_bn_twin_apply(stream_of(p), &b, twins, y, p->core.nodes[node].keep);
    }
    if (!twin && has_stats)
        ls_cuda_bn_apply(stream_of(p), &b, x, residual, gamma, beta, mean, rstd, y, index, p->core.nodes[node].keep);
    else if (!twin)
        ls_cuda_bn_forward(stream_of(p), &b, p->run, x, residual, gamma, beta, mean, rstd, stat, y, index,
                           p->core.nodes[node].keep);
    return LS_OK;
}

/* --- backward -------------------------------------------------------------------------------------------------- */

static enum ls_status bn_bwd_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    LS_TRY(place_outputs(p, node));
    struct ls_cuda_bn b = bn_of(p, node, n->in[B_X], n->in[DY]);
    want_sums(p, ls_cuda_bn_scratch(&b));
    return n->attr.pool ? conv_stem_mapped_prepare(p, node) : conv_fold_prepare(p, node);
}

struct ls_cuda_bn_grad bn_grad_of(const struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    return (struct ls_cuda_bn_grad){
        .dy = data_of(p, n->in[DY]),
        .dy2 = data_of(p, n->in[DY2]),
        .sparse = p->execs[node].sparse,
        .x = data_of(p, n->in[B_X]),
        .y = data_of(p, n->in[B_Y]),
        .index = (const uint8_t *)data_of(p, n->in[B_INDEX]),
        .kept = p->core.nodes[node].keep,
        .gamma = floats(p, n->in[B_GAMMA]),
        .beta = floats(p, n->in[B_BETA]),
        .mean = floats(p, n->in[B_MEAN]),
        .rstd = floats(p, n->in[B_RSTD]),
        .dx = data_of(p, n->out[DX]),
        .dresidual = data_of(p, n->out[DRESIDUAL]),
        .dgamma = floats(p, n->out[DGAMMA]),
        .dbeta = floats(p, n->out[DBETA]),
    };
}

static enum ls_status bn_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_bn b = bn_of(p, node, n->in[B_X], n->in[DY]);
    struct ls_cuda_bn_grad g = bn_grad_of(p, node);
    int twin = p->execs[node].twin;
    if (p->execs[node].with != LS_NONE) { /* FOLD-1, MAPPED-1, STEM-4 */
        if (p->execs[node].early == LS_NONE)
            ls_cuda_bn_bwd_sums(stream_of(p), &b, p->run, &g);
        if (p->execs[node].folded)
            conv_fold_run(p, node);
        else if (p->execs[node].gathers)
            conv_stem_mapped_run(p, node, &b, &g);
        else
            linear_run_mapped(p, p->execs[node].with);
    } else if (twin > node) {
        struct ls_cuda_bn_grad second = bn_grad_of(p, twin);
        ls_cuda_bn_twin_bwd(stream_of(p), &b, p->run, &g, &second);
    } else if (twin == LS_NONE && p->execs[node].early != LS_NONE) { /* F2 */
        g.dy = g.dresidual ? g.dresidual : data_of(p, p->core.g->nodes[p->execs[node].early].out[0]);
        ls_cuda_bn_bwd_rest(stream_of(p), &b, p->run, &g);
    } else if (twin == LS_NONE) {
        ls_cuda_bn_bwd(stream_of(p), &b, p->run, &g);
    }
    return LS_OK;
}

const struct kernel ls_cuda_ops_bn[] = {
    {.op = "bn", .prepare = bn_prepare, .run = bn_run},
    {.op = "bn_bwd", .prepare = bn_bwd_prepare, .run = bn_bwd_run},
    {0},
};
