/* Activation functions. */
#include "backend/ref/ref.h"

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

static void act(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = ls_ref_act_of(call->n->attr.act, (double)x.v[i]);
}

static void act_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), y = ls_ref_in(call, 1), dx = ls_ref_out(call, 0);
    for (int64_t i = 0; i < ls_ref_count(&dx); i++)
        dx.v[i] = ls_ref_act_passes(call->n->attr.act, y.v[i]) ? dy.v[i] : 0;
}

const struct ls_ref_op ls_ref_ops_act[] = {
    {"act", act},
    {"act_bwd", act_bwd},
    {0},
};
