/* Around large dense layers whose rows are divided among processes: the step moves values there (exec/split). Sums of gradients
 * are f32 until they are complete. */
#include "backend/cuda/program.h"

static enum ls_status nothing(struct ls_program *p, int node)
{
    (void)p;
    (void)node;
    return LS_OK;
}

static enum ls_status in_bwd(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    ls_cuda_convert(stream_of(p), LS_F32, data_of(p, n->in[0]), type_of(p), data_of(p, n->out[0]),
                    stored_count(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_ops_split[] = {
    {.op = "split_in", .prepare = place_outputs, .run = nothing, .moves = true},
    {.op = "split_in_bwd", .prepare = place_outputs, .run = in_bwd, .moves = true},
    {.op = "split_out", .prepare = place_outputs, .run = nothing, .moves = true},
    {.op = "split_out_bwd", .prepare = place_outputs, .run = nothing, .moves = true},
    {0},
};
