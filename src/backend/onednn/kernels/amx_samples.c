/* Convolutions of small maps by AMX. The rows of a tile are one pixel of 16 samples, so each result's pixel is summed over the
 * taps that lie inside of the map and no others: on maps of 2x2 pixels 4 of 9. Maps are copied into tiles first.
 *
 *   forward, and back to the inputs: A has 16 samples of two blocks of channels at one pixel, B the weights of one tap between
 *   these and one block of results. Each result is summed over pairs of blocks, then taps.
 *   weights: A has 16 inputs of 32 samples at one pixel, B 32 samples of a block of gradients. Each weight is summed over
 *   groups of samples, then pixels.
 *
 * Every sum is made by one thread in this order (LOOP-1). */
#include "backend/onednn/kernels/amx.h"

#include <omp.h>

#ifdef LS_AMX

enum {
    TILE = 512, /* elements */
    GROUP = 32, /* samples of a group, in the gradient of the weights */
    AREA = 256  /* pixels of a map, at most */
};

/* Measured with 64 to 2048 channels on maps of 2x2 to 28x28 pixels: where the other kernels have few pixels to a tile. A 1x1
 * convolution gains less than the copies cost, except in the gradient of its weights, where the others copy as well. */
bool LS_KERNEL_NAME(amx_samples_fits)(const struct ls_conv *w)
{
    int64_t in = w->in_h * w->in_w, out = w->out_h * w->out_w, taps = w->kernel_h * w->kernel_w;
    if (w->n < GROUP || max_of(in, out) > AREA)
        return false;
    if (w->pass == LS_CONV_WEIGHTS)
        return max_of(in, out) <= (taps > 1 ? 14 * 14 : 8 * 8);
    return taps > 1 && min_of(in, out) <= 8 * 8;
}

/* The input that tap k of result o reads in a forward pass, and in a gradient the result's gradient that input o takes of tap
 * k; -1: none. */
INLINE int64_t source(bool back, int64_t o, int64_t k, int64_t stride, int64_t pad, int64_t size)
{
    int64_t i = back ? o + pad - k : o * stride + k - pad;
    if (back && i % stride != 0)
        return -1;
    i = back ? i / stride : i;
    return i >= 0 && i < size ? i : -1;
}

/* --- forward, and back to the inputs ----------------------------------------------------------------------------- */

struct cut {
    int64_t groups, pairs, taps, in_area,
        parts;            /* of 16 samples; of blocks that are read; parts of the results' rows */
    size_t maps, weights; /* elements */
};
static struct cut cut_data(const struct ls_conv *w)
{
    struct cut c = {.groups = (w->n + ROWS - 1) / ROWS,
                    .pairs = (w->in_blocks + 1) / 2,
                    .taps = w->kernel_h * w->kernel_w,
                    .in_area = w->in_h * w->in_w};
    int64_t units = (c.groups + 1) / 2 * ((w->out_blocks + 1) / 2);
    c.parts = max_of(1, min_of(w->out_h, (2 * w->threads + units - 1) / units));
    c.maps = (size_t)(c.groups * c.pairs * c.in_area) * TILE;
    c.weights = (size_t)(w->out_blocks * c.pairs * c.taps) * TILE;
    return c;
}

/* Tiles of one group of samples and one pair of blocks. */
static void copy_samples(const struct ls_conv *w, const struct cut *c, int64_t group, int64_t pair, E *to)
{
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t half = 0; half < 2; half++) {
            int64_t n = group * ROWS + r, k = 2 * pair + half;
            E *row = to + (r * 2 + half) * B;
            const E *from = (const E *)w->in + (n * w->in_blocks + k) * c->in_area * B;
            if (n < w->n && k < w->in_blocks)
                for (int64_t i = 0; i < c->in_area; i++)
                    memcpy(row + i * TILE, from + i * B, PIXEL);
            else
                for (int64_t i = 0; i < c->in_area; i++)
                    memset(row + i * TILE, 0, PIXEL);
        }
}

static void pack_weights(const struct ls_conv *w, const struct cut *c, int64_t m, int64_t pair, E *to)
{
    bool forward = w->pass == LS_CONV_FORWARD;
    for (int64_t t = 0; t < c->taps; t++)
        for (int64_t half = 0; half < 2; half++, to += TILE / 2) {
            int64_t k = 2 * pair + half, blocks = forward ? m * w->in_blocks + k : k * w->out_blocks + m;
            if (k < w->in_blocks)
                pack_tap(forward, w->weights + (blocks * c->taps + t) * B * B, to);
            else
                memset(to, 0, TILE / 2 * sizeof(E));
        }
}

/* Where a tap's tiles lie: elements from the first of a pair of blocks. */
struct tap {
    int64_t x, w;
};

static int taps_of(const struct ls_conv *w, int64_t y, int64_t x, struct tap taps[LS_AMX_TAPS])
{
    bool back = w->pass == LS_CONV_DATA;
    int n = 0;
    for (int64_t ky = 0; ky < w->kernel_h; ky++)
        for (int64_t kx = 0; kx < w->kernel_w; kx++) {
            int64_t iy = source(back, y, ky, w->stride, w->pad_t, w->in_h);
            int64_t ix = source(back, x, kx, w->stride, w->pad_l, w->in_w);
            if (iy >= 0 && ix >= 0)
                taps[n++] = (struct tap){(iy * w->in_w + ix) * TILE, (ky * w->kernel_w + kx) * TILE};
        }
    return n;
}

/* One pixel of two groups of samples by two blocks of results. x_pair, w_pair: elements of a pair of blocks. */
AMX static void multiply(const struct tap *taps, int n_taps, int64_t pairs, const E *x0, const E *x1, int64_t x_pair,
                         const E *w0, const E *w1, int64_t w_pair, float c[4][ROWS * B])
{
    sums_clear();
    for (int64_t k = 0; k < pairs; k++, x0 += x_pair, x1 += x_pair, w0 += w_pair, w1 += w_pair)
        for (int t = 0; t < n_taps; t++) {
            sums_add(x0 + taps[t].x, x1 + taps[t].x, 64, w0 + taps[t].w, w1 + taps[t].w);
        }
    sums_store((float *[]){c[0], c[1], c[2], c[3]});
}

INLINE void store_samples(const struct ls_conv *w, enum ls_act act, int64_t group, int64_t m, int64_t pixel,
                          const float *c)
{
    int64_t area = w->out_h * w->out_w, first = group * ROWS;
    vf bias = w->bias ? vloadf(w->bias + m * B) : vset(0.0f);
    E *to = (E *)w->out + ((first * w->out_blocks + m) * area + pixel) * B;
    for (int64_t r = 0; r < ROWS && first + r < w->n; r++)
        store(to + r * w->out_blocks * area * B, activate(act, vloadf(c + r * B) + bias));
}

/* Rows [first, last) of the results of two groups of samples and two blocks; the second of each may be missing. */
static void one_unit(const struct ls_conv *w, const struct cut *c, int64_t group, int64_t m, int64_t first,
                     int64_t last, const E *maps, const E *weights)
{
    int64_t x_pair = c->in_area * TILE, w_pair = c->taps * TILE;
    bool two_groups = group + 1 < c->groups, two_blocks = m + 1 < w->out_blocks;
    const E *x0 = maps + group * c->pairs * x_pair, *x1 = two_groups ? x0 + c->pairs * x_pair : x0;
    const E *w0 = weights + m * c->pairs * w_pair, *w1 = two_blocks ? w0 + c->pairs * w_pair : w0;
    for (int64_t i = first * w->out_w; i < last * w->out_w; i++) {
        struct tap taps[LS_AMX_TAPS];
        float sums[4][ROWS * B] __attribute__((aligned(64)));
        int n_taps = taps_of(w, i / w->out_w, i % w->out_w, taps);
        multiply(taps, n_taps, c->pairs, x0, x1, x_pair, w0, w1, w_pair, sums);
        for (int q = 0; q < 4; q++)
            if ((q < 2 || two_groups) && (q % 2 == 0 || two_blocks)) {
#define STORE(act) store_samples(w, act, group + q / 2, m + q % 2, i, sums[q])
                FOR_EACH_ACT(w->act, STORE)
            }
    }
}

void LS_KERNEL_NAME(amx_samples_data)(const struct ls_conv *w)
{
    struct cut c = cut_data(w);
    E *maps = w->scratch, *weights = maps + c.maps;
#pragma omp parallel num_threads(w->threads)
    {
#pragma omp for collapse(2) schedule(static) nowait
        for (int64_t group = 0; group < c.groups; group++)
            for (int64_t pair = 0; pair < c.pairs; pair++)
                copy_samples(w, &c, group, pair, maps + (group * c.pairs + pair) * c.in_area * TILE);
#pragma omp for collapse(2) schedule(static)
        for (int64_t m = 0; m < w->out_blocks; m++)
            for (int64_t pair = 0; pair < c.pairs; pair++)
                pack_weights(w, &c, m, pair, weights + (m * c.pairs + pair) * c.taps * TILE);
        tiles_open(&ls_amx_whole);
#pragma omp for collapse(3) schedule(static)
        for (int64_t group = 0; group < c.groups; group += 2)
            for (int64_t m = 0; m < w->out_blocks; m += 2)
                for (int64_t part = 0; part < c.parts; part++)
                    one_unit(w, &c, group, m, w->out_h * part / c.parts, w->out_h * (part + 1) / c.parts, maps,
                             weights);
        tiles_close();
    }
}

/* --- the gradient of the weights --------------------------------------------------------------------------------- */

/* Inputs: tiles [block][group][pixel]. */
static void transpose_samples(const struct ls_conv *w, int64_t k, int64_t group, E *to)
{
    int64_t area = w->in_h * w->in_w;
    for (int64_t i = 0; i < area; i++, to += TILE)
        for (int64_t half = 0; half < 2; half++) {
            E rows[ROWS * B] __attribute__((aligned(64)));
            for (int64_t r = 0; r < ROWS; r++) {
                int64_t n = group * GROUP + half * ROWS + r;
                if (n < w->n)
                    memcpy(rows + r * B, (const E *)w->in + ((n * w->in_blocks + k) * area + i) * B, PIXEL);
                else
                    memset(rows + r * B, 0, PIXEL);
            }
            transpose(rows, to + half * ROWS);
        }
}

/* Gradients of results, two samples side by side: tiles [block][group][pixel]. */
static void pair_samples(const struct ls_conv *w, int64_t m, int64_t group, E *to)
{
    int64_t area = w->out_h * w->out_w;
    for (int64_t i = 0; i < area; i++)
        for (int64_t r = 0; r < ROWS; r++, to += 2 * B) {
            E both[2 * B];
            for (int64_t half = 0; half < 2; half++) {
                int64_t n = group * GROUP + 2 * r + half;
                if (n < w->n)
                    memcpy(both + half * B, (const E *)w->out + ((n * w->out_blocks + m) * area + i) * B, PIXEL);
                else
                    memset(both + half * B, 0, PIXEL);
            }
            pair_up(both, 2, to);
        }
}

/* Tiles of the pixels that a tap multiplies: elements from the first of a group. */
struct product {
    int32_t x, dy;
};

static int products_of(const struct ls_conv *w, int64_t tap, struct product list[AREA])
{
    int64_t ky = tap / w->kernel_w, kx = tap % w->kernel_w;
    int n = 0;
    for (int64_t y = 0; y < w->out_h; y++)
        for (int64_t x = 0; x < w->out_w; x++) {
            int64_t iy = source(false, y, ky, w->stride, w->pad_t, w->in_h);
            int64_t ix = source(false, x, kx, w->stride, w->pad_l, w->in_w);
            if (iy >= 0 && ix >= 0)
                list[n++] =
                    (struct product){(int32_t)((iy * w->in_w + ix) * TILE), (int32_t)((y * w->out_w + x) * TILE)};
        }
    return n;
}

struct operands {
    const E *x0, *x1, *dy0, *dy1;
};
AMX static void accumulate(const struct operands *o, int64_t groups, int64_t x_group, int64_t dy_group,
                           const struct product *list, int n, float *c[4])
{
    struct operands at = *o;
    sums_clear();
    for (int64_t g = 0; g < groups; g++) {
        for (int i = 0; i < n; i++) {
            sums_add(at.x0 + list[i].x, at.x1 + list[i].x, 64, at.dy0 + list[i].dy, at.dy1 + list[i].dy);
        }
        at = (struct operands){at.x0 + x_group, at.x1 + x_group, at.dy0 + dy_group, at.dy1 + dy_group};
    }
    sums_store(c);
}

/* The gradients of one tap between two blocks of inputs and two of results; the second of each may be missing. */
static void one_tap(const struct ls_conv *w, int64_t k, int64_t m, int64_t tap, const E *x, const E *dy)
{
    float unused[2][B * B] __attribute__((aligned(64)));
    struct product list[AREA];
    int64_t taps = w->kernel_h * w->kernel_w, groups = (w->n + GROUP - 1) / GROUP;
    int64_t x_group = w->in_h * w->in_w * TILE, dy_group = w->out_h * w->out_w * TILE;
    bool two_k = k + 1 < w->in_blocks, two_m = m + 1 < w->out_blocks;
    struct operands o = {.x0 = x + k * groups * x_group, .dy0 = dy + m * groups * dy_group};
    o.x1 = two_k ? o.x0 + groups * x_group : o.x0;
    o.dy1 = two_m ? o.dy0 + groups * dy_group : o.dy0;
    float *c00 = w->weights + ((m * w->in_blocks + k) * taps + tap) * B * B;
    float *c01 = two_m ? c00 + w->in_blocks * taps * B * B : unused[0];
    float *c10 = two_k ? c00 + taps * B * B : unused[1];
    float *c11 = two_k && two_m ? c01 + taps * B * B : unused[0];
    accumulate(&o, groups, x_group, dy_group, list, products_of(w, tap, list), (float *[]){c00, c01, c10, c11});
}

void LS_KERNEL_NAME(amx_samples_weights)(const struct ls_conv *w)
{
    int64_t groups = (w->n + GROUP - 1) / GROUP, x_group = w->in_h * w->in_w * TILE;
    int64_t dy_group = w->out_h * w->out_w * TILE;
    E *x = w->scratch, *dy = x + w->in_blocks * groups * x_group;
#pragma omp parallel num_threads(w->threads)
    {
#pragma omp for collapse(2) schedule(static) nowait
        for (int64_t k = 0; k < w->in_blocks; k++)
            for (int64_t g = 0; g < groups; g++)
                transpose_samples(w, k, g, x + (k * groups + g) * x_group);
#pragma omp for collapse(2) schedule(static)
        for (int64_t m = 0; m < w->out_blocks; m++)
            for (int64_t g = 0; g < groups; g++)
                pair_samples(w, m, g, dy + (m * groups + g) * dy_group);
        tiles_open(&ls_amx_whole);
#pragma omp for collapse(3) schedule(static)
        for (int64_t m = 0; m < w->out_blocks; m += 2)
            for (int64_t k = 0; k < w->in_blocks; k += 2)
                for (int64_t t = 0; t < w->kernel_h * w->kernel_w; t++)
                    one_tap(w, k, m, t, x, dy);
        tiles_close();
        if (w->bias)
            bias_gradient(w);
    }
}

size_t LS_KERNEL_NAME(amx_samples_scratch)(const struct ls_conv *w)
{
    if (w->pass == LS_CONV_WEIGHTS) {
        int64_t groups = (w->n + GROUP - 1) / GROUP;
        return (size_t)(groups * (w->in_blocks * w->in_h * w->in_w + w->out_blocks * w->out_h * w->out_w)) * TILE *
               sizeof(E);
    }
    struct cut c = cut_data(w);
    return (c.maps + c.weights) * sizeof(E);
}

#endif
