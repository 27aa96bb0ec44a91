/* On Hopper the first convolution needs no unfolded images in memory (stem.c, kernels/conv/stem_wgmma.cu):
 *
 *   STEM-1  The node of the convolution, or of its gradient, reads the images itself. The node that would unfold them for it
 *           does nothing, and the unfolded map has no memory. Both are decided on independently.
 *   STEM-2  Before a bn that trains, the node of the convolution computes mean, rstd and stat, as in CONVBN-1.
 *   STEM-3  The tuner measures it against unfolding, the convolution and the sums, with images that come as bytes. It is the
 *           first candidate.
 *   STEM-4  Where a bn_bwd with a pooling comes before the gradient of the weights, and nothing else reads its dx, the node of
 *           the bn_bwd computes that gradient, too, and the gradient's node does nothing. dx has no memory. Its second pass and
 *           the gradient are one kernel (kernels/conv/stem_mapped.cu), which the tuner measures against the two apart. It is the
 *           first candidate, where STEM-3 decided for the images. */
#include "backend/cuda/ops/conv_stem.h"
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/ops/conv_bn.h"
#include "backend/cuda/ops/conv_fold.h"
#include "backend/cuda/conv/tune.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

static struct ls_cuda_stem shape_of(const struct ls_program *p, const struct linear *l)
{
    return (struct ls_cuda_stem){.t = l->conv.t,
                                 .u = stem_unfolding(p),
                                 .y = l->conv.y,
                                 .c = l->conv.x.c,
                                 .kernel = (int)p->stem.kernel,
                                 .shift = (int)p->stem.shift,
                                 .rows = (int)p->core.g->nodes[p->stem.conv].attr.kernel_h,
                                 .act = l->conv.act};
}

/* STEM-2 */
static int bn_behind(const struct ls_program *p, int node, const struct linear *l)
{
    const struct ls_graph *g = p->core.g;
    int result = g->nodes[node].out[0];
    if (l->pass != FORWARD || l->conv.act != LS_ACT_NONE || result == g->logits)
        return LS_NONE;
    for (int i = node + 1; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i].op->name, "bn") == 0 && g->nodes[i].attr.training && g->nodes[i].in[BN_X] == result)
            return i;
    return LS_NONE;
}

/* --- is it worth it --------------------------------------------------------------------------------------------- */

struct rivals {
    struct ls_program *p;
    const struct linear *l;
    const struct conv_algorithm *algorithm;
    struct ls_cuda_stem stem;
    struct ls_cuda_bn bn;
    bool has_bn, together; /* CONVBN-1 */
    struct ls_cuda_product product;
    /* while measuring */
    struct operands o;
    struct ls_cuda_run *run;
    struct ls_pixels *pixels;
    float *mean, *rstd, *stat, *scratch;
};

static void cut_window(const struct ls_cuda_stem *c, ls_cuda_stream s, float *dw)
{
    ls_cuda_cut_window(s, dw, c->y.c, c->kernel, c->c, c->u.columns * c->u.channels, c->u.row, c->u.block, c->shift,
                       c->rows);
}

static enum ls_status run_rival(void *context, int rival, char *workspace)
{
    struct rivals *r = context;
    const struct ls_cuda_stem *c = &r->stem;
    const struct ls_cuda_bn *bn = r->has_bn ? &r->bn : NULL;
    ls_cuda_stream s = stream_of(r->p);
    bool forward = r->l->pass == FORWARD;
    if (rival == 0 && forward) {
        ls_cuda_stem(s, c, r->run, r->pixels, r->o.w, r->o.bias, r->o.y, bn, r->mean, r->rstd, r->stat);
        return LS_OK;
    }
    if (rival == 0) {
        ls_cuda_stem_bwd_weights(s, c, r->run, r->pixels, r->o.y, r->o.w, r->scratch);
        return LS_OK;
    }
    r->o.workspace = workspace;
    ls_cuda_unfold(s, c->t, r->run, r->pixels, &c->u, &r->l->conv.x, r->o.x);
    if (r->together) {
        ls_cuda_product_stats(s, &r->product, bn, r->run, r->o.x, r->o.w, r->o.y, r->mean, r->rstd, r->stat);
        return LS_OK;
    }
    LS_TRY(r->algorithm->library->run(r->p->device, r->l, r->algorithm, &r->o));
    if (!forward)
        cut_window(c, s, r->o.w);
    if (bn)
        ls_cuda_bn_stats(s, bn, r->run, r->o.y, r->mean, r->rstd, r->stat);
    return LS_OK;
}

/* Every sample has an image of its own, of the size that the convolution reads. */
static enum ls_status put_images(const struct rivals *r, const void *images, struct ls_crop *crops)
{
    const struct ls_cuda_unfold *u = &r->stem.u;
    struct ls_pixels pixels = {.from_channels = u->channels,
                               .from_height = u->height,
                               .from_width = u->width,
                               .channels = u->channels,
                               .height = u->height,
                               .width = u->width};
    const int64_t n = r->stem.y.n;
    struct ls_crop *list = ls_alloc((size_t)n, sizeof *list);
    if (!list)
        return LS_FAILED;
    for (int c = 0; c < u->channels; c++)
        for (int v = 0; v < 256; v++)
            pixels.table[c][v] = (float)(v - 128) / 64;
    for (int64_t i = 0; i < n; i++)
        list[i] = (struct ls_crop){.image = i, .flip = (int32_t)(i % 2)};
    enum ls_status st = cuda_check(cudaStreamSynchronize(r->p->device->compute), "images to measure with");
    if (st == LS_OK)
        st = device_put(r->pixels, &pixels, sizeof pixels);
    if (st == LS_OK)
        st = device_put(crops, list, (size_t)n * sizeof *list);
    ls_free(list);
    const struct ls_cuda_run values = {.valid = n, .stat_weight = 1, .grad_scale = 1, .images = images, .crops = crops};
    if (st == LS_OK)
        ls_cuda_set_run(stream_of(r->p), r->run, &values);
    return st;
}

static enum ls_status place_rivals(void *context, char *memory, size_t *bytes)
{
    struct rivals *r = context;
    const struct ls_cuda_stem *c = &r->stem;
    const size_t n = (size_t)c->y.n, channels = (size_t)c->y.c * sizeof(float);
    size_t used = 0;
    r->o = (struct operands){.x = tune_place(memory, &used, (size_t)map_count(&r->l->conv.x) * 2)};
    r->o.y = tune_place(memory, &used, (size_t)map_count(&c->y) * 2);
    r->o.w = tune_place(memory, &used, (size_t)weights_count(r->l) * sizeof(float));
    if (r->l->bias) {
        r->o.bias = tune_place(memory, &used, channels);
        r->o.half_bias = tune_place(memory, &used, channels);
    }
    r->mean = tune_place(memory, &used, channels);
    r->rstd = tune_place(memory, &used, channels);
    r->stat = tune_place(memory, &used, 2 * channels);
    r->scratch = tune_place(memory, &used, r->l->pass == FORWARD ? 0 : ls_cuda_stem_scratch(c));
    r->bn.scratch = tune_place(memory, &used, r->has_bn ? ls_cuda_bn_scratch(&r->bn) : LS_CUDA_BN_ZEROS);
    r->run = tune_place(memory, &used, sizeof *r->run);
    r->pixels = tune_place(memory, &used, sizeof *r->pixels);
    struct ls_crop *crops = tune_place(memory, &used, n * sizeof *crops);
    void *images = tune_place(memory, &used, n * (size_t)(c->u.channels * c->u.height * c->u.width));
    *bytes = used;
    if (!memory)
        return LS_OK;
    CUDA_TRY(cudaMemsetAsync(r->bn.scratch, 0, LS_CUDA_BN_ZEROS, r->p->device->compute));
    return put_images(r, images, crops);
}

/* --- the node --------------------------------------------------------------------------------------------------- */

/* STEM-3. bn: STEM-2. */
static enum ls_status decide(struct rivals *r, int node, int bn, bool *here)
{
    static const char *const names[] = {"from the images", "unfolded"};
    const struct ls_graph *g = r->p->core.g;
    const struct linear *l = r->l;
    int result = g->nodes[node].out[0], best;
    bool residual = bn != LS_NONE && g->nodes[bn].in[BN_RESIDUAL] != LS_NONE;
    *here = false;
    r->stem = shape_of(r->p, l);
    r->stem.u.from_channels = r->stem.u.channels; /* as the images to measure with */
    r->has_bn = bn != LS_NONE;
    if (r->has_bn)
        r->bn = bn_of(r->p, bn, result, result);
    if (!ls_cuda_stem_can(&r->stem, r->has_bn ? &r->bn : NULL, residual))
        return LS_OK;
    if (r->has_bn && linear_is_product(l) && !l->bias) {
        r->product = conv_bn_product(l, LS_CUDA_PRODUCT_WGMMA);
        r->together = ls_cuda_product_can(&r->product, &r->bn, residual);
    }
    const struct tune_rivals both = {r, place_rivals, run_rival, r->algorithm->workspace, 2, names};
    char with[80];
    snprintf(with, sizeof with, " from images of %d channels%s", r->stem.u.channels,
             r->has_bn ? ", with statistics" : "");
    LS_TRY(tune_between(r->p, g->nodes[node].name, l, with, &both, &best));
    *here = best == 0;
    return LS_OK;
}

enum ls_status conv_stem_prepare(struct ls_program *p, int node, const struct linear *l,
                                 const struct conv_algorithm *algorithm, struct conv_stem *stem)
{
    const struct ls_graph *g = p->core.g;
    const struct ls_node *n = &g->nodes[node];
    struct rivals r = {.p = p, .l = l, .algorithm = algorithm};
    int x = l->pass == BWD_WEIGHTS ? n->in[1] : n->in[0];
    bool here;
    *stem = (struct conv_stem){false, LS_NONE};
    if (l->pass == BWD_DATA || !is_unfolded(p, x))
        return LS_OK;
    int bn = bn_behind(p, node, l);
    LS_TRY(decide(&r, node, bn, &here));
    if (!here)
        return LS_OK;
    *stem = (struct conv_stem){true, bn};
    p->core.places[x].unmade = true;
    struct node_exec *exec = &p->execs[node], *unfold = &p->execs[ls_graph_producer(g, x)];
    snprintf(exec->note, sizeof exec->note, "own, from the images%s", r.has_bn ? ", with statistics" : "");
    snprintf(unfold->note, sizeof unfold->note, "done by the convolution");
    p->core.nodes[node].scratch_bytes = l->pass == FORWARD ? 0 : ls_cuda_stem_scratch(&r.stem);
    if (r.has_bn) {
        p->execs[bn].early = node;
        p->execs[bn].early_from = 1; /* all but y */
    }
    return LS_OK;
}

void conv_stem_run(const struct ls_program *p, int node, const struct linear *l, const struct conv_stem *stem,
                   const void *weights)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_cuda_stem c = shape_of(p, l);
    const float *bias = l->bias ? floats(p, n->in[2]) : NULL;
    if (stem->bn == LS_NONE) {
        ls_cuda_stem(stream_of(p), &c, p->run, p->pixels, weights, bias, data_of(p, n->out[0]), NULL, NULL, NULL, NULL);
        return;
    }
    const struct ls_node *of = &p->core.g->nodes[stem->bn];
    const struct ls_cuda_bn b = bn_of(p, stem->bn, n->out[0], n->out[0]);
    ls_cuda_stem(stream_of(p), &c, p->run, p->pixels, weights, bias, data_of(p, n->out[0]), &b,
                 floats(p, of->out[BN_MEAN]), floats(p, of->out[BN_RSTD]), floats(p, of->out[BN_STAT]));
}

void conv_stem_weights_run(const struct ls_program *p, int node, const struct linear *l)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_cuda_stem c = shape_of(p, l);
    ls_cuda_stem_bwd_weights(stream_of(p), &c, p->run, p->pixels, data_of(p, n->in[0]), floats(p, n->out[0]),
                             (float *)(void *)p->core.nodes[node].scratch);
}

/* --- with the second pass of a bn_bwd ----------------------------------------------------------------------------- */

struct mapped_rivals {
    struct ls_program *p;
    struct rivals images; /* of the gradient of the weights */
    struct ls_cuda_bn bn;
    struct ls_cuda_bn_grad g;
    float *dw, *scratch;
};

static enum ls_status run_mapped_rival(void *context, int rival, char *workspace)
{
    struct mapped_rivals *r = context;
    const struct rivals *i = &r->images;
    ls_cuda_stream s = stream_of(r->p);
    (void)workspace;
    if (rival == 0) {
        ls_cuda_bn_bwd_sums(s, &r->bn, i->run, &r->g);
        ls_cuda_stem_mapped_weights(s, &i->stem, i->run, i->pixels, &r->bn, &r->g, r->dw, r->scratch);
    } else {
        ls_cuda_bn_bwd(s, &r->bn, i->run, &r->g);
        ls_cuda_stem_bwd_weights(s, &i->stem, i->run, i->pixels, r->g.dx, r->dw, r->scratch);
    }
    return LS_OK;
}

static enum ls_status place_mapped_rivals(void *context, char *memory, size_t *bytes)
{
    struct mapped_rivals *r = context;
    const struct ls_cuda_stem *c = &r->images.stem;
    const size_t map = (size_t)map_count(&r->bn.x) * 2, pooled = (size_t)map_count(&r->bn.y), n = (size_t)c->y.n,
                 channels = (size_t)c->y.c * sizeof(float), mapped = ls_cuda_stem_mapped_scratch(c),
                 apart = ls_cuda_stem_scratch(c);
    size_t used = 0;
    float *values = tune_place(memory, &used, channels);
    r->g = (struct ls_cuda_bn_grad){.dy = tune_place(memory, &used, pooled * 2),
                                    .x = tune_place(memory, &used, map),
                                    .index = tune_place(memory, &used, pooled),
                                    .kept = tune_place(memory, &used, pooled * 2),
                                    .gamma = values,
                                    .beta = values,
                                    .mean = values,
                                    .rstd = values,
                                    .dx = tune_place(memory, &used, map),
                                    .dgamma = tune_place(memory, &used, channels),
                                    .dbeta = tune_place(memory, &used, channels)};
    r->dw = tune_place(memory, &used, (size_t)weights_count(r->images.l) * sizeof(float));
    r->scratch = tune_place(memory, &used, mapped > apart ? mapped : apart);
    r->bn.scratch = tune_place(memory, &used, ls_cuda_bn_scratch(&r->bn));
    r->images.run = tune_place(memory, &used, sizeof *r->images.run);
    r->images.pixels = tune_place(memory, &used, sizeof *r->images.pixels);
    struct ls_crop *crops = tune_place(memory, &used, n * sizeof *crops);
    void *images = tune_place(memory, &used, n * (size_t)(c->u.channels * c->u.height * c->u.width));
    *bytes = used;
    if (!memory)
        return LS_OK;
    CUDA_TRY(cudaMemsetAsync(r->bn.scratch, 0, LS_CUDA_BN_ZEROS, r->p->device->compute));
    return put_images(&r->images, images, crops);
}

/* STEM-4: the only reader of dx, where it is a gradient of weights by unfolded images. */
static int gradient_behind(const struct ls_program *p, int node)
{
    const struct ls_graph *g = p->core.g;
    const struct ls_node *n = &g->nodes[node];
    int dx = n->out[DX], forward = ls_graph_producer(g, n->in[B_MEAN]);
    if (!n->attr.pool || dx == LS_NONE || n->out[DRESIDUAL] != LS_NONE || ls_graph_readers(g, dx) != 1 ||
        forward == LS_NONE || p->core.nodes[forward].keep_bytes == 0 || p->core.nodes[forward].keep_until != node)
        return LS_NONE;
    for (int i = node + 1; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i].op->name, "conv_bwd_weights") == 0 && g->nodes[i].in[0] == dx)
            return is_unfolded(p, g->nodes[i].in[1]) && g->nodes[i].out[1] == LS_NONE ? i : LS_NONE;
    return LS_NONE;
}

static enum ls_status mapped_is_worth(struct ls_program *p, int node, int weights, const struct linear *l, bool *mapped)
{
    static const char *const names[] = {"mapped", "apart"};
    const struct ls_node *n = &p->core.g->nodes[node];
    const char *name = p->core.g->nodes[weights].name;
    struct conv_algorithm algorithm;
    struct mapped_rivals r = {
        .p = p, .images = {.p = p, .l = l, .algorithm = &algorithm}, .bn = bn_of(p, node, n->in[B_X], n->in[DY])};
    const struct tune_rivals both = {&r, place_mapped_rivals, run_mapped_rival, 0, 2, names};
    const struct ls_cuda_stem c = shape_of(p, l);
    char with[80];
    bool here;
    int best = 1;
    *mapped = false;
    if (!ls_cuda_stem_mapped_can(&c, &r.bn))
        return LS_OK;
    LS_TRY(tune_pick(p, name, l, &algorithm));
    enum ls_status st = decide(&r.images, weights, LS_NONE, &here);
    snprintf(with, sizeof with, " from images of %d channels, mapped, act %s", c.u.channels, ls_act_name(r.bn.act));
    if (st == LS_OK && here)
        st = tune_between(p, name, l, with, &both, &best);
    conv_algorithm_release(&algorithm);
    *mapped = best == 0;
    return st;
}

enum ls_status conv_stem_mapped_prepare(struct ls_program *p, int node)
{
    const struct ls_graph *g = p->core.g;
    int weights = gradient_behind(p, node);
    struct linear l;
    bool mapped;
    if (weights == LS_NONE)
        return LS_OK;
    linear_describe(p, weights, BWD_WEIGHTS, g->nodes[weights].in[1], g->nodes[weights].in[0], &l);
    LS_TRY(mapped_is_worth(p, node, weights, &l, &mapped));
    if (!mapped)
        return LS_OK;
    struct node_exec *exec = &p->execs[node], *gradient = &p->execs[weights];
    struct linear *kept = exec->state = ls_alloc(1, sizeof *kept);
    if (!kept)
        return LS_FAILED;
    *kept = l;
    const struct ls_cuda_stem c = shape_of(p, &l);
    int images = g->nodes[weights].in[1];
    struct node_exec *unfold = &p->execs[ls_graph_producer(g, images)];
    exec->with = weights;
    exec->gathers = true;
    gradient->with = gradient->early = node;
    p->core.places[g->nodes[node].out[DX]].unmade = p->core.places[images].unmade = true;
    p->core.nodes[node].scratch_bytes = ls_cuda_stem_mapped_scratch(&c);
    snprintf(exec->note, sizeof exec->note, "own, with the gradient of the weights");
    snprintf(gradient->note, sizeof gradient->note, "done already");
    snprintf(unfold->note, sizeof unfold->note, "done by the convolution");
    return LS_OK;
}

void conv_stem_mapped_run(const struct ls_program *p, int node, const struct ls_cuda_bn *b,
                          const struct ls_cuda_bn_grad *g)
{
    const struct node_exec *exec = &p->execs[node];
    const struct ls_cuda_stem c = shape_of(p, exec->state);
    ls_cuda_stem_mapped_weights(stream_of(p), &c, p->run, p->pixels, b, g,
                                floats(p, p->core.g->nodes[exec->with].out[0]),
                                (float *)(void *)p->core.nodes[node].scratch);
}
