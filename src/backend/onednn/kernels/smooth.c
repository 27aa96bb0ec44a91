/* Activations that do not clip, factors of channels (squeeze-and-excitation), and stochastic depth. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/smooth.h"
#include "backend/onednn/kernels/table.h"
#include "base/crop.h"
#include "base/random.h"

enum { ALONE = 16384 }; /* as in elementwise.c */

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
#define BACKWARD(ACT) store((E *)dx + i * B, d * smooth_slope(ACT, load((const E *)x + i * B)))
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
