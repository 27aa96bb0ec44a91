/* Activation functions. */
#include "backend/ref/ref.h"

#include <math.h>

bool ls_ref_act_passes(enum ls_act act, float y)
{
    if (act == LS_ACT_NONE)
        return true;
    return y > 0 && (act == LS_ACT_RELU || y < 6);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The functions that do not clip. NaN stays NaN. */
static double smooth(enum ls_act act, double x)
{
    switch (act) {
    case LS_ACT_SILU:
        return x * sigmoid(x);
    case LS_ACT_HARDSWISH:
        return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6;
    case LS_ACT_SIGMOID:
        return sigmoid(x);
    case LS_ACT_HARDSIGMOID:
        return x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6;
    default: /* LS_ACT_GELU */
        return x * (1 + erf(x / sqrt(2))) / 2;
    }
}

float ls_ref_act_of(enum ls_act act, double z)
{
    if (act == LS_ACT_NONE)
        return (float)z;
    if (!ls_act_clips(act))
        return (float)smooth(act, z);
    if (act == LS_ACT_RELU6 && z > 6)
        return 6;
    return z < 0 ? 0 : (float)z;
}

double ls_ref_act_slope(enum ls_act act, double x)
{
    bool inside = !(x <= -3 || x >= 3);
    double s = sigmoid(x);
    switch (act) {
    case LS_ACT_SILU:
        return s * (1 + x * (1 - s));
    case LS_ACT_HARDSWISH:
        return inside ? x / 3 + 0.5 : x >= 3;
    case LS_ACT_SIGMOID:
        return s * (1 - s);
    case LS_ACT_HARDSIGMOID:
        return inside ? 1.0 / 6 : 0;
    default: /* LS_ACT_GELU */
        return (1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    }
}

static void act(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    enum ls_act kind = call->n->attr.act;
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = ls_ref_act_of(kind, (double)x.v[i]);
}

static void act_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), at = ls_ref_in(call, 1), dx = ls_ref_out(call, 0);
    enum ls_act kind = call->n->attr.act;
    for (int64_t i = 0; i < ls_ref_count(&dx); i++)
        if (ls_act_clips(kind))
            dx.v[i] = ls_ref_act_passes(kind, at.v[i]) ? dy.v[i] : 0;
        else
            dx.v[i] = (float)((double)dy.v[i] * ls_ref_act_slope(kind, (double)at.v[i]));
}

const struct ls_ref_op ls_ref_ops_act[] = {
    {"act", act},
    {"act_bwd", act_bwd},
    {0},
};
