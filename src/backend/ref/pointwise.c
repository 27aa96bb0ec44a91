#include "backend/ref/ref.h"
#include "base/random.h"

float ls_ref_act_of(enum ls_act act, double z)
{
    if (act == LS_ACT_NONE)
        return (float)z;
    if (act == LS_ACT_RELU6 && z > 6)
        return 6;
    return z < 0 ? 0 : (float)z;
}

bool ls_ref_act_passes(enum ls_act act, float y)
{
    if (act == LS_ACT_NONE)
        return true;
    return y > 0 && (act == LS_ACT_RELU || y < 6);
}

void ls_ref_act(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = ls_ref_act_of(call->n->attr.act, (double)x.v[i]);
}

void ls_ref_act_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), y = ls_ref_in(call, 1), dx = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&dx); i++)
        dx.v[i] = ls_ref_act_passes(call->n->attr.act, y.v[i]) ? dy.v[i] : 0;
}

/* Forward and backward are the same: the mask is drawn again. */
void ls_ref_dropout(const struct ls_ref_call *call)
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

void ls_ref_add(const struct ls_ref_call *call)
{
    struct ls_ref_view a = ls_ref_in(call, 0), b = ls_ref_in(call, 1), y = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = ls_ref_act_of(call->n->attr.act, (double)a.v[i] + (double)b.v[i]);
}

void ls_ref_sum(const struct ls_ref_call *call)
{
    struct ls_ref_view a = ls_ref_in(call, 0), b = ls_ref_in(call, 1), y = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = a.v[i] + b.v[i];
}
