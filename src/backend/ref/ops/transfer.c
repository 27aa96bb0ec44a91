/* Tensors that travel between stages (graph/ops/transfer.c): the engine moves them. */
#include "backend/ref/ref.h"

static void nothing(const struct ls_ref_call *call)
{
    (void)call;
}

const struct ls_ref_op ls_ref_ops_transfer[] = {
    {"send", nothing},
    {"receive", nothing},
    {0},
};
