/* Each channel of a sample times a factor. */
#include "backend/cuda/program.h"

static enum ls_status mul_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map a = map_of(p, n->in[0]);
    ls_cuda_mul(stream_of(p), type_of(p), &a, data_of(p, n->in[0]), data_of(p, n->in[1]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status mul_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map a = map_of(p, n->in[1]);
    ls_cuda_mul_bwd(stream_of(p), type_of(p), &a, data_of(p, n->in[0]), data_of(p, n->in[1]), data_of(p, n->in[2]),
                    data_of(p, n->out[0]), data_of(p, n->out[1]));
    return LS_OK;
}

const struct kernel ls_cuda_ops_mul[] = {
    {.op = "mul", .prepare = place_outputs, .run = mul_run},
    {.op = "mul_bwd", .prepare = place_outputs, .run = mul_bwd_run},
    {0},
};
