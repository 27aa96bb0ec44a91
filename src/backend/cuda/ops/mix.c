/* Mixup and cutmix. */
#include "backend/cuda/program.h"

static enum ls_status mix_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_mix(stream_of(p), type_of(p), p->run, &n->attr.mix, &x, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_ops_mix[] = {
    {.op = "mix", .prepare = place_outputs, .run = mix_run},
    {0},
};
