/* Stochastic depth: a factor for each sample that is drawn again for the gradient. */
#include "backend/ref/ref.h"
#include "base/random.h"

static void drop_path(const struct ls_ref_call *call)
{
    const struct ls_run *run = call->run;
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    float p = call->n->attr.training ? call->n->attr.p : 0;
    uint64_t stream = ls_random_stream(LS_RANDOM_DROPOUT, run->step, run->replica, call->n->attr.layer);
    int64_t size = y.c * y.h * y.w;
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = x.v[i] * ls_random_keep(run->seed, stream, i / size, p);
}

const struct ls_ref_op ls_ref_ops_drop_path[] = {
    {"drop_path", drop_path},
    {"drop_path_bwd", drop_path},
    {0},
};
