/* Kernels that mix or move channels: local response normalisation, concatenation, slices, and rows for dense layers. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

/* Index of element (n, c, i) in a blocked map. */
INLINE int64_t place(const struct ls_map *m, int64_t blocks, int64_t n, int64_t c, int64_t i)
{
    return ((n * blocks + c / B) * m->h * m->w + i) * B + c % B;
}

/* k + alpha/size * sum of squares around each channel of one pixel. x has `channels` values. */
static void lrn_base(const float *x, int64_t channels, int64_t size, float alpha, float k, float *base)
{
    for (int64_t c = 0; c < channels; c++) {
        int64_t from = c - size / 2 < 0 ? 0 : c - size / 2;
        int64_t to = c + (size - 1) / 2 >= channels ? channels - 1 : c + (size - 1) / 2;
        float sum = 0;
        for (int64_t j = from; j <= to; j++)
            sum += x[j] * x[j];
        base[c] = k + alpha / (float)size * sum;
    }
}

static void lrn(const struct ls_map *m, int64_t channels, int64_t size, float alpha, float beta, float k, const void *x,
                void *y)
{
    int64_t area = m->h * m->w;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < m->n; n++)
        for (int64_t i = 0; i < area; i++) {
            float v[LS_LRN_CHANNELS], base[LS_LRN_CHANNELS];
            for (int64_t c = 0; c < channels; c++)
                v[c] = get((const E *)x + place(m, m->blocks, n, c, i));
            lrn_base(v, channels, size, alpha, k, base);
            for (int64_t c = 0; c < m->blocks * B; c++)
                put((E *)y + place(m, m->blocks, n, c, i), c < channels ? v[c] * powf(base[c], -beta) : 0.0f);
        }
}

/* dx_j = dy_j base_j^-b - 2 b alpha/size x_j * the sum of dy_c x_c base_c^(-b-1) over the channels c whose window
 * contains j. */
static void lrn_bwd(const struct ls_map *m, int64_t channels, int64_t size, float alpha, float beta, float k,
                    const void *dy, const void *x, void *dx)
{
    int64_t area = m->h * m->w;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < m->n; n++)
        for (int64_t i = 0; i < area; i++) {
            float v[LS_LRN_CHANNELS], base[LS_LRN_CHANNELS], d[LS_LRN_CHANNELS], t[LS_LRN_CHANNELS];
            for (int64_t c = 0; c < channels; c++) {
                v[c] = get((const E *)x + place(m, m->blocks, n, c, i));
                d[c] = get((const E *)dy + place(m, m->blocks, n, c, i));
            }
            lrn_base(v, channels, size, alpha, k, base);
            for (int64_t c = 0; c < channels; c++) {
                float power = powf(base[c], -beta);
                t[c] = d[c] * v[c] * power / base[c];
                d[c] *= power;
            }
            for (int64_t c = 0; c < m->blocks * B; c++) {
                float out = 0;
                if (c < channels) {
                    int64_t from = c - (size - 1) / 2 < 0 ? 0 : c - (size - 1) / 2;
                    int64_t to = c + size / 2 >= channels ? channels - 1 : c + size / 2;
                    float sum = 0;
                    for (int64_t j = from; j <= to; j++)
                        sum += t[j];
                    out = d[c] - 2.0f * beta * alpha / (float)size * v[c] * sum;
                }
                put((E *)dx + place(m, m->blocks, n, c, i), out);
            }
        }
}

static void copy_channels(const struct ls_map *m, const void *x, int64_t from, void *y, int64_t y_blocks, int64_t to,
                          int64_t channels)
{
    int64_t area = m->h * m->w;
    if (from % B == 0 && to % B == 0 && channels % B == 0) {
#pragma omp parallel for collapse(2) schedule(static)
        for (int64_t n = 0; n < m->n; n++)
            for (int64_t b = 0; b < channels / B; b++)
                memcpy((E *)y + place(m, y_blocks, n, to + b * B, 0),
                       (const E *)x + place(m, m->blocks, n, from + b * B, 0), (size_t)(area * B) * sizeof(E));
        return;
    }
    int64_t end = to + channels, round = (end + B - 1) / B * B;
    int64_t last = end == y_blocks * B || round < y_blocks * B ? end : round; /* zeros after the last channel */
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < m->n; n++)
        for (int64_t c = to; c < last; c++)
            for (int64_t i = 0; i < area; i++)
                ((E *)y)[place(m, y_blocks, n, c, i)] =
                    c < end ? ((const E *)x)[place(m, m->blocks, n, from + c - to, i)] : (E)0;
}

static void flatten(const struct ls_map *m, int64_t channels, const void *x, void *y)
{
    int64_t area = m->h * m->w;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < m->n; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < area; i++)
                ((E *)y)[(n * channels + c) * area + i] = ((const E *)x)[place(m, m->blocks, n, c, i)];
}

static void unflatten(const struct ls_map *m, int64_t channels, const void *x, void *y)
{
    int64_t area = m->h * m->w;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < m->n; n++)
        for (int64_t c = 0; c < m->blocks * B; c++)
            for (int64_t i = 0; i < area; i++)
                ((E *)y)[place(m, m->blocks, n, c, i)] =
                    c < channels ? ((const E *)x)[(n * channels + c) * area + i] : (E)0;
}

void LS_KERNEL_NAME(fill_channels)(struct ls_kernels *k)
{
    k->lrn = lrn;
    k->lrn_bwd = lrn_bwd;
    k->copy_channels = copy_channels;
    k->flatten = flatten;
    k->unflatten = unflatten;
}
