/* Batch normalisation. */
#include "backend/onednn/ops/op.h"

static enum ls_status prepare_bn(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    LS_TRY(prepare_plain(p, node));
    p->core.nodes[node].scratch_bytes = ls_bn_scratch(tensor_map(p, n->in[0], NULL).blocks);
    return n->attr.pool ? window_axes(p, node, n->in[0], n->out[0]) : LS_OK;
}

static enum ls_status run_bn(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    bool training = n->attr.training;
    struct ls_bn a = {.map = n->attr.pool ? map_with_axes(p, node, n->in[0], run) : tensor_map(p, n->in[0], run),
                      .channels = tensor_shape(p, n->in[0])->dim[1],
                      .act = n->attr.act,
                      .eps = n->attr.eps,
                      .x = IN(0),
                      .residual = IN(5),
                      .gamma = (float *)IN(1),
                      .beta = (float *)IN(2),
                      .mean = (float *)(training ? OUT(1) : IN(3)),
                      .rstd = (float *)(training ? OUT(2) : IN(4)),
                      .stat = (float *)(training ? OUT(3) : NULL),
                      .stat_weight = run->stat_weight,
                      .y = OUT(0),
                      .index = (uint8_t *)OUT(4),
                      .partial = (double *)p->core.nodes[node].scratch};
    (training ? p->k.bn_train : p->k.bn_infer)(&a);
    return LS_OK;
}

static enum ls_status prepare_bn_bwd(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    LS_TRY(prepare_plain(p, node));
    p->core.nodes[node].scratch_bytes = ls_bn_scratch(tensor_map(p, n->in[2], NULL).blocks);
    return n->attr.pool ? window_axes(p, node, n->in[2], n->in[0]) : LS_OK;
}

static enum ls_status run_bn_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_bn_bwd a = {.map = n->attr.pool ? map_with_axes(p, node, n->in[2], run) : tensor_map(p, n->in[2], run),
                          .channels = tensor_shape(p, n->in[2])->dim[1],
                          .act = n->attr.act,
                          .dy = IN(0),
                          .dy2 = IN(1),
                          .x = IN(2),
                          .gamma = (float *)IN(3),
                          .beta = (float *)IN(4),
                          .mean = (float *)IN(5),
                          .rstd = (float *)IN(6),
                          .y = n->attr.act == LS_ACT_NONE ? NULL : IN(7),
                          .index = (uint8_t *)IN(8),
                          .dx = OUT(0),
                          .dgamma = (float *)OUT(1),
                          .dbeta = (float *)OUT(2),
                          .dresidual = OUT(3),
                          .partial = (double *)p->core.nodes[node].scratch};
    p->k.bn_bwd(&a);
    return LS_OK;
}

static enum ls_status run_bn_running(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    int64_t channels = tensor_shape(p, p->core.g->nodes[node].in[1])->dim[0];
    float share = p->core.g->nodes[node].attr.momentum, *stat = (float *)IN(0), *mean = (float *)IN(1),
          *var = (float *)IN(2);
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = (1.0f - share) * mean[c] + share * stat[c];
        var[c] = (1.0f - share) * var[c] + share * stat[channels + c];
    }
    return LS_OK;
}

const struct kernel ls_onednn_ops_bn[] = {
    {"bn", prepare_bn, NULL, run_bn},
    {"bn_bwd", prepare_bn_bwd, NULL, run_bn_bwd},
    {"bn_running", prepare_plain, NULL, run_bn_running},
    {0},
};
