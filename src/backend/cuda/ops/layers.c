/* Everything but the linear layers, batch normalisation and the updates: own kernels, one function an op. */
#include "backend/cuda/program.h"
#include "graph/ops.h"

#include <string.h>

/* --- pooling --------------------------------------------------------------------------------------------------- */

static struct ls_cuda_pool pool_of(const struct ls_program *p, int node, int x, int y)
{
    const struct ls_attr *a = &p->core.g->nodes[node].attr;
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
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->in[0], n->out[0]);
    ls_cuda_maxpool(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]), (uint8_t *)data_of(p, n->out[1]));
    return LS_OK;
}

static enum ls_status maxpool_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->out[0], n->in[0]);
    ls_cuda_maxpool_bwd(stream_of(p), &pool, data_of(p, n->in[0]), (const uint8_t *)data_of(p, n->in[1]),
                        data_of(p, n->in[2]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status avgpool_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->in[0], n->out[0]);
    ls_cuda_avgpool(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status avgpool_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->out[0], n->in[0]);
    ls_cuda_avgpool_bwd(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status adaptive_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->in[0], n->out[0]);
    ls_cuda_adaptive(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status adaptive_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_pool pool = pool_of(p, node, n->out[0], n->in[0]);
    ls_cuda_adaptive_bwd(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

/* --- element by element ----------------------------------------------------------------------------------------- */

static int64_t stored(const struct ls_program *p, int tensor)
{
    return p->layouts[tensor].layout.count;
}

static int64_t channels_of(const struct ls_program *p, int tensor)
{
    return p->core.g->tensors[tensor].shape.dim[1];
}

static enum ls_status act_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    ls_cuda_act(stream_of(p), type_of(p), n->attr.act, data_of(p, n->in[0]), data_of(p, n->out[0]),
                stored(p, n->out[0]));
    return LS_OK;
}

static enum ls_status act_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    ls_cuda_act_bwd(stream_of(p), type_of(p), n->attr.act, data_of(p, n->in[0]), data_of(p, n->in[1]),
                    data_of(p, n->out[0]), stored(p, n->out[0]));
    return LS_OK;
}

static enum ls_status add_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    enum ls_act act = strcmp(n->op->name, "sum") == 0 ? LS_ACT_NONE : n->attr.act;
    ls_cuda_add(stream_of(p), type_of(p), act, data_of(p, n->in[0]), data_of(p, n->in[1]), data_of(p, n->out[0]),
                stored(p, n->out[0]));
    return LS_OK;
}

static enum ls_status dropout_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
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
    const struct ls_node *n = &p->core.g->nodes[node];
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
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map from = map_of(p, n->in[0]), to = map_of(p, n->out[0]);
    ls_cuda_copy_channels(stream_of(p), type_of(p), data_of(p, n->in[0]), from.c, n->attr.offset, data_of(p, n->out[0]),
                          to.c, 0, channels_of(p, n->out[0]), to.n * to.h * to.w, true);
    return LS_OK;
}

static enum ls_status flatten_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_flatten(stream_of(p), type_of(p), &x, channels_of(p, n->in[0]), data_of(p, n->in[0]), data_of(p, n->out[0]),
                    map_of(p, n->out[0]).c);
    return LS_OK;
}

static enum ls_status unflatten_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    ls_cuda_unflatten(stream_of(p), type_of(p), &x, channels_of(p, n->out[0]), data_of(p, n->in[0]),
                      map_of(p, n->in[0]).c, data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status lrn_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_attr *a = &n->attr;
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_lrn(stream_of(p), type_of(p), x.n * x.h * x.w, x.c, channels_of(p, n->in[0]), a->size, a->alpha, a->beta,
                a->k, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status lrn_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
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
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_shape *image = &p->core.g->tensors[p->core.g->input].shape;
    struct ls_cuda_map y = map_of(p, n->out[0]);
    void *to = data_of(p, n->out[0]);
    if (is_unfolded(p, n->out[0])) {
        const struct ls_attr *a = &p->core.g->nodes[p->stem.conv].attr;
        struct ls_cuda_unfold u = {
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
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_softmax_xent(stream_of(p), type_of(p), p->run, x.n, x.c, channels_of(p, n->in[0]), n->attr.smoothing,
                         data_of(p, n->in[0]), floats(p, n->out[0]), (int32_t *)(void *)data_of(p, n->out[1]),
                         floats(p, n->out[2]));
    return LS_OK;
}

static enum ls_status softmax_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    ls_cuda_softmax_xent_bwd(stream_of(p), type_of(p), p->run, p->scale, x.n, x.c, channels_of(p, n->out[0]),
                             n->attr.smoothing, floats(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status l2_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_l2_loss(stream_of(p), type_of(p), p->run, x.n, x.c, channels_of(p, n->in[0]), data_of(p, n->in[0]),
                    floats(p, n->out[0]), (int32_t *)(void *)data_of(p, n->out[1]));
    return LS_OK;
}

static enum ls_status l2_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    ls_cuda_l2_loss_bwd(stream_of(p), type_of(p), p->run, p->scale, x.n, x.c, channels_of(p, n->out[0]),
                        data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_layers[] = {
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
