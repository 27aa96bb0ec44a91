/* Max, average and adaptive average pooling. */
#include "backend/cuda/ops/conv_pool.h"

struct ls_cuda_pool pool_of(const struct ls_program *p, int node, int x, int y)
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
    if (p->execs[node].early != LS_NONE) /* CONVPOOL-1 */
        return LS_OK;
    struct ls_cuda_pool pool = pool_of(p, node, n->in[0], n->out[0]);
    ls_cuda_maxpool(stream_of(p), &pool, data_of(p, n->in[0]), data_of(p, n->out[0]), (uint8_t *)data_of(p, n->out[1]));
    return LS_OK;
}

static enum ls_status maxpool_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    if (p->execs[node].twin != LS_NONE) { /* CONVPOOL-2 */
        conv_pool_weights_run(p, node);
        return LS_OK;
    }
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

const struct kernel ls_cuda_ops_pool[] = {
    {.op = "maxpool", .prepare = place_outputs, .run = maxpool_run},
    {.op = "maxpool_bwd", .prepare = place_outputs, .run = maxpool_bwd_run},
    {.op = "avgpool", .prepare = place_outputs, .run = avgpool_run},
    {.op = "avgpool_bwd", .prepare = place_outputs, .run = avgpool_bwd_run},
    {.op = "adaptive_avgpool", .prepare = place_outputs, .run = adaptive_run},
    {.op = "adaptive_avgpool_bwd", .prepare = place_outputs, .run = adaptive_bwd_run},
    {0},
};
