/* If a batch normalisation reads the result of a convolution, the convolution can also compute the sums of that normalisation,
 * which saves a pass over the map. There are kernels for 1x1 convolutions, which are matrix products, and for 3x3 ones:
 *
 *   CONVBN-1  Forward, before a bn that trains: the node of the convolution computes mean, rstd and stat; the node of the bn
 *             only normalises.
 *   CONVBN-2  Backward, before a bn_bwd that reads the gradient by data alone, or as the later of its two: the node of that
 *             gradient computes dz, dgamma and dbeta; the node of the bn_bwd computes dx from them. dz is dresidual where there
 *             is one, and then the gradient itself is never stored. Otherwise dz takes the place of the gradient.
 *   CONVBN-3  The tuner measures both ways and takes the faster. Of the kernels for a product (enum ls_cuda_product_way) the
 *             first that can run takes part. The one for Hopper is the first candidate, ahead of the two kernels apart; the
 *             other comes behind them. So does that for 3x3 convolutions: a model is not cut between nodes that are computed
 *             together, and next to 3x3 convolutions a ResNet has most of its places to be cut (parallel.md), so it should pay.
 *   CONVBN-4  The kernel for 3x3 convolutions has no part where dz needs more than the gradient and x: no other gradient, no
 *             residual. Its weights lie as CUDA-2 says, also for the gradient. */
#include "backend/cuda/ops/conv_bn.h"
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/ops/conv_fold.h"
#include "backend/cuda/conv/tune.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

struct ls_cuda_product conv_bn_product(const struct linear *l, enum ls_cuda_product_way way)
{
    const struct ls_cuda_map *x = &l->conv.x, *y = &l->conv.y;
    bool back = l->pass == BWD_DATA;
    return (struct ls_cuda_product){x->n * x->h * x->w, back ? y->c : x->c, back ? x->c : y->c, back, way};
}

/* --- the kernel ------------------------------------------------------------------------------------------------- */

static bool is_taps(const struct linear *l)
{
    const struct ls_cuda_conv *c = &l->conv;
    return c->kernel_h == 3 && c->kernel_w == 3 && c->stride_h == 1 && c->stride_w == 1 && c->dilation_h == 1 &&
           c->dilation_w == 1 && c->groups == 1 && c->pad_t == 1 && c->pad_l == 1 && l->pad_b == 1 && l->pad_r == 1;
}

/* CONVBN-3. False: there is none. b: of the bn or bn_bwd. */
static bool find_kernel(const struct linear *l, const struct ls_cuda_bn *b, bool residual, struct conv_sums *k)
{
    const struct ls_cuda_map *x = &l->conv.x, *y = &l->conv.y;
    bool back = l->pass == BWD_DATA;
    *k = (struct conv_sums){.is_taps = is_taps(l)};
    if (k->is_taps) {
        k->taps = (struct ls_cuda_taps){back ? *y : *x, back ? x->c : y->c, back};
        return ls_cuda_taps_can(&k->taps, b, residual);
    }
    for (int way = 0; way < LS_CUDA_PRODUCT_WAYS; way++) {
        k->product = conv_bn_product(l, (enum ls_cuda_product_way)way);
        if (ls_cuda_product_can(&k->product, b, residual))
            return true;
    }
    return false;
}

static const char *name_of(const struct conv_sums *k)
{
    return k->is_taps ? "together taps" : k->product.way == LS_CUDA_PRODUCT_WGMMA ? "together wgmma" : "together";
}

static bool goes_first(const struct conv_sums *k)
{
    return !k->is_taps && k->product.way == LS_CUDA_PRODUCT_WGMMA;
}

/* CONVBN-1. bias: of taps, optional. */
static void run_stats(ls_cuda_stream s, const struct conv_sums *k, const struct ls_cuda_bn *b,
                      const struct ls_cuda_run *run, const void *x, const void *w, const float *bias, void *y,
                      float *mean, float *rstd, float *stat)
{
    if (k->is_taps)
        ls_cuda_taps_stats(s, &k->taps, b, run, x, w, bias, y, mean, rstd, stat);
    else
        ls_cuda_product_stats(s, &k->product, b, run, x, w, y, mean, rstd, stat);
}

/* CONVBN-2 */
static void run_sums(ls_cuda_stream s, const struct conv_sums *k, const struct ls_cuda_bn *b,
                     const struct ls_cuda_run *run, const void *dy, const void *w, const struct ls_cuda_bn_grad *g)
{
    if (k->is_taps)
        ls_cuda_taps_sums(s, &k->taps, b, run, dy, w, g);
    else
        ls_cuda_product_sums(s, &k->product, b, run, dy, w, g);
}

/* --- which ------------------------------------------------------------------------------------------------------ */

/* CONVBN-1. The bn that reads a tensor. */
static int reader_forward(const struct ls_program *p, int node, int tensor)
{
    for (int i = node + 1; i < p->core.g->n_nodes; i++) {
        const struct ls_node *n = &p->core.g->nodes[i];
        if (strcmp(n->op->name, "bn") == 0 && n->attr.training && n->in[BN_X] == tensor)
            return i;
    }
    return LS_NONE;
}

/* CONVBN-2. The only reader of a tensor, if that is a bn_bwd whose other gradient, if any, is there by then. That one may be
 * sparse (linear.c), the tensor itself not. */
static enum ls_status reader_backward(struct ls_program *p, int node, int tensor, int *reader)
{
    *reader = LS_NONE;
    if (ls_graph_readers(p->core.g, tensor) != 1)
        return LS_OK;
    for (int i = node + 1; i < p->core.g->n_nodes; i++) {
        const struct ls_node *n = &p->core.g->nodes[i];
        if (strcmp(n->op->name, "bn_bwd") != 0 || n->attr.pool || !ls_act_clips(n->attr.act) ||
            (n->in[DY] != tensor && n->in[DY2] != tensor))
            continue;
        LS_TRY(conv_fold_prepare(p, i));
        int other = n->in[DY] == tensor ? n->in[DY2] : n->in[DY];
        bool sparse = p->execs[i].sparse && n->in[DY2] == tensor,
             there = other == LS_NONE || ls_graph_producer(p->core.g, other) < node;
        *reader = !sparse && p->execs[i].twin == LS_NONE && there ? i : LS_NONE;
        return LS_OK;
    }
    return LS_OK;
}

/* FOLD-4 */
static bool leaves_x(const struct ls_program *p, int bn)
{
    return p->execs[bn].folded && p->core.g->nodes[bn].attr.act != LS_ACT_NONE &&
           p->core.g->nodes[bn].out[DRESIDUAL] != LS_NONE;
}

struct ls_cuda_bn_grad conv_bn_grad(const struct ls_program *p, int bn, int tensor)
{
    const struct ls_node *n = &p->core.g->nodes[bn];
    struct ls_cuda_bn_grad g = bn_grad_of(p, bn);
    g.dy2 = data_of(p, n->in[DY] == tensor ? n->in[DY2] : n->in[DY]);
    g.dy = NULL;
    if (n->out[DRESIDUAL] == LS_NONE)
        g.dresidual = data_of(p, tensor);
    if (leaves_x(p, bn))
        g.x = NULL;
    return g;
}

/* --- is it worth it --------------------------------------------------------------------------------------------- */

struct rivals {
    struct ls_program *p;
    const struct linear *l;
    const struct conv_algorithm *algorithm;
    struct ls_cuda_bn bn;
    bool dy2, kept, residual;
    int sparse;
    bool leaves_x; /* FOLD-4 */
    struct conv_sums kernel;
    bool first; /* the kernel is the likely faster one */
    /* while measuring */
    struct operands o;
    struct ls_cuda_run *run;
    struct ls_cuda_bn_grad g;
    float *stat;
};

static enum ls_status run_apart(struct rivals *r, char *workspace)
{
    r->o.workspace = workspace;
    LS_TRY(r->algorithm->library->run(r->p->device, r->l, r->algorithm, &r->o));
    if (r->l->pass == FORWARD)
        ls_cuda_bn_stats(stream_of(r->p), &r->bn, r->run, r->o.y, r->g.dgamma, r->g.dbeta, r->stat);
    else
        ls_cuda_bn_bwd_sums(stream_of(r->p), &r->bn, r->run, &r->g);
    return LS_OK;
}

static enum ls_status run_rival(void *context, int rival, char *workspace)
{
    struct rivals *r = context;
    if ((rival == 0) != r->first)
        return run_apart(r, workspace);
    if (r->l->pass == FORWARD) {
        run_stats(stream_of(r->p), &r->kernel, &r->bn, r->run, r->o.x, r->o.w, r->o.bias, r->o.y, r->g.dgamma,
                  r->g.dbeta, r->stat);
        return LS_OK;
    }
    struct ls_cuda_bn_grad g = r->g;
    g.dresidual = g.dresidual ? g.dresidual : r->o.x;
    g.x = r->leaves_x ? NULL : g.x;
    run_sums(stream_of(r->p), &r->kernel, &r->bn, r->run, r->o.y, r->o.w, &g);
    return LS_OK;
}

static enum ls_status place_rivals(void *context, char *memory, size_t *bytes)
{
    struct rivals *r = context;
    const struct ls_cuda_map *m = &r->bn.x;
    size_t used = 0, map = (size_t)map_count(m) * 2, c = (size_t)m->c * sizeof(float);
    r->o = (struct operands){.x = tune_place(memory, &used, (size_t)map_count(&r->l->conv.x) * 2)};
    r->o.y = tune_place(memory, &used, (size_t)map_count(&r->l->conv.y) * 2);
    r->o.w = tune_place(memory, &used, (size_t)weights_count(r->l) * 2);
    r->o.bias = r->l->bias ? tune_place(memory, &used, c) : NULL;
    r->o.half_bias = r->l->bias ? tune_place(memory, &used, c) : NULL;
    r->run = tune_place(memory, &used, sizeof *r->run);
    r->bn.scratch = tune_place(memory, &used, ls_cuda_bn_scratch(&r->bn));
    r->stat = tune_place(memory, &used, 2 * c);
    r->g = (struct ls_cuda_bn_grad){.dy = r->o.x, .x = tune_place(memory, &used, map)};
    r->g.dy2 = r->dy2 ? tune_place(memory, &used, map) : NULL;
    r->g.sparse = r->sparse;
    r->g.kept = r->kept ? tune_place(memory, &used, map / (2 * LS_CUDA_LANE)) : NULL;
    r->g.dresidual = r->residual ? tune_place(memory, &used, map) : NULL;
    r->g.gamma = tune_place(memory, &used, c);
    r->g.beta = tune_place(memory, &used, c);
    r->g.mean = tune_place(memory, &used, c);
    r->g.rstd = tune_place(memory, &used, c);
    r->g.dgamma = tune_place(memory, &used, c);
    r->g.dbeta = tune_place(memory, &used, c);
    *bytes = used;
    return memory ? tune_begin_run(r->p, r->bn.scratch, m->n, r->run) : LS_OK;
}

static enum ls_status compare(struct rivals *r, const char *layer, bool *together)
{
    const char *name = name_of(&r->kernel);
    const char *const names[] = {r->first ? name : "apart", r->first ? "apart" : name};
    const struct tune_rivals both = {r, place_rivals, run_rival, r->algorithm->workspace, 2, names};
    char with[80], dy2[32] = "";
    int best;
    if (r->sparse)
        snprintf(dy2, sizeof dy2, ", dy2 sparse %d", r->sparse);
    else if (r->dy2)
        snprintf(dy2, sizeof dy2, ", dy2");
    if (r->l->pass == FORWARD)
        snprintf(with, sizeof with, " with statistics");
    else
        snprintf(with, sizeof with, " with sums, act %s%s%s%s%s", ls_act_name(r->bn.act), dy2, r->kept ? ", kept" : "",
                 r->residual ? ", residual" : "", r->leaves_x ? ", without x" : "");
    LS_TRY(tune_between(r->p, layer, r->l, with, &both, &best));
    *together = (best == 0) == r->first;
    return LS_OK;
}

/* --- the node --------------------------------------------------------------------------------------------------- */

enum ls_status conv_bn_prepare(struct ls_program *p, int node, const struct linear *l,
                               const struct conv_algorithm *algorithm, struct conv_bn *bn)
{
    const struct ls_graph *g = p->core.g;
    int result = g->nodes[node].out[0];
    bool forward = l->pass == FORWARD, together;
    bn->node = LS_NONE;
    if (is_taps(l) ? l->bias && !forward : !linear_is_product(l) || l->bias)
        return LS_OK;
    if ((forward && l->conv.act != LS_ACT_NONE) || result == g->logits)
        return LS_OK;
    int reader = forward ? reader_forward(p, node, result) : LS_NONE;
    if (!forward)
        LS_TRY(reader_backward(p, node, result, &reader));
    if (reader == LS_NONE)
        return LS_OK;
    const struct ls_node *n = &g->nodes[reader];
    struct rivals r = {.p = p, .l = l, .algorithm = algorithm, .bn = bn_of(p, reader, result, result)};
    r.residual = forward ? n->in[BN_RESIDUAL] != LS_NONE : n->out[DRESIDUAL] != LS_NONE;
    r.dy2 = !forward && n->in[DY2] != LS_NONE;
    r.sparse = forward ? 0 : p->execs[reader].sparse;
    r.kept = !forward && r.residual && n->attr.act != LS_ACT_NONE;
    r.leaves_x = !forward && leaves_x(p, reader);
    if (!find_kernel(l, &r.bn, r.residual, &r.kernel))
        return LS_OK;
    r.first = goes_first(&r.kernel);
    bool more = r.leaves_x || r.dy2 || (!forward && r.residual);
    if (r.kernel.is_taps ? more || p->layouts[g->nodes[node].in[1]].layout.block /* CONVBN-4 */
                         : r.leaves_x && !r.first)
        return LS_OK;
    LS_TRY(compare(&r, g->nodes[node].name, &together));
    if (!together)
        return LS_OK;
    *bn = (struct conv_bn){reader, r.kernel};
    p->execs[reader].early = node;
    p->execs[reader].early_from = 1; /* all but y, or dx */
    p->core.places[result].unmade = !forward && r.residual;
    snprintf(p->execs[node].note, sizeof p->execs[node].note, forward ? "own, with statistics" : "own, with sums");
    return LS_OK;
}

void conv_bn_run(const struct ls_program *p, int node, const struct linear *l, const struct conv_bn *bn)
{
    const struct ls_node *n = &p->core.g->nodes[node], *of = &p->core.g->nodes[bn->node];
    const struct ls_cuda_bn b = bn_of(p, bn->node, n->out[0], n->out[0]);
    if (l->pass == FORWARD) {
        run_stats(stream_of(p), &bn->kernel, &b, p->run, data_of(p, n->in[0]), weights_of(p, n->in[1]),
                  l->bias ? floats(p, n->in[2]) : NULL, data_of(p, n->out[0]), floats(p, of->out[BN_MEAN]),
                  floats(p, of->out[BN_RSTD]), floats(p, of->out[BN_STAT]));
        return;
    }
    const struct ls_cuda_bn_grad g = conv_bn_grad(p, bn->node, n->out[0]);
    run_sums(stream_of(p), &bn->kernel, &b, p->run, data_of(p, n->in[0]), weights_of(p, n->in[1]), &g);
}
