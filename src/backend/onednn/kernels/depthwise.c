/* Gradient of depthwise weights for shapes that oneDNN computes with its reference code (small maps, where the
 * padding is as wide as the map). There is one vector of channels per tap, and one pass over the maps computes all
 * taps. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

/* dw[tap] += sum over the outputs of one sample whose window contains that tap. */
static void sample_gradient(const struct ls_depthwise *a, int64_t n, int64_t block, float *dw, vf *db)
{
    const struct ls_map *in = &a->in, *out = &a->out;
    const E *x = (const E *)a->x + (n * in->blocks + block) * in->h * in->w * B;
    const E *dy = (const E *)a->dy + (n * out->blocks + block) * out->h * out->w * B;
    for (int64_t oy = 0; oy < out->h; oy++)
        for (int64_t ox = 0; ox < out->w; ox++) {
            vf d = load(dy + (oy * out->w + ox) * B);
            *db += d;
            for (int64_t ky = 0; ky < a->kernel_h; ky++) {
                int64_t iy = oy * a->stride_h - a->pad_t + ky * a->dilation_h;
                if (iy < 0 || iy >= in->h)
                    continue;
                for (int64_t kx = 0; kx < a->kernel_w; kx++) {
                    int64_t ix = ox * a->stride_w - a->pad_l + kx * a->dilation_w;
                    if (ix < 0 || ix >= in->w)
                        continue;
                    float *tap = dw + (ky * a->kernel_w + kx) * B;
                    vstoref(tap, vloadf(tap) + d * load(x + (iy * in->w + ix) * B));
                }
            }
        }
}

static void depthwise_bwd_weights(const struct ls_depthwise *a)
{
    int64_t taps = a->kernel_h * a->kernel_w;
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < a->in.blocks; block++) {
        float *dw = a->dw + block * taps * B;
        vf db = {0};
        memset(dw, 0, (size_t)(taps * B) * sizeof *dw);
        for (int64_t n = 0; n < a->in.n; n++)
            sample_gradient(a, n, block, dw, &db);
        if (a->db)
            vstoref(a->db + block * B, db);
    }
}

void LS_KERNEL_NAME(fill_depthwise)(struct ls_kernels *k)
{
    k->depthwise_bwd_weights = depthwise_bwd_weights;
}
