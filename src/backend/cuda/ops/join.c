/* What joins tensors, and what takes them apart. */
#include "backend/cuda/program.h"

static enum ls_status add(struct ls_program *p, int node, enum ls_act act)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    ls_cuda_add(stream_of(p), type_of(p), act, data_of(p, n->in[0]), data_of(p, n->in[1]), data_of(p, n->out[0]),
                stored_count(p, n->out[0]));
    return LS_OK;
}

static enum ls_status add_run(struct ls_program *p, int node)
{
    return add(p, node, p->core.g->nodes[node].attr.act);
}

static enum ls_status sum_run(struct ls_program *p, int node)
{
    return add(p, node, LS_ACT_NONE);
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

const struct kernel ls_cuda_ops_join[] = {
    {.op = "add", .prepare = place_outputs, .run = add_run},
    {.op = "sum", .prepare = place_outputs, .run = sum_run},
    {.op = "concat", .prepare = place_outputs, .run = concat_run},
    {.op = "slice", .prepare = place_outputs, .run = slice_run},
    {0},
};
