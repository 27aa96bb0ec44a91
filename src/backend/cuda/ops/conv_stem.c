/* On Hopper the first convolution needs no unfolded images in memory (stem.c, kernels/conv/stem_wgmma.cu):
 *
 *   STEM-1  The node of the convolution, or of its gradient, reads the images itself. The node that would unfold them for it
 *           does nothing, and the unfolded map has no memory. Both are decided on independently.
 *   STEM-2  Before a bn that trains, the node of the convolution computes mean, rstd and stat, as in CONVBN-1.
 *   STEM-3  The tuner measures it against unfolding, the convolution and the sums, with images that come as bytes. It is the
 *           first candidate. */
#include "backend/cuda/ops/conv_stem.h"
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/ops/conv_bn.h"
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
    if (l->pass != FORWARD || l->bias || l->conv.act != LS_ACT_NONE || result == g->logits)
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

enum ls_status conv_stem_prepare(struct ls_program *p, int node, const struct linear *l,
                                 const struct conv_algorithm *algorithm, struct conv_stem *stem)
{
    static const char *const names[] = {"from the images", "unfolded"};
    const struct ls_graph *g = p->core.g;
    const struct ls_node *n = &g->nodes[node];
    int x = l->pass == BWD_WEIGHTS ? n->in[1] : n->in[0], best;
    *stem = (struct conv_stem){false, LS_NONE};
    if (l->pass == BWD_DATA || !is_unfolded(p, x))
        return LS_OK;
    struct rivals r = {.p = p, .l = l, .algorithm = algorithm, .stem = shape_of(p, l)};
    r.stem.u.from_channels = r.stem.u.channels; /* as the images to measure with */
    int bn = bn_behind(p, node, l);
    bool residual = bn != LS_NONE && g->nodes[bn].in[BN_RESIDUAL] != LS_NONE;
    r.has_bn = bn != LS_NONE;
    if (r.has_bn)
        r.bn = bn_of(p, bn, n->out[0], n->out[0]);
    if (!ls_cuda_stem_can(&r.stem, r.has_bn ? &r.bn : NULL, residual))
        return LS_OK;
    if (r.has_bn && linear_is_product(l)) {
        r.product = conv_bn_product(l, LS_CUDA_PRODUCT_WGMMA);
        r.together = ls_cuda_product_can(&r.product, &r.bn, residual);
    }
    const struct tune_rivals both = {&r, place_rivals, run_rival, algorithm->workspace, 2, names};
    char with[80];
    snprintf(with, sizeof with, " from images of %d channels%s", r.stem.u.channels,
             r.has_bn ? ", with statistics" : "");
    LS_TRY(tune_between(p, n->name, l, with, &both, &best));
    if (best != 0)
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
