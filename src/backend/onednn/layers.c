/* Everything that is not a convolution or dense layer: the glue between nodes and the vector kernels. */
#include "backend/onednn/program.h"
#include "base/log.h"
#include "base/random.h"
#include "graph/ops.h"

#include <math.h>

#define IN(i) tensor_data(p, p->core.g->nodes[node].in[i])
#define OUT(i) tensor_data(p, p->core.g->nodes[node].out[i])

/* Outputs, and parameters and state read here first, get their default layouts. */
static enum ls_status prepare_plain(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    for (int i = 0; i < LS_MAX_IN; i++)
        if (n->in[i] != LS_NONE)
            LS_TRY(place_default(p, n->in[i]));
    for (int i = 0; i < LS_MAX_OUT; i++)
        if (p->core.g->nodes[node].out[i] != LS_NONE)
            LS_TRY(place_default(p, p->core.g->nodes[node].out[i]));
    return LS_OK;
}

/* --- batch normalisation ---------------------------------------------------------------------------------------- */

static enum ls_status window_axes(struct ls_program *p, int node, int map, int pooled)
{
    const struct ls_attr *a = &p->core.g->nodes[node].attr;
    const struct ls_shape *in = tensor_shape(p, map), *out = tensor_shape(p, pooled);
    struct node_exec *s = &p->execs[node];
    LS_TRY(
        ls_axis_window(&s->y, in->dim[2], out->dim[2], a->kernel_h, a->stride_h, a->pad_t, a->pad_b, a->include_pad));
    return ls_axis_window(&s->x, in->dim[3], out->dim[3], a->kernel_w, a->stride_w, a->pad_l, a->pad_r, a->include_pad);
}

static struct ls_map map_with_axes(struct ls_program *p, int node, int tensor, const struct ls_run *run)
{
    struct ls_map m = tensor_map(p, tensor, run);
    m.y = &p->execs[node].y;
    m.x = &p->execs[node].x;
    return m;
}

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

/* --- pools ------------------------------------------------------------------------------------------------------ */

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

/* --- elementwise ------------------------------------------------------------------------------------------------ */

static enum ls_status run_act(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    p->k.act(p->core.g->nodes[node].attr.act, IN(0), OUT(0), tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

static enum ls_status run_act_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    p->k.act_bwd(p->core.g->nodes[node].attr.act, IN(0), IN(1), OUT(0),
                 tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

static enum ls_status run_add(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    p->k.add(p->core.g->nodes[node].attr.act, IN(0), IN(1), OUT(0), tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

static enum ls_status run_sum(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    p->k.add(LS_ACT_NONE, IN(0), IN(1), OUT(0), tensor_stored(p, p->core.g->nodes[node].out[0]));
    return LS_OK;
}

static enum ls_status run_dropout(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    uint64_t stream = ls_random_stream(LS_RANDOM_DROPOUT, run->step, run->replica, n->attr.layer);
    p->k.dropout(tensor_shape(p, n->out[0]), p->layouts[n->out[0]].blocked, n->attr.training ? n->attr.p : 0.0f,
                 run->seed, stream, IN(0), OUT(0));
    return LS_OK;
}

/* --- across channels -------------------------------------------------------------------------------------------- */

static enum ls_status prepare_lrn(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    if (tensor_shape(p, n->in[0])->dim[1] > LS_LRN_CHANNELS)
        return ls_fail(LS_USAGE, "layer %s: lrn takes at most %d channels", n->name, LS_LRN_CHANNELS);
    return prepare_plain(p, node);
}

static enum ls_status run_lrn(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_map m = tensor_map(p, n->in[0], run);
    p->k.lrn(&m, tensor_shape(p, n->in[0])->dim[1], n->attr.size, n->attr.alpha, n->attr.beta, n->attr.k, IN(0),
             OUT(0));
    return LS_OK;
}

static enum ls_status run_lrn_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_map m = tensor_map(p, n->in[1], run);
    p->k.lrn_bwd(&m, tensor_shape(p, n->in[1])->dim[1], n->attr.size, n->attr.alpha, n->attr.beta, n->attr.k, IN(0),
                 IN(1), OUT(0));
    return LS_OK;
}

static enum ls_status run_concat(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    int64_t to = 0, blocks = tensor_map(p, n->out[0], run).blocks;
    for (int i = 0; i < LS_MAX_IN && n->in[i] != LS_NONE; i++) {
        struct ls_map m = tensor_map(p, n->in[i], run);
        int64_t channels = tensor_shape(p, n->in[i])->dim[1];
        p->k.copy_channels(&m, IN(i), 0, OUT(0), blocks, to, channels);
        to += channels;
    }
    return LS_OK;
}

static enum ls_status run_slice(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_map m = tensor_map(p, n->in[0], run);
    p->k.copy_channels(&m, IN(0), n->attr.offset, OUT(0), tensor_map(p, n->out[0], run).blocks, 0,
                       tensor_shape(p, n->out[0])->dim[1]);
    return LS_OK;
}

static enum ls_status run_flatten(struct ls_program *p, int node, const struct ls_run *run)
{
    int map = p->core.g->nodes[node].in[0];
    struct ls_map m = tensor_map(p, map, run);
    p->k.flatten(&m, tensor_shape(p, map)->dim[1], IN(0), OUT(0));
    return LS_OK;
}

static enum ls_status run_unflatten(struct ls_program *p, int node, const struct ls_run *run)
{
    int map = p->core.g->nodes[node].out[0];
    struct ls_map m = tensor_map(p, map, run);
    p->k.unflatten(&m, tensor_shape(p, map)->dim[1], IN(0), OUT(0));
    return LS_OK;
}

/* --- losses ----------------------------------------------------------------------------------------------------- */

static struct ls_loss loss_of(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_shape *s = tensor_shape(p, n->in[0]);
    return (struct ls_loss){.n = s->dim[0],
                            .classes = s->dim[1],
                            .scores = IN(0),
                            .label = (int32_t *)IN(1),
                            .smoothing = n->attr.smoothing,
                            .scale = run->grad_scale};
}

static enum ls_status run_softmax(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_loss a = loss_of(p, node, run);
    a.loss = (float *)OUT(0);
    a.rank = (int32_t *)OUT(1);
    a.out = OUT(2);
    p->k.softmax(&a);
    return LS_OK;
}

static enum ls_status run_softmax_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_loss a = loss_of(p, node, run);
    a.out = OUT(0);
    p->k.softmax_bwd(&a);
    return LS_OK;
}

static enum ls_status run_l2(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_loss a = loss_of(p, node, run);
    a.loss = (float *)OUT(0);
    a.rank = (int32_t *)OUT(1);
    p->k.l2(&a);
    return LS_OK;
}

static enum ls_status run_l2_bwd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_loss a = loss_of(p, node, run);
    a.out = OUT(0);
    p->k.l2_bwd(&a);
    return LS_OK;
}

/* --- updates ---------------------------------------------------------------------------------------------------- */

static enum ls_status prepare_update(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    return n->in[2] == LS_NONE ? LS_OK : place_as(p, n->in[2], &p->layouts[n->in[0]].md); /* O2 */
}

static struct ls_sgd sgd_of(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    return (struct ls_sgd){.w = (float *)IN(0),
                           .g = (float *)IN(1),
                           .m = (float *)IN(2),
                           .count = (int64_t)(dnn_md_bytes(&p->layouts[n->in[0]].md) / sizeof(float)),
                           .lr = run->lr,
                           .momentum = n->attr.sgd_momentum,
                           .decay = n->attr.weight_decay,
                           .nesterov = n->attr.nesterov};
}

static enum ls_status run_sgd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_sgd a = sgd_of(p, node, run);
    p->k.sgd(&a);
    return LS_OK;
}

/* m = momentum*m + local*lr*(g + decay*w), w -= m: SGD with lr 1 after scaling, written out here because the
 * velocity holds the learning rate. */
static enum ls_status run_lars(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_sgd a = sgd_of(p, node, run);
    double w = sqrt(p->k.norm2(a.w, a.count)), g = sqrt(p->k.norm2(a.g, a.count));
    double local =
        w > 0 && g > 0 ? (double)p->core.g->nodes[node].attr.trust * w / (g + (double)a.decay * w + 1e-9) : 1.0;
    float rate = (float)local * a.lr;
#pragma omp parallel for schedule(static) if (a.count > 16384)
    for (int64_t i = 0; i < a.count; i++) {
        a.m[i] = a.momentum * a.m[i] + rate * (a.g[i] + a.decay * a.w[i]);
        a.w[i] -= a.m[i];
    }
    return LS_OK;
}

const struct kernel ls_onednn_layers[] = {
    {&ls_op_bn, prepare_bn, NULL, run_bn},
    {&ls_op_bn_bwd, prepare_bn_bwd, NULL, run_bn_bwd},
    {&ls_op_bn_running, prepare_plain, NULL, run_bn_running},
    {&ls_op_act, prepare_plain, NULL, run_act},
    {&ls_op_act_bwd, prepare_plain, NULL, run_act_bwd},
    {&ls_op_lrn, prepare_lrn, NULL, run_lrn},
    {&ls_op_lrn_bwd, prepare_lrn, NULL, run_lrn_bwd},
    {&ls_op_maxpool, prepare_pool, NULL, run_maxpool},
    {&ls_op_maxpool_bwd, prepare_pool_bwd, NULL, run_maxpool_bwd},
    {&ls_op_avgpool, prepare_pool, NULL, run_avgpool},
    {&ls_op_avgpool_bwd, prepare_pool_bwd, NULL, run_avgpool_bwd},
    {&ls_op_adaptive_avgpool, prepare_adaptive, NULL, run_avgpool},
    {&ls_op_adaptive_avgpool_bwd, prepare_adaptive_bwd, NULL, run_avgpool_bwd},
    {&ls_op_dropout, prepare_plain, NULL, run_dropout},
    {&ls_op_dropout_bwd, prepare_plain, NULL, run_dropout},
    {&ls_op_add, prepare_plain, NULL, run_add},
    {&ls_op_sum, prepare_plain, NULL, run_sum},
    {&ls_op_concat, prepare_plain, NULL, run_concat},
    {&ls_op_slice, prepare_plain, NULL, run_slice},
    {&ls_op_flatten, prepare_plain, NULL, run_flatten},
    {&ls_op_unflatten, prepare_plain, NULL, run_unflatten},
    {&ls_op_softmax_xent, prepare_plain, NULL, run_softmax},
    {&ls_op_softmax_xent_bwd, prepare_plain, NULL, run_softmax_bwd},
    {&ls_op_l2_loss, prepare_plain, NULL, run_l2},
    {&ls_op_l2_loss_bwd, prepare_plain, NULL, run_l2_bwd},
    {&ls_op_sgd, prepare_update, NULL, run_sgd},
    {&ls_op_lars, prepare_update, NULL, run_lars},
    {NULL, NULL, NULL, NULL},
};
