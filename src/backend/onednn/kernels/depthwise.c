/* Gradient of depthwise weights for shapes that oneDNN computes with its reference code (small maps, where the
 * padding is as wide as the map). There is one vector of channels per tap. A row of inputs is converted once, with zeros
 * beside it, and multiplied with the rows of gradients that meet it. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

enum { ROOM = 256 }; /* pixels of a stretch of a row, besides those of a kernel */

/* Pixels [x, x + count) of a row of inputs; zeros outside of it. */
static void read_row(const struct ls_map *in, const E *row, int64_t x, int64_t count, vf *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = x + i >= 0 && x + i < in->w ? load(row + (x + i) * B) : vset(0.0f);
}

/* dw[kx] += the sum over `count` gradients of one row, for `taps` taps. Two accumulators each hide the latency of additions. */
INLINE void add_taps(const struct ls_depthwise *a, int taps, const vf *x, const E *dy, int64_t count, float *dw)
{
    vf even[7], odd[7];
    for (int k = 0; k < taps; k++) {
        even[k] = vloadf(dw + k * B);
        odd[k] = vset(0.0f);
    }
    int64_t i = 0;
    for (; i + 1 < count; i += 2) {
        vf d0 = load(dy + i * B), d1 = load(dy + (i + 1) * B);
        for (int k = 0; k < taps; k++) {
            even[k] += d0 * x[i * a->stride_w + k * a->dilation_w];
            odd[k] += d1 * x[(i + 1) * a->stride_w + k * a->dilation_w];
        }
    }
    for (int k = 0; k < taps && i < count; k++)
        even[k] += load(dy + i * B) * x[i * a->stride_w + k * a->dilation_w];
    for (int k = 0; k < taps; k++)
        vstoref(dw + k * B, even[k] + odd[k]);
}

static void add_row(const struct ls_depthwise *a, const vf *x, const E *dy, int64_t count, float *dw)
{
    if (a->kernel_w == 3)
        add_taps(a, 3, x, dy, count, dw);
    else if (a->kernel_w == 5)
        add_taps(a, 5, x, dy, count, dw);
    else
        for (int64_t k = 0; k < a->kernel_w; k++)
            add_taps(a, 1, x + k * a->dilation_w, dy, count, dw + k * B);
}

/* dw += the sums over one sample, rows of inputs first. */
static void sample_gradient(const struct ls_depthwise *a, int64_t n, int64_t block, float *dw)
{
    const struct ls_map *in = &a->in, *out = &a->out;
    const E *x = (const E *)a->x + (n * in->blocks + block) * in->h * in->w * B;
    const E *dy = (const E *)a->dy + (n * out->blocks + block) * out->h * out->w * B;
    int64_t reach = (a->kernel_w - 1) * a->dilation_w + 1, most = (ROOM - 1) / a->stride_w + 1;
    vf row[ROOM + LS_DEPTHWISE_REACH];
    for (int64_t iy = 0; iy < in->h; iy++)
        for (int64_t ox = 0; ox < out->w; ox += most) {
            int64_t count = out->w - ox < most ? out->w - ox : most;
            read_row(in, x + iy * in->w * B, ox * a->stride_w - a->pad_l, (count - 1) * a->stride_w + reach, row);
            for (int64_t ky = 0; ky < a->kernel_h; ky++) {
                int64_t at = iy + a->pad_t - ky * a->dilation_h, oy = at / a->stride_h;
                if (at >= 0 && at % a->stride_h == 0 && oy < out->h)
                    add_row(a, row, dy + (oy * out->w + ox) * B, count, dw + ky * a->kernel_w * B);
            }
        }
}

static vf sample_sum(const struct ls_map *out, const E *dy)
{
    vf sum = vset(0.0f);
    for (int64_t i = 0; i < out->h * out->w; i++)
        sum += load(dy + i * B);
    return sum;
}

static void depthwise_bwd_weights(const struct ls_depthwise *a)
{
    int64_t taps = a->kernel_h * a->kernel_w, area = a->out.h * a->out.w;
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < a->in.blocks; block++) {
        float *dw = a->dw + block * taps * B;
        vf db = {0};
        memset(dw, 0, (size_t)(taps * B) * sizeof *dw);
        for (int64_t n = 0; n < a->in.n; n++) {
            sample_gradient(a, n, block, dw);
            if (a->db)
                db += sample_sum(&a->out, (const E *)a->dy + (n * a->out.blocks + block) * area * B);
        }
        if (a->db)
            vstoref(a->db + block * B, db);
    }
}

void LS_KERNEL_NAME(fill_depthwise)(struct ls_kernels *k)
{
    k->depthwise_bwd_weights = depthwise_bwd_weights;
}
