/* Multiplication by a constant. */
#include "backend/cuda/program.h"

static enum ls_status scale_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    ls_cuda_multiply(stream_of(p), type_of(p), n->attr.factor, data_of(p, n->in[0]), data_of(p, n->out[0]),
                     stored_count(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_ops_scale[] = {
    {.op = "scale", .prepare = place_outputs, .run = scale_run},
    {0},
};
