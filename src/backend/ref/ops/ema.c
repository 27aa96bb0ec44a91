/* The average of a value over steps (graph/ops/ema.c). */
#include "backend/ref/ref.h"

static void ema(const struct ls_ref_call *call)
{
    const double share = call->n->attr.hyper.ema;
    struct ls_ref_view value = ls_ref_update_in(call, 0), average = ls_ref_update_in(call, 2);
    for (int64_t i = 0; i < ls_ref_count(&value); i++)
        average.v[i] = (float)(share * average.v[i] + (1 - share) * value.v[i]);
}

const struct ls_ref_op ls_ref_ops_ema[] = {
    {"ema", ema},
    {0},
};
