/* What travels between the stages of a model: the engine moves it (graph/ops/transfer.c). */
#include "backend/cuda/program.h"

static enum ls_status nothing(struct ls_program *p, int node)
{
    (void)p;
    (void)node;
    return LS_OK;
}

const struct kernel ls_cuda_ops_transfer[] = {
    {.op = "send", .prepare = nothing, .run = nothing},
    {.op = "receive", .prepare = place_outputs, .run = nothing},
    {0},
};
