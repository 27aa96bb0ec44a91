/* Activations that do not clip, factors of channels (squeeze-and-excitation), and stochastic depth. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"
#include "base/crop.h"
#include "base/random.h"

enum { ALONE = 16384 }; /* as in elementwise.c */

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

INLINE vf slope_of(enum ls_act act, vf x)
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

static void smooth(enum ls_act act, const void *x, void *y, int64_t count)
{
    int64_t blocks = (count + B - 1) / B;
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int64_t i = 0; i < blocks; i++) {
#define FORWARD(ACT) store((E *)y + i * B, smooth_of(ACT, load((const E *)x + i * B)))
        FOR_EACH_SMOOTH(act, FORWARD)
    }
}

static void smooth_bwd(enum ls_act act, const void *dy, const void *x, void *dx, int64_t count)
{
    int64_t blocks = (count + B - 1) / B;
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int64_t i = 0; i < blocks; i++) {
        vf d = load((const E *)dy + i * B);
#define BACKWARD(ACT) store((E *)dx + i * B, d * slope_of(ACT, load((const E *)x + i * B)))
        FOR_EACH_SMOOTH(act, BACKWARD)
    }
}

static void clear_padding(const struct ls_map *m, int64_t channels, void *y)
{
    int64_t area = m->h * m->w, real = channels - (m->blocks - 1) * B;
    if (real == B)
        return;
    for (int64_t n = 0; n < m->n; n++) {
        E *block = (E *)y + (n * m->blocks + m->blocks - 1) * area * B;
        for (int64_t i = 0; i < area; i++)
            memset(block + i * B + real, 0, (size_t)(B - real) * sizeof *block);
    }
}

static void mul(const struct ls_map *m, const void *a, const void *s, void *y)
{
    int64_t area = m->h * m->w;
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < m->n * m->blocks; plane++) {
        vf factor = load((const E *)s + plane * B);
        for (int64_t i = plane * area; i < (plane + 1) * area; i++)
            store((E *)y + i * B, load((const E *)a + i * B) * factor);
    }
}

static void mul_bwd(const struct ls_map *m, const void *dy, const void *a, const void *s, void *da, void *ds)
{
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < m->n * m->blocks; plane++) {
        vf factor = load((const E *)s + plane * B);
        vd total = {0};
        for (int64_t row = 0; row < m->h; row++) {
            vf sum = vset(0.0f);
            for (int64_t i = (plane * m->h + row) * m->w, end = i + m->w; i < end; i++) {
                vf d = load((const E *)dy + i * B);
                sum += d * load((const E *)a + i * B);
                store((E *)da + i * B, d * factor);
            }
            total += __builtin_convertvector(sum, vd);
        }
        store((E *)ds + plane * B, __builtin_convertvector(total, vf));
    }
}

static void drop_path(int64_t samples, int64_t size, float p, uint64_t seed, uint64_t stream, const void *x, void *y)
{
#pragma omp parallel for schedule(static) if (samples * size > ALONE)
    for (int64_t n = 0; n < samples; n++) {
        float factor = ls_random_keep(seed, stream, n, p);
        for (int64_t i = n * size; i < (n + 1) * size; i++)
            put((E *)y + i, get((const E *)x + i) * factor);
    }
}

static void mix(const struct ls_map *m, int64_t channels, const struct ls_mix *how, const float *x, void *y)
{
    int64_t area = m->h * m->w;
    float weight = how->weight;
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < m->n * channels; plane++) {
        int64_t n = plane / channels, shift = (ls_mix_partner(n, m->valid) - n) * channels * area;
        for (int64_t h = 0, at = plane * area; h < m->h; h++)
            for (int64_t w = 0; w < m->w; w++, at++) {
                bool inside = h >= how->top && h < how->bottom && w >= how->left && w < how->right;
                float other = x[at + shift];
                put((E *)y + at, how->cuts ? (inside ? other : x[at]) : weight * x[at] + (1.0f - weight) * other);
            }
    }
}

static void views(const struct ls_shape *s, const struct ls_views *v, const float *x, void *y)
{
    int64_t planes = s->dim[0] * s->dim[1], area = s->dim[2] * s->dim[3];
    int32_t height = (int32_t)s->dim[2], width = (int32_t)s->dim[3];
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < planes * ls_views_count(v); plane++) {
        int view = (int)(plane / planes);
        int32_t move = ls_views_offset(v, view);
        bool mirrored = v->mirror && view % 2 == 1;
        const float *from = x + plane % planes * area;
        for (int32_t h = 0; h < height; h++)
            for (int32_t w = 0; w < width; w++) {
                int32_t column = ls_reflect(move + (mirrored ? width - 1 - w : w), width);
                put((E *)y + plane * area + h * width + w, from[ls_reflect(move + h, height) * width + column]);
            }
    }
}

static void views_mean(int64_t count, const struct ls_views *v, const void *x, void *y)
{
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int view = 0; view < ls_views_count(v); view++)
            sum += ls_views_weight(v, view) * get((const E *)x + view * count + i);
        put((E *)y + i, sum);
    }
}

void LS_KERNEL_NAME(fill_smooth)(struct ls_kernels *k)
{
    k->smooth = smooth;
    k->smooth_bwd = smooth_bwd;
    k->clear_padding = clear_padding;
    k->mul = mul;
    k->views = views;
    k->views_mean = views_mean;
    k->mul_bwd = mul_bwd;
    k->drop_path = drop_path;
    k->mix = mix;
}
