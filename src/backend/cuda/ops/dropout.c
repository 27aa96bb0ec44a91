/* Dropout. The gradient passes through the same mask, drawn again. */
#include "backend/cuda/program.h"

static enum ls_status dropout_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->out[0]);
    const void *from = data_of(p, n->in[0]);
    void *to = data_of(p, n->out[0]);
    if (n->attr.training)
        ls_cuda_dropout(stream_of(p), type_of(p), p->run, n->attr.layer, n->attr.p, &x, channels_of(p, n->out[0]), from,
                        to);
    else if (to != from)
        CUDA_TRY(cudaMemcpyAsync(to, from, (size_t)stored_count(p, n->out[0]) * ls_dtype_size(type_of(p)),
                                 cudaMemcpyDeviceToDevice, stream_of(p)));
    return LS_OK;
}

const struct kernel ls_cuda_ops_dropout[] = {
    {.op = "dropout", .prepare = place_outputs, .run = dropout_run},
    {.op = "dropout_bwd", .prepare = place_outputs, .run = dropout_run},
    {0},
};
