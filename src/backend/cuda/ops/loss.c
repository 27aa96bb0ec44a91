/* Losses. */
#include "backend/cuda/program.h"

static enum ls_status softmax_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_softmax_xent(stream_of(p), type_of(p), p->run, x.n, x.c, channels_of(p, n->in[0]), n->attr.smoothing,
                         &n->attr.mix, data_of(p, n->in[0]), floats(p, n->out[0]),
                         (int32_t *)(void *)data_of(p, n->out[1]), floats(p, n->out[2]));
    return LS_OK;
}

static enum ls_status softmax_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    ls_cuda_softmax_xent_bwd(stream_of(p), type_of(p), p->run, p->scale, x.n, x.c, channels_of(p, n->out[0]),
                             n->attr.smoothing, &n->attr.mix, floats(p, n->in[0]), data_of(p, n->out[0]));
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

const struct kernel ls_cuda_ops_loss[] = {
    {.op = "softmax_xent", .prepare = place_outputs, .run = softmax_run},
    {.op = "softmax_xent_bwd", .prepare = place_outputs, .run = softmax_bwd_run},
    {.op = "l2_loss", .prepare = place_outputs, .run = l2_run},
    {.op = "l2_loss_bwd", .prepare = place_outputs, .run = l2_bwd_run},
    {0},
};
