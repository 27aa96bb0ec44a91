/* Max, average and adaptive average pooling. */
#include "backend/onednn/ops/op.h"

static enum ls_status prepare_pool(struct ls_program *p, int node)
{
    LS_TRY(prepare_plain(p, node));
    return window_axes(p, node, p->core.g->nodes[node].in[0], p->core.g->nodes[node].out[0]);
}

static enum ls_status prepare_pool_bwd(struct ls_program *p, int node)
{
    LS_TRY(prepare_plain(p, node));
    return window_axes(p, node, p->core.g->nodes[node].out[0], p->core.g->nodes[node].in[0]);
}

static enum ls_status adaptive_axes(struct ls_program *p, int node, int map, int pooled)
{
    const struct ls_shape *in = tensor_shape(p, map), *out = tensor_shape(p, pooled);
    LS_TRY(prepare_plain(p, node));
    LS_TRY(ls_axis_adaptive(&p->execs[node].y, in->dim[2], out->dim[2]));
    return ls_axis_adaptive(&p->execs[node].x, in->dim[3], out->dim[3]);
}

static enum ls_status prepare_adaptive(struct ls_program *p, int node)
{
    return adaptive_axes(p, node, p->core.g->nodes[node].in[0], p->core.g->nodes[node].out[0]);
}

static enum ls_status prepare_adaptive_bwd(struct ls_program *p, int node)
{
    return adaptive_axes(p, node, p->core.g->nodes[node].out[0], p->core.g->nodes[node].in[0]);
}

static enum ls_status run_maxpool(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_map m = map_with_axes(p, node, p->core.g->nodes[node].in[0], run);
    p->k.maxpool(&m, p->core.g->nodes[node].attr.act, IN(0), OUT(0), (uint8_t *)OUT(1));
    return LS_OK;
}

static enum ls_status run_maxpool_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_map m = map_with_axes(p, node, p->core.g->nodes[node].out[0], run);
    p->k.maxpool_bwd(&m, p->core.g->nodes[node].attr.act, IN(0), (uint8_t *)IN(1), IN(2), OUT(0));
    return LS_OK;
}

static enum ls_status run_avgpool(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_map m = map_with_axes(p, node, p->core.g->nodes[node].in[0], run);
    p->k.avgpool(&m, IN(0), OUT(0));
    return LS_OK;
}

static enum ls_status run_avgpool_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_map m = map_with_axes(p, node, p->core.g->nodes[node].out[0], run);
    p->k.avgpool_bwd(&m, IN(0), OUT(0));
    return LS_OK;
}

const struct kernel ls_onednn_ops_pool[] = {
    {"maxpool", prepare_pool, NULL, run_maxpool},
    {"maxpool_bwd", prepare_pool_bwd, NULL, run_maxpool_bwd},
    {"avgpool", prepare_pool, NULL, run_avgpool},
    {"avgpool_bwd", prepare_pool_bwd, NULL, run_avgpool_bwd},
    {"adaptive_avgpool", prepare_adaptive, NULL, run_avgpool},
    {"adaptive_avgpool_bwd", prepare_adaptive_bwd, NULL, run_avgpool_bwd},
    {0},
};
