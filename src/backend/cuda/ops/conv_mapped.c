/* A product can be computed together with the second pass of the bn or bn_bwd whose result it reads, which saves reading that
 * result:
 *
 *   MAPPED-1  The node of the bn runs the product too, and the node of the product does nothing. The outputs of the
 *             product, and what it computes of the normalisation behind it (CONVBN-1, CONVBN-2), live from the node of
 *             the bn on.
 *   MAPPED-2  Forward, the bn has a residual, which may be a twin (bn.c). Backward, the bn_bwd has a dresidual and no
 *             twin, and the product ends as the dz of a bn_bwd that has neither a second gradient nor a dresidual.
 *   MAPPED-3  The tuner measures both ways and takes the faster. */
#include "backend/cuda/ops/conv_bn.h"
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/conv/tune.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

/* The bn or bn_bwd that `node` may be computed with (MAPPED-2); LS_NONE: none. */
static int source_of(const struct ls_program *p, int node, const struct linear *l, const struct conv_bn *bn)
{
    const struct ls_graph *g = p->core.g;
    int input = g->nodes[node].in[0], from = ls_graph_producer(g, input);
    if (from == LS_NONE || p->execs[from].with != LS_NONE || p->execs[from].folded || g->nodes[from].attr.pool)
        return LS_NONE;
    const struct ls_node *n = &g->nodes[from], *to = &g->nodes[bn->node];
    if (l->pass == FORWARD) {
        bool keeps = n->attr.act == LS_ACT_NONE || p->core.nodes[from].keep_bytes > 0;
        return strcmp(n->op->name, "bn") == 0 && n->attr.training && n->out[BN_Y] == input &&
                       n->in[BN_RESIDUAL] != LS_NONE && keeps
                   ? from
                   : LS_NONE;
    }
    return strcmp(n->op->name, "bn_bwd") == 0 && n->out[DX] == input && n->out[DRESIDUAL] != LS_NONE &&
                   p->execs[from].twin == LS_NONE && to->in[DY2] == LS_NONE && to->out[DRESIDUAL] == LS_NONE &&
                   p->execs[bn->node].twin == LS_NONE
               ? from
               : LS_NONE;
}

/* --- is it worth it --------------------------------------------------------------------------------------------- */

struct rivals {
    struct ls_program *p;
    bool forward, twins, kept;
    struct ls_cuda_product product;
    struct ls_cuda_bn from, bn;
    /* while measuring */
    struct ls_cuda_run *run;
    struct ls_cuda_mapped f;
    struct ls_cuda_bn_grad back, g; /* of the bn_bwd before and behind the product */
    char *w, *out;
    float *stat;
};

static enum ls_status run_rival(void *context, int rival, char *workspace)
{
    struct rivals *r = context;
    ls_cuda_stream s = stream_of(r->p);
    (void)workspace;
    if (r->forward && rival == 0) {
        ls_cuda_mapped_stats(s, &r->product, &r->from, &r->f, &r->bn, r->run, r->w, r->out, r->g.dgamma, r->g.dbeta,
                             r->stat);
    } else if (r->forward) {
        const struct ls_cuda_bn_twin *a = &r->f.twin[0];
        if (r->twins)
            ls_cuda_bn_twin_apply(s, &r->from, r->f.twin, r->f.y, r->f.kept);
        else
            ls_cuda_bn_apply(s, &r->from, a->x, r->f.residual, a->gamma, a->beta, a->mean, a->rstd, r->f.y, NULL,
                             r->f.kept);
        ls_cuda_product_stats(s, &r->product, &r->bn, r->run, r->f.y, r->w, r->out, r->g.dgamma, r->g.dbeta, r->stat);
    } else if (rival == 0) {
        ls_cuda_mapped_sums(s, &r->product, &r->back, &r->bn, r->run, r->w, &r->g);
    } else {
        ls_cuda_bn_bwd_rest(s, &r->from, r->run, &r->back);
        ls_cuda_product_sums(s, &r->product, &r->bn, r->run, r->back.dx, r->w, &r->g);
    }
    return LS_OK;
}

static enum ls_status place_rivals(void *context, char *memory, size_t *bytes)
{
    struct rivals *r = context;
    const struct ls_cuda_product *m = &r->product;
    size_t used = 0, in = (size_t)(m->rows * m->k) * 2, out = (size_t)(m->rows * m->n) * 2,
           k = (size_t)m->k * sizeof(float), n = (size_t)m->n * sizeof(float), c = k > n ? k : n;
    void *x = tune_place(memory, &used, in), *more = tune_place(memory, &used, in), *y = tune_place(memory, &used, in);
    float *gamma = tune_place(memory, &used, c), *beta = tune_place(memory, &used, c);
    r->run = tune_place(memory, &used, sizeof *r->run);
    r->w = tune_place(memory, &used, (size_t)(m->k * m->n) * 2);
    r->out = tune_place(memory, &used, out);
    r->stat = tune_place(memory, &used, 2 * c);
    r->bn.scratch = r->from.scratch = tune_place(memory, &used, ls_cuda_bn_scratch(&r->bn));
    r->f = (struct ls_cuda_mapped){.twin = {{x, gamma, beta, beta, gamma}, {more, gamma, beta, beta, gamma}}, .y = y};
    r->f.residual = r->twins ? NULL : more;
    r->f.kept = r->kept ? tune_place(memory, &used, in / (2 * LS_CUDA_LANE)) : NULL;
    r->back = (struct ls_cuda_bn_grad){.dy = more,
                                       .x = x,
                                       .gamma = gamma,
                                       .beta = beta,
                                       .mean = beta,
                                       .rstd = gamma,
                                       .dx = y,
                                       .dgamma = beta,
                                       .dbeta = beta};
    r->g = (struct ls_cuda_bn_grad){.x = r->forward ? NULL : tune_place(memory, &used, out),
                                    .gamma = gamma,
                                    .beta = beta,
                                    .mean = beta,
                                    .rstd = gamma,
                                    .dresidual = r->out,
                                    .dgamma = tune_place(memory, &used, c),
                                    .dbeta = tune_place(memory, &used, c)};
    *bytes = used;
    return memory ? tune_begin_run(r->p, r->bn.scratch, r->bn.x.n, r->run) : LS_OK;
}

/* --- the node --------------------------------------------------------------------------------------------------- */

enum ls_status conv_mapped_prepare(struct ls_program *p, int node, const struct linear *l, const struct conv_bn *bn)
{
    static const char *const names[] = {"mapped", "apart"};
    const struct ls_graph *g = p->core.g;
    const struct conv_sums *k = &bn->kernel;
    bool wgmma = bn->node != LS_NONE && !k->is_taps && k->product.way == LS_CUDA_PRODUCT_WGMMA;
    int from = wgmma ? source_of(p, node, l, bn) : LS_NONE, best;
    if (from == LS_NONE)
        return LS_OK;
    const struct ls_node *n = &g->nodes[node];
    struct rivals r = {.p = p,
                       .forward = l->pass == FORWARD,
                       .twins = p->execs[from].twin != LS_NONE,
                       .kept = g->nodes[from].attr.act != LS_ACT_NONE,
                       .product = k->product,
                       .from = bn_of(p, from, n->in[0], n->in[0]),
                       .bn = bn_of(p, bn->node, n->out[0], n->out[0])};
    char with[80];
    if (!ls_cuda_mapped_can(&r.product, &r.from, &r.bn))
        return LS_OK;
    snprintf(with, sizeof with, " mapped, act %s%s, then act %s", ls_act_name(r.from.act), r.twins ? ", twins" : "",
             ls_act_name(r.bn.act));
    const struct tune_rivals both = {&r, place_rivals, run_rival, 0, 2, names};
    LS_TRY(tune_between(p, n->name, l, with, &both, &best));
    if (best != 0)
        return LS_OK;
    p->execs[from].with = node;
    p->execs[node].with = p->execs[node].early = from;
    snprintf(p->execs[node].note, sizeof p->execs[node].note, "done already");
    snprintf(p->execs[from].note, sizeof p->execs[from].note, "own, with the next convolution");
    return LS_OK;
}

void conv_mapped_run(const struct ls_program *p, int node, const struct linear *l, const struct conv_bn *bn)
{
    const struct ls_graph *g = p->core.g;
    int from = p->execs[node].with, twin = p->execs[from].twin;
    const struct ls_node *n = &g->nodes[node], *of = &g->nodes[from], *to = &g->nodes[bn->node];
    const struct ls_cuda_product *product = &bn->kernel.product;
    const struct ls_cuda_bn a = bn_of(p, from, n->in[0], n->in[0]), b = bn_of(p, bn->node, n->out[0], n->out[0]);
    if (l->pass == FORWARD) {
        struct ls_cuda_mapped f = {.twin = {bn_twin_of(p, from)},
                                   .residual = twin == LS_NONE ? data_of(p, of->in[BN_RESIDUAL]) : NULL,
                                   .y = data_of(p, of->out[BN_Y]),
                                   .kept = a.act == LS_ACT_NONE ? NULL : p->core.nodes[from].keep};
        if (twin != LS_NONE)
            f.twin[1] = bn_twin_of(p, twin);
        ls_cuda_mapped_stats(stream_of(p), product, &a, &f, &b, p->run, weights_of(p, n->in[1]), data_of(p, n->out[0]),
                             floats(p, to->out[BN_MEAN]), floats(p, to->out[BN_RSTD]), floats(p, to->out[BN_STAT]));
        return;
    }
    struct ls_cuda_bn_grad back = bn_grad_of(p, from), grad = conv_bn_grad(p, bn->node, n->out[0]);
    back.dy = back.dresidual;
    ls_cuda_mapped_sums(stream_of(p), product, &back, &b, p->run, weights_of(p, n->in[1]), &grad);
}
