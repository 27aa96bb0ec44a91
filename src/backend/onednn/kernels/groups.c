/* Convolutions in groups that are smaller than a block, as ResNeXt has them; oneDNN has only reference code for them. A block
 * of B channels has B / group groups, and a block of results depends on one block of inputs alone. Lane l of a result needs
 * the inputs of its group: the j-th of them are brought to all lanes of the group by one permutation, and multiplied by the
 * j-th weights of all lanes. Each result has one order of sums, whatever the number of threads (LOOP-1). */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

/* Lane l gets x[from[l]]. */
INLINE vf permute(vf x, vi from)
{
#if defined(__AVX512F__)
    return (vf)_mm512_permutexvar_ps((__m512i)from, (__m512)x);
#elif defined(__AVX2__)
    return (vf)_mm256_permutevar8x32_ps((__m256)x, (__m256i)from);
#else
    vf y;
    for (int l = 0; l < B; l++)
        y[l] = x[from[l]];
    return y;
#endif
}

/* The lanes of the j-th channels of each lane's group. */
INLINE vi lanes_of(int group, int j)
{
    vi from;
    for (int l = 0; l < B; l++)
        from[l] = l / group * group + j;
    return from;
}

/* The weight between the lane of a block and the j-th channel of its group: stored [channel out][j-th in][tap]. */
static int64_t weight_at(const struct ls_conv *w, int64_t channel, int64_t j, int64_t tap)
{
    int64_t first = channel / w->group * w->group, taps = w->kernel_h * w->kernel_w;
    bool back = w->pass == LS_CONV_DATA;
    int64_t out = back ? first + j : channel, in = back ? channel - first : j;
    return (out * w->group + in) * taps + tap;
}

/* [block][tap][j][B]; zeros beyond the last channel. */
static void pack(const struct ls_conv *w, float *to)
{
    int64_t taps = w->kernel_h * w->kernel_w, count = w->out_blocks * taps * w->group * B;
    for (int64_t i = 0; i < count; i++) {
        int64_t channel = i / (taps * w->group * B) * B + i % B, j = i / B % w->group, tap = i / (w->group * B) % taps;
        to[i] = channel < w->channels ? w->weights[weight_at(w, channel, j, tap)] : 0.0f;
    }
}

/* --- forward, and back to the inputs ------------------------------------------------------------------------------ */

/* The row or column that tap k of a result reads; -1: none. */
INLINE int64_t source(const struct ls_conv *w, int64_t at, int64_t k, int64_t pad, int64_t size)
{
    int64_t from = w->pass == LS_CONV_FORWARD ? at * w->stride + k - pad : at + pad - k;
    if (w->pass == LS_CONV_DATA) {
        if (from < 0 || from % w->stride != 0)
            return -1;
        from /= w->stride;
    }
    return from < size ? from : -1;
}

INLINE vf one_pixel(const struct ls_conv *w, int group, const vi *from, const E *in, const float *weights, int64_t oy,
                    int64_t ox, vf sum)
{
    for (int64_t ky = 0; ky < w->kernel_h; ky++) {
        int64_t y = source(w, oy, ky, w->pad_t, w->in_h);
        for (int64_t kx = 0; y >= 0 && kx < w->kernel_w; kx++) {
            int64_t x = source(w, ox, kx, w->pad_l, w->in_w);
            if (x < 0)
                continue;
            vf pixel = load(in + (y * w->in_w + x) * B);
            const float *tap = weights + (ky * w->kernel_w + kx) * group * B;
            for (int j = 0; j < group; j++)
                sum += permute(pixel, from[j]) * vloadf(tap + j * B);
        }
    }
    return sum;
}

/* Pixels side by side whose taps are all inside: their sums, each in the order of one_pixel, hide the latency of additions. */
enum { SIDE_BY_SIDE = 4 };

INLINE void some_pixels(const struct ls_conv *w, int group, const vi *from, const E *in, const float *weights,
                        int64_t oy, int64_t ox, vf bias, E *out)
{
    int64_t step = w->pass == LS_CONV_FORWARD ? w->stride : 1;
    vf sums[SIDE_BY_SIDE];
    for (int i = 0; i < SIDE_BY_SIDE; i++)
        sums[i] = bias;
    for (int64_t ky = 0; ky < w->kernel_h; ky++) {
        int64_t y = source(w, oy, ky, w->pad_t, w->in_h);
        for (int64_t kx = 0; y >= 0 && kx < w->kernel_w; kx++) {
            const E *x = in + (y * w->in_w + source(w, ox, kx, w->pad_l, w->in_w)) * B;
            const float *tap = weights + (ky * w->kernel_w + kx) * group * B;
            vf pixels[SIDE_BY_SIDE];
            for (int i = 0; i < SIDE_BY_SIDE; i++)
                pixels[i] = load(x + i * step * B);
            for (int j = 0; j < group; j++) {
                vf weight = vloadf(tap + j * B);
                for (int i = 0; i < SIDE_BY_SIDE; i++)
                    sums[i] += permute(pixels[i], from[j]) * weight;
            }
        }
    }
    for (int i = 0; i < SIDE_BY_SIDE; i++)
        store(out + i * B, activate(w->act, sums[i]));
}

/* Have the pixels from ox on all of their taps, in steps of one result? */
INLINE bool all_inside(const struct ls_conv *w, int64_t ox)
{
    int64_t last = ox + SIDE_BY_SIDE - 1;
    return last < w->out_w && (w->pass == LS_CONV_FORWARD || w->stride == 1) &&
           source(w, ox, 0, w->pad_l, w->in_w) >= 0 && source(w, ox, w->kernel_w - 1, w->pad_l, w->in_w) >= 0 &&
           source(w, last, 0, w->pad_l, w->in_w) >= 0 && source(w, last, w->kernel_w - 1, w->pad_l, w->in_w) >= 0;
}

INLINE void data_pass(const struct ls_conv *w, int group)
{
    float *packed = w->scratch;
    int64_t taps = w->kernel_h * w->kernel_w;
    vi from[B];
    for (int j = 0; j < group; j++)
        from[j] = lanes_of(group, j);
    pack(w, packed);
#pragma omp parallel for collapse(3) schedule(static) num_threads(w->threads)
    for (int64_t n = 0; n < w->n; n++)
        for (int64_t b = 0; b < w->out_blocks; b++)
            for (int64_t oy = 0; oy < w->out_h; oy++) {
                const E *in = (const E *)w->in + (n * w->in_blocks + b) * w->in_h * w->in_w * B;
                E *out = (E *)w->out + ((n * w->out_blocks + b) * w->out_h + oy) * w->out_w * B;
                vf bias = w->bias ? vloadf(w->bias + b * B) : vset(0.0f);
                const float *weights = packed + b * taps * group * B;
                for (int64_t ox = 0; ox < w->out_w;)
                    if (all_inside(w, ox)) {
                        some_pixels(w, group, from, in, weights, oy, ox, bias, out + ox * B);
                        ox += SIDE_BY_SIDE;
                    } else {
                        store(out + ox * B, activate(w->act, one_pixel(w, group, from, in, weights, oy, ox, bias)));
                        ox++;
                    }
            }
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

enum { MOST = 3 * 8 }; /* sums at a time: taps of a row of the kernel, by inputs of a group */

/* Adds the pixels [from, to) of a row, whose results dy with all taps are inside. A pixel is brought to the lanes of its group
 * once for all taps. The step from a tap's result to the next tap's is one back. */
INLINE void add_pixels(int group, int taps, const vi *lanes, const E *x, const E *dy, int64_t from, int64_t to,
                       vf *sums)
{
    vf total[MOST];
    for (int i = 0; i < taps * group; i++)
        total[i] = sums[i];
    for (int64_t ix = from; ix < to; ix++) {
        vf pixel = load(x + ix * B), gradient[3];
        for (int k = 0; k < taps; k++)
            gradient[k] = load(dy + (ix - k) * B);
        for (int j = 0; j < group; j++) {
            vf lane = permute(pixel, lanes[j]);
            for (int k = 0; k < taps; k++)
                total[k * group + j] += lane * gradient[k];
        }
    }
    for (int i = 0; i < taps * group; i++)
        sums[i] = total[i];
}

/* Adds the row oy of one sample to the sums of `taps` taps of a row of the kernel, from kx on: [tap][group]. */
INLINE void add_row(const struct ls_conv *w, int group, int taps, const vi *lanes, const E *x, const E *dy, int64_t oy,
                    int64_t ky, int64_t kx, vf *sums)
{
    int64_t y = oy * w->stride + ky - w->pad_t, shift = w->pad_l - kx;
    if (y < 0 || y >= w->in_h)
        return;
    x += y * w->in_w * B;
    dy += oy * w->out_w * B;
    int64_t from = taps - 1 - shift, to = w->out_w - shift; /* with stride 1 all taps of these pixels are inside */
    from = from < 0 ? 0 : from;
    to = to > w->in_w ? w->in_w : to;
    for (int64_t ix = 0; ix < w->in_w; ix++) {
        if (w->stride == 1 && ix == from && from < to) {
            add_pixels(group, taps, lanes, x, dy + shift * B, from, to, sums);
            ix = to - 1;
            continue;
        }
        for (int k = 0; k < taps; k++) {
            int64_t at = ix + shift - k, ox = at / w->stride;
            if (at >= 0 && ox < w->out_w && ox * w->stride == at)
                add_pixels(group, 1, lanes, x, dy + (ox - ix) * B, ix, ix + 1, sums + k * group);
        }
    }
}

/* The gradient of `taps` weights of a row of the kernel, for a block of channels. */
INLINE void taps_gradient(const struct ls_conv *w, int group, int taps, const vi *lanes, int64_t b, int64_t ky,
                          int64_t kx)
{
    vd total[MOST] = {{0}};
    for (int64_t n = 0; n < w->n; n++) {
        const E *x = (const E *)w->in + (n * w->in_blocks + b) * w->in_h * w->in_w * B;
        const E *dy = (const E *)w->out + (n * w->out_blocks + b) * w->out_h * w->out_w * B;
        vf sums[MOST] = {{0}};
        for (int64_t oy = 0; oy < w->out_h; oy++)
            add_row(w, group, taps, lanes, x, dy, oy, ky, kx, sums);
        for (int i = 0; i < taps * group; i++)
            total[i] += __builtin_convertvector(sums[i], vd);
    }
    for (int i = 0; i < taps * group; i++)
        for (int l = 0; l < B && b * B + l < w->channels; l++)
            w->weights[weight_at(w, b * B + l, i % group, ky * w->kernel_w + kx + i / group)] = (float)total[i][l];
}

INLINE void weights_pass(const struct ls_conv *w, int group)
{
    vi lanes[B];
    for (int j = 0; j < group; j++)
        lanes[j] = lanes_of(group, j);
#pragma omp parallel for collapse(2) schedule(static) num_threads(w->threads)
    for (int64_t b = 0; b < w->in_blocks; b++)
        for (int64_t ky = 0; ky < w->kernel_h; ky++) {
            int64_t kx = 0;
            for (; kx + 3 <= w->kernel_w; kx += 3)
                taps_gradient(w, group, 3, lanes, b, ky, kx);
            for (; kx < w->kernel_w; kx++)
                taps_gradient(w, group, 1, lanes, b, ky, kx);
        }
}

static void bias_gradient(const struct ls_conv *w)
{
    int64_t area = w->out_h * w->out_w;
    for (int64_t b = 0; b < w->out_blocks; b++) {
        vd total = {0};
        for (int64_t n = 0; n < w->n; n++) {
            const E *dy = (const E *)w->out + (n * w->out_blocks + b) * area * B;
            vf sum = vset(0.0f);
            for (int64_t i = 0; i < area; i++)
                sum += load(dy + i * B);
            total += __builtin_convertvector(sum, vd);
        }
        vstoref(w->bias + b * B, __builtin_convertvector(total, vf));
    }
}

/* --- */

static size_t scratch(const struct ls_conv *w)
{
    return (size_t)(w->out_blocks * w->kernel_h * w->kernel_w * w->group * B) * sizeof(float);
}

INLINE void pass_of(const struct ls_conv *w, int group)
{
    if (w->pass == LS_CONV_WEIGHTS)
        weights_pass(w, group);
    else
        data_pass(w, group);
}

static void run(const struct ls_conv *w)
{
    switch (w->group) { /* with a constant, the loops over a group are unrolled */
    case 2:
        pass_of(w, 2);
        break;
    case 4:
        pass_of(w, 4);
        break;
    default:
        pass_of(w, 8);
    }
    if (w->pass == LS_CONV_WEIGHTS && w->bias)
        bias_gradient(w);
}

void LS_KERNEL_NAME(fill_groups)(struct ls_kernels *k)
{
    k->conv[LS_CONV_GROUPS] = (struct ls_conv_kernel){scratch, run};
}
