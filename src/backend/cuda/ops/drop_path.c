/* Stochastic depth. The gradient has the same factors, drawn again. */
#include "backend/cuda/program.h"

static enum ls_status drop_path_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    ls_cuda_drop_path(stream_of(p), type_of(p), p->run, n->attr.layer, n->attr.training ? n->attr.p : 0, &x,
                      data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_ops_drop_path[] = {
    {.op = "drop_path", .prepare = place_outputs, .run = drop_path_run},
    {.op = "drop_path_bwd", .prepare = place_outputs, .run = drop_path_run},
    {0},
};
