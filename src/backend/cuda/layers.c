/* Everything but the linear layers and the updates: own kernels, one function an op. */
#include "backend/cuda/program.h"
#include "graph/ops.h"

#include <string.h>

static inline float *floats(const struct ls_program *p, int tensor)
{
    return (float *)(void *)data_of(p, tensor);
}

static enum ls_dtype type_of(const struct ls_program *p)
{
    return p->g->act_dtype;
}

static cudaStream_t stream_of(const struct ls_program *p)
{
    return p->device->compute;
}

/* --- batch normalisation --------------------------------------------------------------------------------------- */

enum { BN_X, BN_GAMMA, BN_BETA, BN_RUNNING_MEAN, BN_RUNNING_VAR, BN_RESIDUAL };
enum { BN_Y, BN_MEAN, BN_RSTD, BN_STAT, BN_INDEX };
enum { DY, DY2, B_X, B_GAMMA, B_BETA, B_MEAN, B_RSTD, B_Y, B_INDEX };
enum { DX, DGAMMA, DBETA, DRESIDUAL };

static struct ls_cuda_bn bn_of(const struct ls_program *p, int node, int x, int y)
{
    const struct ls_attr *a = &p->g->nodes[node].attr;
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

static enum ls_status want_sums(struct ls_program *p, const struct ls_cuda_bn *b)
{
    size_t bytes = ls_cuda_bn_scratch(b);
    p->sums_bytes = bytes > p->sums_bytes ? bytes : p->sums_bytes;
    return LS_OK;
}

/* The node backward of a bn, whose mean (and y, if it asks for y) are this one's; LS_NONE: there is none. */
static int bn_backward(const struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    for (int i = node + 1; n->out[BN_MEAN] != LS_NONE && i < p->g->n_nodes; i++) {
        const struct ls_node *back = &p->g->nodes[i];
        if (strcmp(back->op->name, "bn_bwd") == 0 && back->in[B_MEAN] == n->out[BN_MEAN] &&
            (back->in[B_Y] == LS_NONE || back->in[B_Y] == n->out[BN_Y]))
            return i;
    }
    return LS_NONE;
}

static enum ls_status bn_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    for (int i = BN_GAMMA; i <= BN_RUNNING_VAR; i++)
        LS_TRY(place_default(p, n->in[i]));
    LS_TRY(place_outputs(p, node));
    struct ls_cuda_bn b = bn_of(p, node, n->in[BN_X], n->out[BN_Y]);
    int back = bn_backward(p, node);
    if (back != LS_NONE) {
        p->steps[node].keep_bytes = ls_cuda_bn_kept(&b, n->in[BN_RESIDUAL] != LS_NONE);
        p->steps[node].keep_until = back;
    }
    return want_sums(p, &b);
}

static enum ls_status bn_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_bn b = bn_of(p, node, n->in[BN_X], n->out[BN_Y]);
    const void *x = data_of(p, n->in[BN_X]), *residual = data_of(p, n->in[BN_RESIDUAL]);
    const float *gamma = floats(p, n->in[BN_GAMMA]), *beta = floats(p, n->in[BN_BETA]);
    void *y = data_of(p, n->out[BN_Y]);
    if (!n->attr.training) {
        ls_cuda_bn_inference(stream_of(p), &b, x, residual, gamma, beta, floats(p, n->in[BN_RUNNING_MEAN]),
                             floats(p, n->in[BN_RUNNING_VAR]), y);
        return LS_OK;
    }
    ls_cuda_bn_forward(stream_of(p), &b, p->run, x, residual, gamma, beta, floats(p, n->out[BN_MEAN]),
                       floats(p, n->out[BN_RSTD]), floats(p, n->out[BN_STAT]), y,
                       (uint8_t *)data_of(p, n->out[BN_INDEX]), p->steps[node].keep);
    return LS_OK;
}

static enum ls_status bn_bwd_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    LS_TRY(place_outputs(p, node));
    struct ls_cuda_bn b = bn_of(p, node, n->in[B_X], n->in[DY]);
    return want_sums(p, &b);
}

static enum ls_status bn_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_bn b = bn_of(p, node, n->in[B_X], n->in[DY]);
    struct ls_cuda_bn_grad g = {
        .dy = data_of(p, n->in[DY]),
        .dy2 = data_of(p, n->in[DY2]),
        .x = data_of(p, n->in[B_X]),
        .y = data_of(p, n->in[B_Y]),
        .index = (const uint8_t *)data_of(p, n->in[B_INDEX]),
        .kept = p->steps[node].keep,
        .gamma = floats(p, n->in[B_GAMMA]),
        .beta = floats(p, n->in[B_BETA]),
        .mean = floats(p, n->in[B_MEAN]),
        .rstd = floats(p, n->in[B_RSTD]),
        .dx = data_of(p, n->out[DX]),
        .dresidual = data_of(p, n->out[DRESIDUAL]),
        .dgamma = floats(p, n->out[DGAMMA]),
        .dbeta = floats(p, n->out[DBETA]),
    };
    ls_cuda_bn_bwd(stream_of(p), &b, p->run, &g);
    return LS_OK;
}

/* --- pooling --------------------------------------------------------------------------------------------------- */

static struct ls_cuda_pool pool_of(const struct ls_program *p, int node, int x, int y)
{
    const struct ls_attr *a = &p->g->nodes[node].attr;
    return (struct ls_cuda_pool){
        .t = type_of(p),
        .x = map_of(p, x),
        .y = map_of(p, y),
        .kernel_h = (int)a->kernel_h,
        .kernel_w = (int)a->kernel_w,
        .stride_h = (int)a->stride_h,
        .stride_w = (int)a->stride_w,
        .pad_t = (int)a->pad_t,
        .pad_l = (int)a->pad_l,
        .pad_b = (int)a->pad_b,
        .pad_r = (int)a->pad_r,
        .include_pad = a->include_pad,
        .act = a->act,
    };
}

static enum ls_status maxpool_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->in[0], n->out[0]);
    ls_cuda_maxpool(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]), (uint8_t *)data_of(p, n->out[1]));
    return LS_OK;
}

static enum ls_status maxpool_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->out[0], n->in[0]);
    ls_cuda_maxpool_bwd(stream_of(p), &pool, data_of(p, n->in[0]), (const uint8_t *)data_of(p, n->in[1]),
                        data_of(p, n->in[2]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status avgpool_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->in[0], n->out[0]);
    ls_cuda_avgpool(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status avgpool_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->out[0], n->in[0]);
    ls_cuda_avgpool_bwd(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status adaptive_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->in[0], n->out[0]);
    ls_cuda_adaptive(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status adaptive_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->out[0], n->in[0]);
    ls_cuda_adaptive_bwd(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

/* --- element by element ----------------------------------------------------------------------------------------- */

static int64_t stored(const struct ls_program *p, int tensor)
{
    return p->places[tensor].layout.count;
}

static int64_t channels_of(const struct ls_program *p, int tensor)
{
    return p->g->tensors[tensor].shape.dim[1];
}

static enum ls_status act_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    ls_cuda_act(stream_of(p), type_of(p), n->attr.act, data_of(p, n->in[0]), data_of(p, n->out[0]),
                stored(p, n->out[0]));
    return LS_OK;
}

static enum ls_status act_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    ls_cuda_act_bwd(stream_of(p), type_of(p), n->attr.act, data_of(p, n->in[0]), data_of(p, n->in[1]),
                    data_of(p, n->out[0]), stored(p, n->out[0]));
    return LS_OK;
}

static enum ls_status add_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    enum ls_act act = strcmp(n->op->name, "sum") == 0 ? LS_ACT_NONE : n->attr.act;
    ls_cuda_add(stream_of(p), type_of(p), act, data_of(p, n->in[0]), data_of(p, n->in[1]), data_of(p, n->out[0]),
                stored(p, n->out[0]));
    return LS_OK;
}

static enum ls_status dropout_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    const void *from = data_of(p, n->in[0]);
    void *to = data_of(p, n->out[0]);
    if (n->attr.training)
        ls_cuda_dropout(stream_of(p), type_of(p), p->run, n->attr.layer, n->attr.p, &x, channels_of(p, n->out[0]), from,
                        to);
    else if (to != from)
        CUDA_TRY(cudaMemcpyAsync(to, from, (size_t)stored(p, n->out[0]) * ls_dtype_size(type_of(p)),
                                 cudaMemcpyDeviceToDevice, stream_of(p)));
    return LS_OK;
}

static enum ls_status concat_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map y = map_of(p, n->out[0]);
    int64_t at = 0;
    for (int i = 0; i < LS_MAX_IN && n->in[i] != LS_NONE; i++) {
        int64_t channels = channels_of(p, n->in[i]);
        bool last = i + 1 == LS_MAX_IN || n->in[i + 1] == LS_NONE;
        ls_cuda_copy_channels(stream_of(p), type_of(p), data_of(p, n->in[i]), map_of(p, n->in[i]).c, 0,
                              data_of(p, n->out[0]), y.c, at, channels, y.n * y.h * y.w, last);
        at += channels;
    }
    return LS_OK;
}

static enum ls_status slice_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map from = map_of(p, n->in[0]), to = map_of(p, n->out[0]);
    ls_cuda_copy_channels(stream_of(p), type_of(p), data_of(p, n->in[0]), from.c, n->attr.offset, data_of(p, n->out[0]),
                          to.c, 0, channels_of(p, n->out[0]), to.n * to.h * to.w, true);
    return LS_OK;
}

static enum ls_status flatten_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_flatten(stream_of(p), type_of(p), &x, channels_of(p, n->in[0]), data_of(p, n->in[0]), data_of(p, n->out[0]),
                    map_of(p, n->out[0]).c);
    return LS_OK;
}

static enum ls_status unflatten_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    ls_cuda_unflatten(stream_of(p), type_of(p), &x, channels_of(p, n->out[0]), data_of(p, n->in[0]),
                      map_of(p, n->in[0]).c, data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status lrn_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    const struct ls_attr *a = &n->attr;
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_lrn(stream_of(p), type_of(p), x.n * x.h * x.w, x.c, channels_of(p, n->in[0]), a->size, a->alpha, a->beta,
                a->k, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status lrn_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    const struct ls_attr *a = &n->attr;
    struct ls_cuda_map x = map_of(p, n->in[1]);
    ls_cuda_lrn_bwd(stream_of(p), type_of(p), x.n * x.h * x.w, x.c, channels_of(p, n->in[1]), a->size, a->alpha,
                    a->beta, a->k, data_of(p, n->in[0]), data_of(p, n->in[1]), data_of(p, n->out[0]));
    return LS_OK;
}

/* --- input and losses ------------------------------------------------------------------------------------------- */

/* The nodes of stem.c. */
static enum ls_status image_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    const struct ls_shape *image = &p->g->tensors[p->g->input].shape;
    struct ls_cuda_map y = map_of(p, n->out[0]);
    void *to = data_of(p, n->out[0]);
    if (is_unfolded(p, n->out[0])) {
        const struct ls_attr *a = &p->g->nodes[p->stem.conv].attr;
        struct ls_cuda_unfold u = {
            .channels = (int)image->dim[1],
            .height = (int)image->dim[2],
            .width = (int)image->dim[3],
            .columns = (int)a->kernel_w,
            .block = (int)p->stem.block,
            .stride_h = (int)a->stride_h,
            .stride_w = (int)a->stride_w,
            .border = (int)p->stem.border,
            .pad = (int)a->pad_l,
        };
        ls_cuda_unfold(stream_of(p), type_of(p), p->run, p->pixels, &u, &y, to);
    } else if (p->pixels) {
        ls_cuda_image_picks(stream_of(p), type_of(p), p->run, p->pixels, &y, image->dim[1], to);
    } else {
        ls_cuda_image_planes(stream_of(p), type_of(p), p->run, &y, image->dim[1], to);
    }
    return LS_OK;
}

static enum ls_status softmax_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_softmax_xent(stream_of(p), type_of(p), p->run, x.n, x.c, channels_of(p, n->in[0]), n->attr.smoothing,
                         data_of(p, n->in[0]), floats(p, n->out[0]), (int32_t *)(void *)data_of(p, n->out[1]),
                         data_of(p, n->out[2]));
    return LS_OK;
}

static enum ls_status softmax_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    ls_cuda_softmax_xent_bwd(stream_of(p), type_of(p), p->run, p->scale, x.n, x.c, channels_of(p, n->out[0]),
                             n->attr.smoothing, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status l2_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_l2_loss(stream_of(p), type_of(p), p->run, x.n, x.c, channels_of(p, n->in[0]), data_of(p, n->in[0]),
                    floats(p, n->out[0]), (int32_t *)(void *)data_of(p, n->out[1]));
    return LS_OK;
}

static enum ls_status l2_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    ls_cuda_l2_loss_bwd(stream_of(p), type_of(p), p->run, p->scale, x.n, x.c, channels_of(p, n->out[0]),
                        data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_layers[] = {
    {"bn", bn_prepare, bn_run, NULL},
    {"bn_bwd", bn_bwd_prepare, bn_bwd_run, NULL},
    {"act", place_outputs, act_run, NULL},
    {"act_bwd", place_outputs, act_bwd_run, NULL},
    {"lrn", place_outputs, lrn_run, NULL},
    {"lrn_bwd", place_outputs, lrn_bwd_run, NULL},
    {"maxpool", place_outputs, maxpool_run, NULL},
    {"maxpool_bwd", place_outputs, maxpool_bwd_run, NULL},
    {"avgpool", place_outputs, avgpool_run, NULL},
    {"avgpool_bwd", place_outputs, avgpool_bwd_run, NULL},
    {"adaptive_avgpool", place_outputs, adaptive_run, NULL},
    {"adaptive_avgpool_bwd", place_outputs, adaptive_bwd_run, NULL},
    {"dropout", place_outputs, dropout_run, NULL},
    {"dropout_bwd", place_outputs, dropout_run, NULL},
    {"add", place_outputs, add_run, NULL},
    {"sum", place_outputs, add_run, NULL},
    {"concat", place_outputs, concat_run, NULL},
    {"slice", place_outputs, slice_run, NULL},
    {"flatten", place_outputs, flatten_run, NULL},
    {"unflatten", place_outputs, unflatten_run, NULL},
    {"softmax_xent", place_outputs, softmax_run, NULL},
    {"softmax_xent_bwd", place_outputs, softmax_bwd_run, NULL},
    {"l2_loss", place_outputs, l2_run, NULL},
    {"l2_loss_bwd", place_outputs, l2_bwd_run, NULL},
    {"reorder", place_outputs, image_run, NULL},
    {0},
};
