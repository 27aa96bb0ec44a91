#include "backend/cuda/program.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

/* The only convolution that reads the tensor, besides its gradient; LS_NONE: other nodes read it. */
static int sole_conv(const struct ls_graph *g, int tensor)
{
    int conv = LS_NONE, others = 0;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < LS_MAX_IN; i++) {
            if (g->nodes[n].in[i] != tensor)
                continue;
            if (strcmp(g->nodes[n].op->name, "conv") == 0)
                others += conv == LS_NONE ? 0 : 1, conv = n;
            else if (strcmp(g->nodes[n].op->name, "conv_bwd_weights") != 0)
                others++;
        }
    return others ? LS_NONE : conv;
}

/* A node at position `at` that makes `to` of the images. */
static enum ls_status insert(struct ls_graph *g, int at, int to)
{
    int node, n_tensors = g->n_tensors;
    struct ls_attr attr = {0};
    enum ls_phase phase = g->nodes[at].phase;
    LS_TRY(ls_graph_node(g, &ls_op_reorder, g->tensors[to].name, &attr, &g->input, 1, &node));
    g->n_tensors = n_tensors; /* the output is `to`, not the one infer made */
    struct ls_node fresh = g->nodes[node];
    fresh.out[0] = to;
    fresh.phase = phase;
    memmove(g->nodes + at + 1, g->nodes + at, (size_t)(node - at) * sizeof *g->nodes);
    g->nodes[at] = fresh;
    return LS_OK;
}

static void replace(struct ls_graph *g, int from, int to)
{
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < LS_MAX_IN; i++)
            if (g->nodes[n].in[i] == from)
                g->nodes[n].in[i] = to;
}

/* Output row y sees image rows stride * y - pad and on, and these are, with `border` rows of zeros before the image, rows
 * stride * y + shift and on: of pixel y of the unfolded map, which begins at row stride * y, and the `kernel` - 1 below. */
static enum ls_status unfold(struct ls_program *p)
{
    enum { FEW_CHANNELS = 4, SMALL_WINDOW = 64 };
    struct stem *s = &p->stem;
    struct ls_graph *g = p->core.g;
    int conv = sole_conv(g, g->input);
    if (conv == LS_NONE)
        return LS_OK;
    const struct ls_attr *a = &g->nodes[conv].attr;
    const struct ls_shape *x = &g->tensors[g->input].shape, *y = &g->tensors[g->nodes[conv].out[0]].shape;
    int64_t row = a->kernel_w * x->dim[1];
    if (x->dim[1] > FEW_CHANNELS || a->groups != 1 || a->dilation_h != 1 || a->dilation_w != 1 ||
        a->kernel_h * a->kernel_w == 1 || a->kernel_h < a->stride_h)
        return LS_OK;
    bool whole = a->kernel_h * row <= SMALL_WINDOW;
    s->block = whole ? a->kernel_h : a->stride_h;
    s->border = whole ? a->pad_t : (a->pad_t + s->block - 1) / s->block * s->block;
    s->shift = s->border - a->pad_t;
    s->kernel = (s->shift + a->kernel_h + s->block - 1) / s->block;
    s->row = s->block * padded(row) == padded(s->block * row) ? padded(row) : row;
    struct ls_shape shape = ls_shape_make(4, x->dim[0], s->block * s->row, y->dim[2] + s->kernel - 1, y->dim[3]);
    for (int i = 0; i < 2; i++) {
        s->unfolded[i] = ls_graph_tensor(g, "images (unfolded)", LS_ROLE_ACT, g->act_dtype, shape);
        if (s->unfolded[i] == LS_NONE)
            return LS_FAILED;
    }
    replace(g, g->input, s->unfolded[0]);
    for (int n = conv + 1; n < g->n_nodes; n++)
        if (g->nodes[n].in[1] == s->unfolded[0]) { /* its gradient */
            g->nodes[n].in[1] = s->unfolded[1];
            LS_TRY(insert(g, n, s->unfolded[1]));
            break;
        }
    s->conv = conv + 1; /* after the node that comes first */
    return insert(g, 0, s->unfolded[0]);
}

enum ls_status stem_insert(struct ls_program *p)
{
    struct ls_graph *g = p->core.g;
    p->stem = (struct stem){.images = LS_NONE, .unfolded = {LS_NONE, LS_NONE}, .conv = LS_NONE};
    if (g->input == LS_NONE || g->tensors[g->input].shape.rank != 4 || ls_graph_readers(g, g->input) == 0)
        return LS_OK;
    LS_TRY(unfold(p));
    if (p->stem.conv != LS_NONE)
        return LS_OK;
    p->stem.images = ls_graph_tensor(g, "images", LS_ROLE_ACT, g->act_dtype, g->tensors[g->input].shape);
    if (p->stem.images == LS_NONE)
        return LS_FAILED;
    replace(g, g->input, p->stem.images);
    return insert(g, 0, p->stem.images);
}

struct ls_cuda_unfold stem_unfolding(const struct ls_program *p)
{
    const struct ls_shape *image = &p->core.g->tensors[p->core.g->input].shape;
    const struct ls_attr *a = &p->core.g->nodes[p->stem.conv].attr;
    return (struct ls_cuda_unfold){
        .channels = (int)image->dim[1],
        .height = (int)image->dim[2],
        .width = (int)image->dim[3],
        .columns = (int)a->kernel_w,
        .block = (int)p->stem.block,
        .row = (int)p->stem.row,
        .stride_h = (int)a->stride_h,
        .stride_w = (int)a->stride_w,
        .border = (int)p->stem.border,
        .pad = (int)a->pad_l,
        .from_channels = p->pixel_channels,
    };
}

struct layout stem_weights_layout(const struct ls_program *p, const struct ls_shape *weights)
{
    const struct stem *s = &p->stem;
    int64_t c = padded(s->block * s->row);
    struct layout l = {
        .rank = 4, .stride = {s->kernel * c, 1, c, 0}, .block = s->block, .shift = s->shift, .row = s->row};
    memcpy(l.dim, weights->dim, sizeof l.dim);
    l.count = padded(weights->dim[0]) * l.stride[0];
    return l;
}
