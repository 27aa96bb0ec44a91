/* Where a 1x1 convolution makes more channels, as the last one of a ResNet's block, the bn behind it needs no x in
 * memory, and its bn_bwd neither x nor dx (kernels/conv/fold.cu):
 *
 *   FOLD-1  The node of the bn_bwd computes both gradients of the convolution, and their nodes do nothing. What these
 *           write, and what the gradient by data computes of the bn_bwd behind it (FOLD-3), lives from the node of the
 *           bn_bwd on. dx has no memory.
 *   FOLD-2  Only the two gradients read dx. The bn_bwd has a dresidual, which is the dz that they start from, or its dy
 *           is dz: it has no activation and no second gradient.
 *   FOLD-3  The gradient by data ends as the dz of the bn_bwd that reads it alone, where that one has neither a second
 *           gradient nor a dresidual nor a twin. Otherwise it is stored.
 *   FOLD-4  Where a product writes dz (CONVBN-2) and the mask is kept, it does not read x and leaves dgamma to the
 *           fold.
 *   FOLD-5  Of twins (bn.c) at least the first is folded, and then they are no twins backward. If the second is folded,
 *           too, its dbeta is that of the first, whose node writes it.
 *   FOLD-6  The tuner measures both ways, but for what FOLD-4 saves, and takes the faster. The fold is the first
 *           candidate.
 *   FOLD-7  Forward, the node of a bn with a residual, an activation and a folded bn_bwd of FOLD-4 computes the
 *           convolution, too, and the convolution's node does nothing. Its result, x, has no memory. What the bn keeps
 *           is the mask, and behind it the products of the convolution's input, which the bn_bwd reads. */
#include "backend/cuda/ops/conv_fold.h"
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/ops/conv_bn.h"
#include "backend/cuda/conv/tune.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

/* The state of a bn_bwd that was decided on. */
struct state {
    int data, weights; /* the nodes of both gradients */
    int reader;        /* FOLD-3; LS_NONE: the gradient by data is stored */
    int second;        /* FOLD-5: the second of the twins, where it is folded; LS_NONE: none */
    bool has_gram;     /* FOLD-7 */
};

/* Of a folded bn. */
struct forward_state {
    int conv, back; /* nodes */
};

/* --- which ------------------------------------------------------------------------------------------------------ */

static int reader_of(const struct ls_program *p, int node, int tensor, const char *op)
{
    for (int i = node + 1; i < p->core.g->n_nodes; i++)
        if (strcmp(p->core.g->nodes[i].op->name, op) == 0 && p->core.g->nodes[i].in[0] == tensor)
            return i;
    return LS_NONE;
}

/* FOLD-3 */
static int sums_reader(const struct ls_program *p, int data)
{
    const struct ls_graph *g = p->core.g;
    int i = reader_of(p, data, g->nodes[data].out[0], "bn_bwd");
    if (i == LS_NONE || ls_graph_readers(g, g->nodes[data].out[0]) != 1)
        return LS_NONE;
    const struct ls_node *n = &g->nodes[i];
    bool plain = !n->attr.pool && ls_act_clips(n->attr.act) && n->in[DY2] == LS_NONE && n->out[DRESIDUAL] == LS_NONE &&
                 p->execs[i].twin == LS_NONE;
    return plain ? i : LS_NONE;
}

/* The fold's shapes. */
static struct ls_cuda_fold shape_of(const struct ls_program *p, int node, const struct state *s)
{
    const struct ls_cuda_map x = map_of(p, p->core.g->nodes[node].in[B_X]),
                             a = map_of(p, p->core.g->nodes[s->weights].in[1]);
    return (struct ls_cuda_fold){.rows = x.n * x.h * x.w, .area = x.h * x.w, .k = x.c, .n = a.c};
}

/* FOLD-2 */
static bool find(const struct ls_program *p, int node, struct state *s)
{
    const struct ls_graph *g = p->core.g;
    const struct ls_node *n = &g->nodes[node];
    int dx = n->out[DX], x = n->in[B_X], from = ls_graph_producer(g, x);
    bool has_dz = n->out[DRESIDUAL] != LS_NONE || (n->attr.act == LS_ACT_NONE && n->in[DY2] == LS_NONE);
    if (strcmp(n->op->name, "bn_bwd") != 0 || n->attr.pool || !ls_act_clips(n->attr.act) || !has_dz || dx == LS_NONE ||
        ls_graph_readers(g, dx) != 2 || from == LS_NONE || strcmp(g->nodes[from].op->name, "conv") != 0)
        return false;
    *s = (struct state){reader_of(p, node, dx, "conv_bwd_data"), reader_of(p, node, dx, "conv_bwd_weights"), LS_NONE,
                        LS_NONE, false};
    if (s->data == LS_NONE || s->weights == LS_NONE || g->nodes[s->weights].out[1] != LS_NONE)
        return false;
    struct linear l;
    int a = g->nodes[from].in[0];
    linear_describe(p, from, FORWARD, a, x, &l);
    if (!linear_is_product(&l) || g->nodes[from].in[2] != LS_NONE || g->nodes[from].attr.act != LS_ACT_NONE ||
        g->nodes[s->weights].in[1] != a || g->nodes[s->data].in[1] != g->nodes[from].in[1] || is_unfolded(p, a))
        return false;
    s->reader = sums_reader(p, s->data);
    const struct ls_cuda_fold f = shape_of(p, node, s);
    const struct ls_cuda_bn b = bn_of(p, node, x, x);
    return f.k > f.n && ls_cuda_fold_can(&f, &b);
}

/* --- is it worth it --------------------------------------------------------------------------------------------- */

struct rivals {
    struct ls_program *p;
    struct linear data, weights;
    struct conv_algorithm by_data, by_weights;
    struct ls_cuda_product product;
    struct ls_cuda_bn from, bn;
    bool sums, mapped, together;
    /* while measuring */
    struct ls_cuda_run *run;
    struct ls_cuda_fold f;
    struct ls_cuda_bn_grad back, g; /* of the bn_bwd before and behind the product */
    void *da;
};

static enum ls_status run_rival(void *context, int rival, char *workspace)
{
    struct rivals *r = context;
    ls_cuda_stream s = stream_of(r->p);
    if (rival == 0) {
        ls_cuda_fold_sums(s, &r->f, r->run);
        ls_cuda_fold(s, &r->f, r->run);
        ls_cuda_fold_product(s, &r->f, &r->bn, r->run, r->sums ? &r->g : NULL, r->da);
        return LS_OK;
    }
    struct operands o = {.x = (void *)r->f.a, .w = r->f.dw, .y = r->back.dx, .workspace = workspace};
    if (r->mapped) {
        ls_cuda_mapped_sums(s, &r->product, &r->back, &r->bn, r->run, r->f.half, &r->g);
        return r->by_weights.library->run(r->p->device, &r->weights, &r->by_weights, &o);
    }
    ls_cuda_bn_bwd_rest(s, &r->from, r->run, &r->back);
    LS_TRY(r->by_weights.library->run(r->p->device, &r->weights, &r->by_weights, &o));
    if (r->together) {
        ls_cuda_product_sums(s, &r->product, &r->bn, r->run, r->back.dx, r->f.half, &r->g);
        return LS_OK;
    }
    o.x = r->da;
    o.w = (void *)r->f.half;
    LS_TRY(r->by_data.library->run(r->p->device, &r->data, &r->by_data, &o));
    r->g.dy = r->da;
    if (r->sums)
        ls_cuda_bn_bwd_sums(s, &r->bn, r->run, &r->g);
    return LS_OK;
}

static enum ls_status place_rivals(void *context, char *memory, size_t *bytes)
{
    struct rivals *r = context;
    struct ls_cuda_fold *f = &r->f;
    size_t used = 0, wide = (size_t)(f->rows * f->k) * 2, narrow = (size_t)(f->rows * f->n) * 2,
           c = (size_t)f->k * sizeof(float), w = (size_t)(f->k * f->n);
    void *x = tune_place(memory, &used, wide), *x2 = tune_place(memory, &used, narrow);
    float *values = tune_place(memory, &used, c), *others = tune_place(memory, &used, c);
    f->dz = tune_place(memory, &used, wide);
    f->a = tune_place(memory, &used, narrow);
    f->w = tune_place(memory, &used, w * sizeof(float));
    f->half = tune_place(memory, &used, w * 2);
    f->gamma = f->mean = f->rstd = f->dbeta = values;
    f->dw = tune_place(memory, &used, w * sizeof(float));
    f->dgamma = tune_place(memory, &used, c);
    f->gram = tune_place(memory, &used, ls_cuda_fold_gram(f));
    f->scratch = tune_place(memory, &used, ls_cuda_fold_scratch(f));
    r->run = tune_place(memory, &used, sizeof *r->run);
    r->da = tune_place(memory, &used, narrow);
    r->bn.scratch = r->from.scratch = tune_place(memory, &used, ls_cuda_bn_scratch(&r->from));
    r->back = (struct ls_cuda_bn_grad){.dy = f->dz,
                                       .x = x,
                                       .gamma = values,
                                       .beta = values,
                                       .mean = values,
                                       .rstd = values,
                                       .dx = tune_place(memory, &used, wide),
                                       .dgamma = values,
                                       .dbeta = values};
    r->g = r->back;
    r->g.x = x2;
    r->g.dresidual = r->da;
    r->g.dgamma = others;
    r->g.dbeta = tune_place(memory, &used, c);
    *bytes = used;
    return memory ? tune_begin_run(r->p, r->bn.scratch, r->from.x.n, r->run) : LS_OK;
}

static enum ls_status compare(struct rivals *r, const char *layer, bool *folded)
{
    static const char *const names[] = {"folded", "apart"};
    const size_t workspace =
        r->by_data.workspace > r->by_weights.workspace ? r->by_data.workspace : r->by_weights.workspace;
    const struct tune_rivals both = {r, place_rivals, run_rival, workspace, 2, names};
    char with[80];
    int best;
    if (r->sums)
        snprintf(with, sizeof with, " folded, then sums, act %s", ls_act_name(r->bn.act));
    else
        snprintf(with, sizeof with, " folded");
    LS_TRY(tune_between(r->p, layer, &r->weights, with, &both, &best));
    *folded = best == 0;
    return LS_OK;
}

static enum ls_status is_worth(struct ls_program *p, int node, const struct state *s, bool *folded)
{
    const struct ls_graph *g = p->core.g;
    int x = g->nodes[node].in[B_X], a = g->nodes[s->weights].in[1];
    struct rivals r = {.p = p, .f = shape_of(p, node, s), .from = bn_of(p, node, x, x), .sums = s->reader != LS_NONE};
    enum ls_status st;
    linear_describe(p, s->data, BWD_DATA, a, x, &r.data);
    linear_describe(p, s->weights, BWD_WEIGHTS, a, x, &r.weights);
    r.product = conv_bn_product(&r.data, LS_CUDA_PRODUCT_WGMMA);
    r.bn = bn_of(p, r.sums ? s->reader : node, a, a);
    r.mapped = r.sums && ls_cuda_mapped_can(&r.product, &r.from, &r.bn);
    r.together = r.sums && ls_cuda_product_can(&r.product, &r.bn, false);
    st = tune_pick(p, g->nodes[s->weights].name, &r.weights, &r.by_weights);
    if (st == LS_OK)
        st = tune_pick(p, g->nodes[s->data].name, &r.data, &r.by_data);
    if (st == LS_OK)
        st = compare(&r, g->nodes[s->weights].name, folded);
    conv_algorithm_release(&r.by_weights);
    conv_algorithm_release(&r.by_data);
    return st;
}

/* --- the node --------------------------------------------------------------------------------------------------- */

/* Where the products of the convolution's input lie behind a scratch or a mask. */
static size_t gram_place(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void fold(struct ls_program *p, int node, const struct state *s)
{
    const int parts[] = {s->data, s->weights};
    const struct ls_cuda_fold f = shape_of(p, node, s);
    struct node_exec *exec = &p->execs[node];
    exec->folded = true;
    exec->with = s->data;
    for (int i = 0; i < 2; i++) {
        p->execs[parts[i]].with = p->execs[parts[i]].early = node;
        snprintf(p->execs[parts[i]].note, sizeof exec->note, "done already");
    }
    if (s->reader != LS_NONE) {
        p->execs[s->reader].early = s->data;
        p->execs[s->reader].early_from = 1; /* all but dx */
    }
    p->core.places[p->core.g->nodes[node].out[DX]].unmade = true;
    p->core.nodes[node].scratch_bytes = gram_place(ls_cuda_fold_scratch(&f)) + ls_cuda_fold_gram(&f);
    snprintf(exec->note, sizeof exec->note, "own, folded into the convolution");
}

/* FOLD-5 */
static void part_twins(struct ls_program *p, int first, int second)
{
    p->execs[first].twin = p->execs[second].twin = p->execs[second].early = LS_NONE;
    p->execs[second].note[0] = '\0';
}

enum ls_status conv_fold_prepare(struct ls_program *p, int node)
{
    struct node_exec *exec = &p->execs[node];
    struct state found, other;
    bool folded, both;
    int twin = exec->twin;
    if (exec->state || (twin != LS_NONE && twin < node) || !find(p, node, &found))
        return LS_OK;
    LS_TRY(is_worth(p, node, &found, &folded));
    if (!folded)
        return LS_OK;
    both = twin != LS_NONE && find(p, twin, &other);
    if (both)
        LS_TRY(is_worth(p, twin, &other, &both));
    if (twin != LS_NONE)
        part_twins(p, node, twin);
    found.second = both ? twin : LS_NONE;
    struct state *s = exec->state = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    *s = found;
    fold(p, node, s);
    if (!both)
        return LS_OK;
    s = p->execs[twin].state = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    *s = other;
    fold(p, twin, s);
    p->execs[twin].early = node;
    p->execs[twin].early_from = 1; /* all but dx */
    return LS_OK;
}

/* FOLD-7, of a bn or its bn_bwd. */
static float *gram_kept(const struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    bool back = strcmp(n->op->name, "bn_bwd") == 0;
    int x = back ? n->in[B_X] : n->in[BN_X];
    const struct ls_cuda_bn b = bn_of(p, node, x, x);
    return (float *)(void *)((char *)p->core.nodes[node].keep + gram_place(ls_cuda_bn_kept(&b, true)));
}

void conv_fold_run(const struct ls_program *p, int node)
{
    const struct ls_graph *g = p->core.g;
    const struct state *s = p->execs[node].state;
    const struct ls_node *n = &g->nodes[node], *data = &g->nodes[s->data], *weights = &g->nodes[s->weights];
    struct ls_cuda_fold f = shape_of(p, node, s);
    f.dz = data_of(p, n->out[DRESIDUAL] != LS_NONE ? n->out[DRESIDUAL] : n->in[DY]);
    f.a = data_of(p, weights->in[1]);
    f.w = floats(p, data->in[1]);
    f.half = weights_of(p, data->in[1]);
    f.gamma = floats(p, n->in[B_GAMMA]);
    f.mean = floats(p, n->in[B_MEAN]);
    f.rstd = floats(p, n->in[B_RSTD]);
    f.dbeta = floats(p, n->out[DBETA]);
    f.dgamma = floats(p, n->out[DGAMMA]);
    f.dw = floats(p, weights->out[0]);
    f.dbeta_too = s->second != LS_NONE ? floats(p, g->nodes[s->second].out[DBETA]) : NULL;
    f.scratch = (float *)p->core.nodes[node].scratch;
    if (s->has_gram)
        f.gram = gram_kept(p, node);
    else
        f.gram = (float *)(void *)((char *)f.scratch + gram_place(ls_cuda_fold_scratch(&f)));
    if (!s->has_gram)
        ls_cuda_fold_sums(stream_of(p), &f, p->run);
    ls_cuda_fold(stream_of(p), &f, p->run);
    if (s->reader == LS_NONE) {
        const struct ls_cuda_bn b = bn_of(p, node, weights->in[1], weights->in[1]);
        ls_cuda_fold_product(stream_of(p), &f, &b, p->run, NULL, data_of(p, data->out[0]));
        return;
    }
    const struct ls_cuda_bn b = bn_of(p, s->reader, data->out[0], data->out[0]);
    const struct ls_cuda_bn_grad grad = conv_bn_grad(p, s->reader, data->out[0]);
    ls_cuda_fold_product(stream_of(p), &f, &b, p->run, &grad, NULL);
}

/* --- forward ---------------------------------------------------------------------------------------------------- */

struct forward_rivals {
    struct ls_program *p;
    struct linear l;
    struct conv_algorithm algorithm;
    struct ls_cuda_product product;
    struct ls_cuda_bn bn;
    bool together, twins;
    /* while measuring */
    struct ls_cuda_run *run;
    struct ls_cuda_fold f;
    struct ls_cuda_mapped m;
    float *mean, *rstd, *stat;
    void *x;
};

static enum ls_status run_forward(void *context, int rival, char *workspace)
{
    struct forward_rivals *r = context;
    const struct ls_cuda_bn_twin *a = &r->m.twin[0];
    ls_cuda_stream s = stream_of(r->p);
    if (rival == 0) {
        ls_cuda_fold_sums(s, &r->f, r->run);
        ls_cuda_fold_stats(s, &r->f, r->run, r->bn.eps, r->mean, r->rstd, r->stat);
        ls_cuda_fold_apply(s, &r->f, &r->bn, r->run, &r->m);
        return LS_OK;
    }
    const struct operands o = {.x = (void *)r->f.a, .w = (void *)r->f.half, .y = r->x, .workspace = workspace};
    if (r->together) {
        ls_cuda_product_stats(s, &r->product, &r->bn, r->run, o.x, o.w, o.y, r->mean, r->rstd, r->stat);
    } else {
        LS_TRY(r->algorithm.library->run(r->p->device, &r->l, &r->algorithm, &o));
        ls_cuda_bn_stats(s, &r->bn, r->run, o.y, r->mean, r->rstd, r->stat);
    }
    if (!r->twins)
        ls_cuda_bn_apply(s, &r->bn, o.y, r->m.residual, a->gamma, a->beta, a->mean, a->rstd, r->m.y, NULL, r->m.kept);
    else
        ls_cuda_bn_twin_apply(s, &r->bn, r->m.twin, r->m.y, r->m.kept);
    return LS_OK;
}

static enum ls_status place_forward(void *context, char *memory, size_t *bytes)
{
    struct forward_rivals *r = context;
    struct ls_cuda_fold *f = &r->f;
    size_t used = 0, wide = (size_t)(f->rows * f->k) * 2, c = (size_t)f->k * sizeof(float);
    f->a = tune_place(memory, &used, (size_t)(f->rows * f->n) * 2);
    f->half = tune_place(memory, &used, (size_t)(f->k * f->n) * 2);
    f->gram = tune_place(memory, &used, ls_cuda_fold_gram(f));
    f->scratch = tune_place(memory, &used, ls_cuda_fold_scratch(f));
    r->x = tune_place(memory, &used, wide);
    char *more = tune_place(memory, &used, wide);
    r->mean = tune_place(memory, &used, c);
    r->rstd = tune_place(memory, &used, c);
    r->stat = tune_place(memory, &used, 2 * c);
    float *values = tune_place(memory, &used, c);
    r->m.y = tune_place(memory, &used, wide);
    r->m.kept = tune_place(memory, &used, wide / (2 * LS_CUDA_LANE));
    r->m.twin[0] = (struct ls_cuda_bn_twin){r->x, values, values, values, values};
    r->m.twin[1] = (struct ls_cuda_bn_twin){more, values, values, values, values};
    r->m.residual = r->twins ? NULL : more;
    r->run = tune_place(memory, &used, sizeof *r->run);
    r->bn.scratch = tune_place(memory, &used, ls_cuda_bn_scratch(&r->bn));
    *bytes = used;
    return memory ? tune_begin_run(r->p, r->bn.scratch, r->bn.x.n, r->run) : LS_OK;
}

static enum ls_status forward_is_worth(struct ls_program *p, int node, int conv, const struct ls_cuda_fold *shape,
                                       bool *folded)
{
    static const char *const names[] = {"folded", "apart"};
    const struct ls_node *n = &p->core.g->nodes[node], *c = &p->core.g->nodes[conv];
    struct forward_rivals r = {.p = p, .f = *shape, .bn = bn_of(p, node, n->in[BN_X], n->in[BN_X])};
    char with[80];
    int best = 0;
    linear_describe(p, conv, FORWARD, c->in[0], c->out[0], &r.l);
    r.twins = p->execs[node].twin != LS_NONE;
    r.product = conv_bn_product(&r.l, LS_CUDA_PRODUCT_WGMMA);
    r.together = ls_cuda_product_can(&r.product, &r.bn, true);
    snprintf(with, sizeof with, " folded, act %s%s", ls_act_name(r.bn.act), r.twins ? ", twins" : "");
    enum ls_status st = tune_pick(p, c->name, &r.l, &r.algorithm);
    const struct tune_rivals both = {&r, place_forward, run_forward, r.algorithm.workspace, 2, names};
    if (st == LS_OK)
        st = tune_between(p, c->name, &r.l, with, &both, &best);
    conv_algorithm_release(&r.algorithm);
    *folded = best == 0;
    return st;
}

enum ls_status conv_fold_forward_prepare(struct ls_program *p, int node, int back)
{
    const struct ls_graph *g = p->core.g;
    const struct ls_node *n = &g->nodes[node];
    int x = n->in[BN_X], conv = ls_graph_producer(g, x), twin = p->execs[node].twin;
    bool folded;
    if (!n->attr.training || n->attr.act == LS_ACT_NONE || n->in[BN_RESIDUAL] == LS_NONE || twin > node ||
        conv == LS_NONE || ls_graph_readers(g, x) != 2 || p->core.nodes[node].keep_bytes == 0)
        return LS_OK;
    LS_TRY(conv_fold_prepare(p, back));
    if (!p->execs[back].folded || g->nodes[back].out[DRESIDUAL] == LS_NONE)
        return LS_OK;
    struct state *s = p->execs[back].state;
    const struct ls_cuda_fold f = shape_of(p, back, s);
    LS_TRY(forward_is_worth(p, node, conv, &f, &folded));
    if (!folded)
        return LS_OK;
    struct forward_state *own = p->execs[node].state = ls_alloc(1, sizeof *own);
    if (!own)
        return LS_FAILED;
    *own = (struct forward_state){conv, back};
    s->has_gram = true;
    p->execs[node].folded = true;
    p->execs[node].early = LS_NONE;
    p->execs[conv].with = node;
    p->core.places[x].unmade = true;
    p->core.nodes[node].keep_bytes = gram_place(p->core.nodes[node].keep_bytes) + ls_cuda_fold_gram(&f);
    p->core.nodes[node].scratch_bytes = ls_cuda_fold_scratch(&f);
    snprintf(p->execs[node].note, sizeof p->execs[node].note, "own, with the convolution");
    snprintf(p->execs[conv].note, sizeof p->execs[conv].note, "computed with its bn");
    return LS_OK;
}

void conv_fold_forward_run(const struct ls_program *p, int node)
{
    const struct ls_graph *g = p->core.g;
    const struct forward_state *own = p->execs[node].state;
    const struct ls_node *n = &g->nodes[node], *conv = &g->nodes[own->conv];
    int twin = p->execs[node].twin;
    struct ls_cuda_fold f = shape_of(p, own->back, p->execs[own->back].state);
    f.a = data_of(p, conv->in[0]);
    f.half = weights_of(p, conv->in[1]);
    f.gram = gram_kept(p, node);
    f.scratch = (float *)p->core.nodes[node].scratch;
    const struct ls_cuda_bn b = bn_of(p, node, n->in[BN_X], n->in[BN_X]);
    struct ls_cuda_mapped m = {.twin = {bn_twin_of(p, node)},
                               .residual = twin == LS_NONE ? data_of(p, n->in[BN_RESIDUAL]) : NULL,
                               .y = data_of(p, n->out[BN_Y]),
                               .kept = p->core.nodes[node].keep};
    if (twin != LS_NONE)
        m.twin[1] = bn_twin_of(p, twin);
    ls_cuda_fold_sums(stream_of(p), &f, p->run);
    ls_cuda_fold_stats(stream_of(p), &f, p->run, b.eps, floats(p, n->out[BN_MEAN]), floats(p, n->out[BN_RSTD]),
                       floats(p, n->out[BN_STAT]));
    ls_cuda_fold_apply(stream_of(p), &f, &b, p->run, &m);
}
