/* Activations that do not clip, and their slopes, of one vector. */
#ifndef LS_KERNELS_SMOOTH_H
#define LS_KERNELS_SMOOTH_H

#include "backend/onednn/kernels/simd.h"
#include "graph/graph.h"

/* exp(x) with an error of two units in the last place. Results stay finite and above 0; NaN stays NaN. */
INLINE vf vexp(vf x)
{
    x = vmin(vset(88.3f), vmax(vset(-87.3f), x));
    vf n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* x / ln 2, rounded */
    vf r = x - n * 0.693359375f + n * 2.12194440e-4f;     /* ln 2 in two parts */
    vf e = vset(1.0f / 5040);
    e = e * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    vf finite = vpick(n == n, n, vset(0.0f)); /* e is NaN where n is */
    return e * (vf)((vu)(__builtin_convertvector(finite, vi) + 127) << 23);
}

INLINE vf sigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

/* erf by Abramowitz and Stegun 7.1.26, within 1.5e-7. e is exp(-x * x). */
INLINE vf verf(vf x, vf e)
{
    vf size = vpick(x < 0.0f, -x, x), t = 1.0f / (1.0f + 0.3275911f * size);
    vf poly = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    vf y = 1.0f - poly * e;
    return vpick(x < 0.0f, -y, y);
}

/* x / 6 + 1/2 within 0 and 1. */
INLINE vf hard_sigmoid(vf x)
{
    return vmin(vset(1.0f), vmax(vset(0.0f), (x + 3.0f) * (1.0f / 6)));
}

INLINE vf smooth_of(enum ls_act act, vf x)
{
    switch (act) {
    case LS_ACT_SILU:
        return x * sigmoid(x);
    case LS_ACT_HARDSWISH:
        return x * hard_sigmoid(x);
    case LS_ACT_SIGMOID:
        return sigmoid(x);
    case LS_ACT_HARDSIGMOID:
        return hard_sigmoid(x);
    default: /* LS_ACT_GELU */
        return 0.5f * x * (1.0f + verf(x * 0.707106781f, vexp(-0.5f * x * x)));
    }
}

INLINE vf smooth_slope(enum ls_act act, vf x)
{
    vf s, e, zero = vset(0.0f);
    vi inside = ~((x <= -3.0f) | (x >= 3.0f)); /* true for NaN */
    switch (act) {
    case LS_ACT_SILU:
        s = sigmoid(x);
        return s * (1.0f + x * (1.0f - s));
    case LS_ACT_HARDSWISH:
        return vpick(inside, x * (1.0f / 3) + 0.5f, vpick(x >= 3.0f, vset(1.0f), zero));
    case LS_ACT_SIGMOID:
        s = sigmoid(x);
        return s * (1.0f - s);
    case LS_ACT_HARDSIGMOID:
        return vpick(inside, vset(1.0f / 6), zero);
    default: /* LS_ACT_GELU */
        e = vexp(-0.5f * x * x);
        return 0.5f * (1.0f + verf(x * 0.707106781f, e)) + x * e * 0.398942280f;
    }
}

/* Calls body(ACT) with the activation as a constant, so that each has a loop of its own. */
#define FOR_EACH_SMOOTH(act, body) \
    switch (act) {                 \
    case LS_ACT_SILU:              \
        body(LS_ACT_SILU);         \
        break;                     \
    case LS_ACT_HARDSWISH:         \
        body(LS_ACT_HARDSWISH);    \
        break;                     \
    case LS_ACT_SIGMOID:           \
        body(LS_ACT_SIGMOID);      \
        break;                     \
    case LS_ACT_HARDSIGMOID:       \
        body(LS_ACT_HARDSIGMOID);  \
        break;                     \
    default:                       \
        body(LS_ACT_GELU);         \
    }

#endif
