/* Multiplication by a constant. */
#include "backend/ref/ref.h"

static void scale(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = call->n->attr.factor * x.v[i];
}

const struct ls_ref_op ls_ref_ops_scale[] = {
    {"scale", scale},
    {0},
};
