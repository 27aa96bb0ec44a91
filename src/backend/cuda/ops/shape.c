/* Maps into rows, and back. */
#include "backend/cuda/program.h"

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

const struct kernel ls_cuda_ops_shape[] = {
    {.op = "flatten", .prepare = place_outputs, .run = flatten_run, .moves = true},
    {.op = "unflatten", .prepare = place_outputs, .run = unflatten_run, .moves = true},
    {0},
};
