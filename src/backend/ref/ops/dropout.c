/* Dropout: a mask that is drawn again for the gradient. */
#include "backend/ref/ref.h"
#include "base/random.h"

static void dropout(const struct ls_ref_call *call)
{
    const struct ls_run *run = call->run;
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    float p = call->n->attr.training ? call->n->attr.p : 0;
    uint64_t stream = ls_random_stream(LS_RANDOM_DROPOUT, run->step, run->replica, call->n->attr.layer);
    for (int64_t i = 0; i < ls_ref_count(&y); i++) {
        uint32_t words[4];
        ls_philox(run->seed, stream, (uint64_t)i / 4, words);
        y.v[i] = ls_uniform(words[i % 4]) >= p ? x.v[i] * (1 / (1 - p)) : 0;
    }
}

const struct ls_ref_op ls_ref_ops_dropout[] = {
    {"dropout", dropout},
    {"dropout_bwd", dropout},
    {0},
};
