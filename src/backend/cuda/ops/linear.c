/* Nodes of convolutions and dense layers: layouts of weights, and the algorithm of each direction.
 *
 * A 1x1 convolution with a stride reads only some pixels, and its gradient by the others is 0. Where only a bn_bwd reads that
 * gradient, next to another one, only the pixels that the convolution read are stored:
 *
 *   SPARSE-1  The gradient is a matrix product over the map of the output, and its tensor has the size of that map.
 *   SPARSE-2  It is the dy2 of the bn_bwd; if it was dy, the two are swapped, as they are only added. So dx, which may lie on
 *             dy, never lies on it.
 *   SPARSE-3  The bn_bwd has a dresidual, and its second pass reads only that. Its first pass, or the product that is computed
 *             together with it (CONVBN-2), takes the other pixels as 0. */
#include "backend/cuda/ops/conv_bn.h"
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/ops/conv_act.h"
#include "backend/cuda/ops/conv_fold.h"
#include "backend/cuda/ops/conv_pool.h"
#include "backend/cuda/ops/conv_stem.h"
#include "backend/cuda/conv/tune.h"
#include "base/log.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

struct node_state {
    struct linear l;
    struct conv_algorithm algorithm;
    struct conv_bn bn; /* that it computes part of */
    struct conv_stem stem;
    int pool, act;     /* conv_pool.c, conv_act.c: the pooling or activation that it computes; LS_NONE: none */
    struct layout own; /* forward: of the weights, where they are stored in another one */
    size_t copy;       /* where in the scratch they are copied to then */
    bool copies;
};

static bool is_dense(const struct ls_program *p, int node)
{
    return strncmp(p->core.g->nodes[node].op->name, "dense", 5) == 0;
}

/* A dense layer over a map of h x w reads it as one pixel of h*w*c channels. */
static struct ls_cuda_map as_pixel(struct ls_cuda_map m)
{
    return (struct ls_cuda_map){m.n, 1, 1, m.h * m.w * m.c};
}

/* A large dense layer, all of it or the rows of a worker. */
static bool is_in_chunks(const struct ls_program *p, int node, int weights)
{
    return is_dense(p, node) && (p->core.g->nodes[node].attr.whole_rows > 0 ||
                                 ls_shape_count(&p->core.g->tensors[weights].shape) >= LS_CUDA_SPLIT_WEIGHTS);
}

/* x, y: tensors on the input's and the output's side. */
void linear_describe(const struct ls_program *p, int node, enum pass pass, int x, int y, struct linear *l)
{
    const struct ls_attr *a = &p->core.g->nodes[node].attr;
    *l = (struct linear){.pass = pass, .tf32 = p->core.options.tf32, .fast = p->core.options.fast};
    l->conv.t = p->core.g->act_dtype;
    l->conv.x = map_of(p, x);
    l->conv.y = map_of(p, y);
    l->conv.groups = 1;
    l->conv.kernel_h = l->conv.kernel_w = l->conv.stride_h = l->conv.stride_w = 1;
    l->conv.dilation_h = l->conv.dilation_w = 1;
    if (is_dense(p, node)) {
        l->conv.x = as_pixel(l->conv.x);
        l->conv.channels = l->conv.x.c;
        l->conv.out = p->core.g->tensors[y].shape.dim[1];
    } else {
        l->conv.channels = p->core.g->tensors[x].shape.dim[1];
        l->conv.out = p->core.g->tensors[y].shape.dim[1];
        l->conv.groups = a->groups;
        l->conv.kernel_h = (int)a->kernel_h, l->conv.kernel_w = (int)a->kernel_w;
        l->conv.stride_h = (int)a->stride_h, l->conv.stride_w = (int)a->stride_w;
        l->conv.dilation_h = (int)a->dilation_h, l->conv.dilation_w = (int)a->dilation_w;
        l->conv.pad_t = (int)a->pad_t, l->conv.pad_l = (int)a->pad_l;
        l->pad_b = (int)a->pad_b, l->pad_r = (int)a->pad_r;
    }
    int w = pass == BWD_WEIGHTS ? p->core.g->nodes[node].out[0] : p->core.g->nodes[node].in[1];
    if (is_in_chunks(p, node, w) && ls_split_range_of(a, &p->core.g->tensors[w].shape, &l->range)) {
        linear_join_chunks(&l->range);
        l->whole = a->whole_rows > 0 ? a->whole_rows : l->conv.out;
        l->sums = pass == BWD_DATA && a->whole_rows > 0;
        l->conv.x.n = l->conv.y.n; /* sums: x has several parts */
    }
    if (is_unfolded(p, x)) {
        l->conv.kernel_h = (int)p->stem.kernel;
        l->conv.kernel_w = l->conv.stride_h = l->conv.stride_w = 1;
        l->conv.pad_t = l->conv.pad_l = l->pad_b = l->pad_r = 0;
    }
}

/* CUDA-2. Weights of a dense layer over a map are (out, c, h, w) in the model's files, too. */
static struct layout weights_layout(const struct ls_program *p, int node, const struct linear *l, int x, int w)
{
    const struct ls_shape *s = &p->core.g->tensors[x].shape;
    const struct ls_cuda_conv *c = &l->conv;
    struct layout layout;
    if (is_dense(p, node))
        layout = s->rank == 4 ? layout_weights(c->out, s->dim[1], s->dim[2], s->dim[3])
                              : layout_weights(c->out, s->dim[1], 1, 1);
    else if (is_unfolded(p, x))
        layout = stem_weights_layout(p, &p->core.g->tensors[w].shape);
    else if (linear_is_depthwise(l))
        layout = layout_depthwise(c->channels, c->kernel_h, c->kernel_w);
    else
        layout = layout_weights(c->out, c->channels / c->groups, c->kernel_h, c->kernel_w);
    return layout;
}

static enum ls_status place_weights(struct ls_program *p, int node, const struct linear *l, int x, int w, int bias)
{
    struct layout layout = weights_layout(p, node, l, x, w);
    LS_TRY(place_as(p, w, &layout, true));
    if (bias == LS_NONE)
        return LS_OK;
    layout = layout_default(&p->core.g->tensors[bias].shape);
    return place_as(p, bias, &layout, true);
}

/* CHUNK-1 */
static enum ls_status choose_in_chunks(struct ls_program *p, int node, const struct linear *l,
                                       struct conv_algorithm *algorithm)
{
    const char *name = p->core.g->nodes[node].name;
    struct linear whole = linear_whole(l);
    struct conv_algorithm chosen;
    LS_TRY(tune_pick(p, name, &whole, &chosen));
    bool fits = conv_algorithm_fit(l, &chosen, algorithm);
    conv_algorithm_release(&chosen);
    return fits ? LS_OK : ls_fail(LS_FAILED, "layer %s: %s has no product for these rows", name, algorithm->name);
}

static enum ls_status choose(struct ls_program *p, int node, const struct linear *l)
{
    struct node_exec *exec = &p->execs[node];
    struct node_state *s = exec->state = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    s->l = *l;
    s->bn.node = s->pool = s->act = LS_NONE;
    if (linear_in_chunks(l)) {
        LS_TRY(choose_in_chunks(p, node, l, &s->algorithm));
        p->core.nodes[node].scratch_bytes = s->algorithm.workspace;
        snprintf(exec->note, sizeof exec->note, "%.80s in chunks", s->algorithm.name);
        return LS_OK;
    }
    s->pool = l->pass == FORWARD ? conv_pool_prepare(p, node, l) : LS_NONE;
    s->act = l->pass == FORWARD ? conv_act_prepare(p, node, l) : LS_NONE;
    if (s->pool != LS_NONE || s->act != LS_NONE)
        return LS_OK;
    LS_TRY(tune_pick(p, p->core.g->nodes[node].name, l, &s->algorithm));
    p->core.nodes[node].scratch_bytes = s->algorithm.workspace;
    snprintf(exec->note, sizeof exec->note, "%s", s->algorithm.name);
    LS_TRY(conv_stem_prepare(p, node, l, &s->algorithm, &s->stem));
    if (s->stem.here)
        conv_algorithm_release(&s->algorithm);
    if (s->stem.here || l->pass == BWD_WEIGHTS)
        return LS_OK;
    LS_TRY(conv_bn_prepare(p, node, l, &s->algorithm, &s->bn));
    return conv_mapped_prepare(p, node, l, &s->bn);
}

void linear_run_mapped(const struct ls_program *p, int node)
{
    const struct node_state *s = p->execs[node].state;
    conv_mapped_run(p, node, &s->l, &s->bn);
}

static void release_state(void *state)
{
    struct node_state *s = state;
    conv_algorithm_release(&s->algorithm);
}

/* The first convolution reads unfolded images in one program, and images or views of them as they are in another. The
 * weights are stored for the program that was made first; the other one takes a copy in its own layout. */
static void want_copy(struct ls_program *p, int node, const struct linear *l)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct layout *stored = &p->layouts[n->in[1]].layout;
    struct node_state *s = p->execs[node].state;
    size_t *scratch = &p->core.nodes[node].scratch_bytes;
    struct layout own = weights_layout(p, node, l, n->in[0], n->in[1]);
    if (is_dense(p, node) || (own.block == stored->block && own.stride[0] == stored->stride[0]))
        return;
    s->own = own;
    s->copy = (*scratch + 255) / 256 * 256;
    s->copies = true;
    s->bn.node = LS_NONE;
    *scratch = s->copy + (size_t)own.count * ls_dtype_size(type_of(p));
}

static enum ls_status forward_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct linear l;
    linear_describe(p, node, FORWARD, n->in[0], n->out[0], &l);
    l.bias = n->in[2] != LS_NONE;
    l.conv.act = n->attr.act;
    LS_TRY(place_weights(p, node, &l, n->in[0], n->in[1], n->in[2]));
    LS_TRY(place_outputs(p, node));
    LS_TRY(choose(p, node, &l));
    want_copy(p, node, &l);
    return LS_OK;
}

static struct ls_cuda_weights described(const struct layout *l)
{
    struct ls_cuda_weights w = {.block = (int)l->block, .shift = (int)l->shift, .row = (int)l->row, .count = l->count};
    for (int i = 0; i < 4; i++) {
        w.dim[i] = (int)l->dim[i];
        w.stride[i] = l->stride[i];
    }
    return w;
}

static char *copy_weights(struct ls_program *p, int node, const struct node_state *s)
{
    int w = p->core.g->nodes[node].in[1];
    char *to = (char *)p->core.nodes[node].scratch + s->copy;
    struct ls_cuda_weights from_layout = described(&p->layouts[w].layout), to_layout = described(&s->own);
    ls_cuda_move_weights(stream_of(p), type_of(p), &from_layout, weights_of(p, w), &to_layout, to);
    return to;
}

static enum ls_status forward_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct node_state *s = p->execs[node].state;
    if (p->execs[node].with != LS_NONE)
        return LS_OK;
    if (s->bn.node != LS_NONE) {
        conv_bn_run(p, node, &s->l, &s->bn);
        return LS_OK;
    }
    char *w = s->copies ? copy_weights(p, node, s) : weights_of(p, n->in[1]);
    if (s->stem.here)
        conv_stem_run(p, node, &s->l, &s->stem, w);
    if (s->pool != LS_NONE)
        conv_pool_run(p, node, &s->l, s->pool, w);
    if (s->act != LS_NONE)
        conv_act_run(p, node, &s->l, s->act, w);
    if (s->stem.here || s->pool != LS_NONE || s->act != LS_NONE)
        return LS_OK;
    struct operands o = {.x = data_of(p, n->in[0]),
                         .w = w,
                         .y = data_of(p, n->out[0]),
                         .bias = data_of(p, n->in[2]),
                         .half_bias = weights_of(p, n->in[2]),
                         .workspace = p->core.nodes[node].scratch};
    return s->algorithm.library->run(p->device, &s->l, &s->algorithm, &o);
}

/* SPARSE-1 to SPARSE-3: the bn_bwd that reads this node's gradient; LS_NONE: it is not to be sparse. */
static int sparse_reader(const struct ls_program *p, int node, const struct linear *l)
{
    const struct ls_cuda_conv *c = &l->conv;
    int gradient = p->core.g->nodes[node].out[0];
    if (c->kernel_h != 1 || c->kernel_w != 1 || c->stride_h < 2 || c->stride_w != c->stride_h || c->groups != 1 ||
        c->pad_t || c->pad_l || l->pad_b || l->pad_r || ls_graph_readers(p->core.g, gradient) != 1)
        return LS_NONE;
    for (int i = node + 1; i < p->core.g->n_nodes; i++) {
        const struct ls_node *n = &p->core.g->nodes[i];
        if (strcmp(n->op->name, "bn_bwd") != 0 || (n->in[DY] != gradient && n->in[DY2] != gradient))
            continue;
        struct ls_cuda_bn b = bn_of(p, i, n->in[B_X], n->in[DY]);
        bool can = n->in[DY2] != LS_NONE && n->out[DRESIDUAL] != LS_NONE && p->execs[i].twin == LS_NONE &&
                   !p->execs[i].sparse && ls_cuda_bn_takes_sparse(&b);
        return can ? i : LS_NONE;
    }
    return LS_NONE;
}

static enum ls_status make_sparse(struct ls_program *p, int gradient, int reader, struct linear *l)
{
    struct ls_node *n = &p->core.g->nodes[reader];
    struct ls_cuda_conv *c = &l->conv;
    struct ls_shape shape = p->core.g->tensors[gradient].shape;
    p->execs[reader].sparse = c->stride_h;
    snprintf(p->execs[reader].note, sizeof p->execs[reader].note, "second gradient sparse");
    if (n->in[DY] == gradient) {
        n->in[DY] = n->in[DY2];
        n->in[DY2] = gradient;
    }
    c->stride_h = c->stride_w = c->dilation_h = c->dilation_w = 1;
    shape.dim[2] = c->x.h = c->y.h;
    shape.dim[3] = c->x.w = c->y.w;
    struct layout layout = layout_default(&shape);
    return place_as(p, gradient, &layout, false);
}

static enum ls_status data_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct linear l;
    linear_describe(p, node, BWD_DATA, n->out[0], n->in[0], &l);
    int reader = sparse_reader(p, node, &l);
    if (reader != LS_NONE)
        LS_TRY(make_sparse(p, n->out[0], reader, &l));
    LS_TRY(place_outputs(p, node));
    if (p->execs[node].with != LS_NONE) /* FOLD-1 */
        return LS_OK;
    return choose(p, node, &l);
}

static enum ls_status data_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct node_state *s = p->execs[node].state;
    if (p->execs[node].with != LS_NONE)
        return LS_OK;
    if (s->bn.node != LS_NONE) {
        conv_bn_run(p, node, &s->l, &s->bn);
        return LS_OK;
    }
    struct operands o = {.x = data_of(p, n->out[0]),
                         .w = weights_of(p, n->in[1]),
                         .y = data_of(p, n->in[0]),
                         .workspace = p->core.nodes[node].scratch};
    return s->algorithm.library->run(p->device, &s->l, &s->algorithm, &o);
}

/* A gradient that takes less time leaves much of the GPU idle (CUDA-5). */
#define SHORT_MS 0.025

static enum ls_status weights_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct linear l;
    linear_describe(p, node, BWD_WEIGHTS, n->in[1], n->in[0], &l);
    LS_TRY(place_outputs(p, node));
    if (p->execs[node].with != LS_NONE) /* FOLD-1, STEM-4 */
        return LS_OK;
    if (n->out[1] != LS_NONE) {
        const struct ls_cuda_map *y = &l.conv.y;
        want_sums(p, ls_cuda_bias_scratch(y->n * y->h * y->w, y->c));
    }
    bool together;
    LS_TRY(conv_pool_weights_prepare(p, node, &l, &together));
    if (together)
        return LS_OK;
    LS_TRY(choose(p, node, &l));
    const struct node_state *s = p->execs[node].state;
    p->execs[node].aside = s->algorithm.ms > 0 && s->algorithm.ms < SHORT_MS;
    return LS_OK;
}

static enum ls_status weights_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct node_state *s = p->execs[node].state;
    if (!s) /* CONVPOOL-2, FOLD-1, STEM-4 */
        return LS_OK;
    const struct ls_cuda_map *y = &s->l.conv.y;
    struct operands o = {.x = data_of(p, n->in[1]),
                         .w = data_of(p, n->out[0]),
                         .y = data_of(p, n->in[0]),
                         .workspace = p->core.nodes[node].scratch};
    if (s->stem.here)
        conv_stem_weights_run(p, node, &s->l);
    else
        LS_TRY(s->algorithm.library->run(p->device, &s->l, &s->algorithm, &o));
    if (is_unfolded(p, n->in[1]) && !s->stem.here) /* the blocks reach beyond the window */
        ls_cuda_cut_window(p->device->compute, o.w, y->c, (int)p->stem.kernel, s->l.conv.x.c,
                           (int)(n->attr.kernel_w * p->core.g->tensors[p->core.g->input].shape.dim[1]),
                           (int)p->stem.row, (int)p->stem.block, (int)p->stem.shift, (int)n->attr.kernel_h);
    if (n->out[1] != LS_NONE)
        (linear_in_chunks(&s->l) ? ls_cuda_bias_bwd_columns : ls_cuda_bias_bwd)(
            p->device->compute, s->l.conv.t, o.y, (float *)(void *)data_of(p, n->out[1]), y->n * y->h * y->w, y->c,
            (float *)(void *)(p->execs[node].join == LS_NONE ? p->sums : p->sums + p->sums_bytes));
    return LS_OK;
}

const struct kernel ls_cuda_ops_linear[] = {
    {.op = "conv", .prepare = forward_prepare, .run = forward_run, .release = release_state},
    {.op = "conv_bwd_data", .prepare = data_prepare, .run = data_run, .release = release_state},
    {.op = "conv_bwd_weights", .prepare = weights_prepare, .run = weights_run, .release = release_state, .joins = true},
    {.op = "dense", .prepare = forward_prepare, .run = forward_run, .release = release_state},
    {.op = "dense_bwd_data", .prepare = data_prepare, .run = data_run, .release = release_state},
    {.op = "dense_bwd_weights",
     .prepare = weights_prepare,
     .run = weights_run,
     .release = release_state,
     .joins = true},
    {0},
};
