/* The first convolution of a network by AMX: it reads images with few channels in planes, [n][channel][row][column], as they
 * come. A row of all channels side by side makes the taps of a kernel's row adjacent numbers, which the rows of a tile
 * overlap: pixel x begins stride * channels numbers after pixel x - 1.
 *
 *   forward: A has 16 results' pixels by the taps and channels of one row of the kernel, or of a piece of it, B their
 *   weights. Each result is summed over the kernel's rows.
 *   weights: A has 16 taps and channels of one row of the kernel at 32 pixels, for which rows are copied once for each of
 *   them, B 32 pixels of a block of gradients. Samples are cut into parts by their number alone, and the parts' sums are
 *   added in their order (LOOP-1).
 *
 * Weights and their gradient are f32, [result][channel][kernel's row][column]. */
#include "backend/onednn/kernels/amx.h"

#include <omp.h>

#ifdef LS_AMX

enum {
    STRIP = 16, /* rows of results at a time */
    PARTS = 32, /* of the samples, in the gradient */
    TILE = 512  /* elements of a whole tile */
};

struct cut {
    int64_t pieces, line;  /* of a kernel's row; taps and channels of a piece, even */
    int64_t taps;          /* and channels of a kernel's row, whole pairs of tiles */
    int64_t lines;         /* rows of inputs of a strip */
    int64_t pixels;        /* of a row of results, whole pairs of tiles */
    int64_t length;        /* numbers of a row of inputs */
    int64_t strips, parts; /* of a sample; of the samples */
    size_t weights, sums;  /* elements of all tiles of weights; floats of a part's sums */
    size_t own;            /* elements of a thread */
};
static struct cut cut_images(const struct ls_conv *w)
{
    int64_t taps = w->kernel_w * w->channels, pieces = (taps + K - 1) / K;
    struct cut c = {.pieces = pieces,
                    .line = up_to((taps + pieces - 1) / pieces, 2),
                    .taps = up_to(taps, 2 * ROWS),
                    .lines = (STRIP - 1) * w->stride + w->kernel_h,
                    .pixels = up_to(w->out_w, 2 * ROWS),
                    .strips = (w->out_h + STRIP - 1) / STRIP,
                    .parts = min_of(w->n, PARTS)};
    c.length = up_to((c.pixels - 1) * w->stride * w->channels + pieces * c.line, K);
    c.weights = (size_t)(w->out_blocks * w->kernel_h * pieces) * TILE;
    c.sums = (size_t)(w->out_blocks * w->kernel_h * c.taps) * B;
    c.own = w->pass == LS_CONV_FORWARD ? (size_t)(c.lines * c.length)
                                       : (size_t)((c.lines * c.taps + STRIP * w->out_blocks * B) * c.pixels) +
                                             (size_t)(c.pixels * w->stride + w->kernel_w);
    return c;
}

/* Row y of an image's plane; NULL: outside of it. */
INLINE const E *row_of(const struct ls_conv *w, int64_t n, int64_t channel, int64_t y)
{
    bool inside = y >= 0 && y < w->in_h;
    return inside ? (const E *)w->in + ((n * w->channels + channel) * w->in_h + y) * w->in_w : NULL;
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

/* Tiles [block of results][kernel's row][piece]: pairs of taps and channels by results. */
static void pack_weights(const struct ls_conv *w, const struct cut *c, int64_t m, E *to)
{
    int64_t taps = w->kernel_h * w->kernel_w;
    for (int64_t i = 0; i < w->kernel_h * c->pieces; i++, to += TILE)
        for (int64_t j = 0; j < c->line; j++)
            for (int64_t l = 0; l < B; l++) {
                int64_t tap = i % c->pieces * c->line + j, ky = i / c->pieces;
                int64_t o = m * B + l, kx = tap / w->channels, channel = tap % w->channels;
                bool there = o < w->results && kx < w->kernel_w;
                put(to + (j / 2 * B + l) * 2 + j % 2,
                    there ? w->weights[(o * w->channels + channel) * taps + ky * w->kernel_w + kx] : 0.0f);
            }
}

/* The rows that results [row, row + STRIP) of a sample read, all channels side by side. */
static void join_channels(const struct ls_conv *w, const struct cut *c, int64_t n, int64_t row, E *lines)
{
    for (int64_t i = 0; i < c->lines; i++, lines += c->length) {
        memset(lines, 0, (size_t)c->length * sizeof *lines);
        for (int64_t channel = 0; channel < w->channels; channel++) {
            const E *from = row_of(w, n, channel, row * w->stride + i - w->pad_t);
            int64_t end = min_of(w->in_w, c->length / w->channels - w->pad_l);
            E *to = lines + w->pad_l * w->channels + channel;
            for (int64_t x = 0; from && x < end; x++)
                to[x * w->channels] = from[x];
        }
    }
}

/* 32 pixels by two blocks of results. `pixel` is the distance of pixels in bytes. */
AMX static void multiply(const struct cut *cut, int64_t kernel_h, const E *x, int64_t pixel, const E *w0, const E *w1,
                         float c[4][ROWS * B])
{
    sums_clear();
    for (int64_t ky = 0; ky < kernel_h; ky++, x += cut->length)
        for (int64_t i = 0; i < cut->pieces; i++, w0 += TILE, w1 += TILE)
            sums_add(x + i * cut->line, (const char *)(x + i * cut->line) + ROWS * pixel, pixel, w0, w1);
    sums_store((float *[]){c[0], c[1], c[2], c[3]});
}

INLINE void store_pixels(enum ls_act act, const float *c, int64_t pixels, vf bias, E *to)
{
    for (int64_t r = 0; r < min_of(pixels, ROWS); r++)
        store(to + r * B, activate(act, vloadf(c + r * B) + bias));
}

static void one_strip(const struct ls_conv *w, const struct cut *c, int64_t n, int64_t row, const E *weights, E *lines)
{
    int64_t step = w->stride * w->channels, size = w->kernel_h * c->pieces * TILE;
    join_channels(w, c, n, row, lines);
    for (int64_t y = row; y < min_of(w->out_h, row + STRIP); y++)
        for (int64_t m = 0; m < w->out_blocks; m += 2)
            for (int64_t x = 0; x < w->out_w; x += 2 * ROWS) {
                float sums[4][ROWS * B] __attribute__((aligned(64)));
                const E *w0 = weights + m * size, *w1 = m + 1 < w->out_blocks ? w0 + size : w0;
                multiply(c, w->kernel_h, lines + (y - row) * w->stride * c->length + x * step,
                         step * (int64_t)sizeof(E), w0, w1, sums);
                for (int q = 0; q < 4; q++) {
                    int64_t block = m + q % 2, first = x + q / 2 * ROWS;
                    if (block >= w->out_blocks || first >= w->out_w)
                        continue;
                    vf bias = w->bias ? vloadf(w->bias + block * B) : vset(0.0f);
                    E *to = (E *)w->out + (((n * w->out_blocks + block) * w->out_h + y) * w->out_w + first) * B;
#define STORE(act) store_pixels(act, sums[q], w->out_w - first, bias, to)
                    FOR_EACH_ACT(w->act, STORE)
                }
            }
}

static void forward(const struct ls_conv *w)
{
    struct cut c = cut_images(w);
    uint16_t bytes = (uint16_t)(c.line * (int64_t)sizeof(E));
    uint8_t pairs = (uint8_t)(c.line / 2);
    struct tiles sizes = {.palette = 1,
                          .row_bytes = {64, 64, 64, 64, bytes, bytes, 64, 64},
                          .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, pairs, pairs}};
    E *weights = w->scratch;
#pragma omp parallel num_threads(w->threads)
    {
        E *lines = weights + c.weights + (size_t)omp_get_thread_num() * c.own;
#pragma omp for schedule(static)
        for (int64_t m = 0; m < w->out_blocks; m++)
            pack_weights(w, &c, m, weights + m * w->kernel_h * c.pieces * TILE);
        tiles_open(&sizes);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < w->n * c.strips; i++)
            one_strip(w, &c, i / c.strips, i % c.strips * STRIP, weights, lines);
        tiles_close();
    }
}

/* --- the gradient of the weights --------------------------------------------------------------------------------- */

/* to[i] = from[i * stride], with a loop for each of the usual strides. */
INLINE void pick(const E *from, int64_t stride, int64_t count, E *to)
{
    if (stride == 1)
        memcpy(to, from, (size_t)count * sizeof *to);
    else if (stride == 2)
        for (int64_t i = 0; i < count; i++)
            to[i] = from[2 * i];
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i * stride];
}

/* Each row of inputs of a strip as c->taps rows of `pixels` numbers, one for each tap and channel. `room` has one padded
 * row. */
static void spread_taps(const struct ls_conv *w, const struct cut *c, int64_t n, int64_t row, E *room, E *to)
{
    int64_t padded = c->pixels * w->stride + w->kernel_w, end = min_of(w->in_w, padded - w->pad_l);
    for (int64_t i = 0; i < c->lines; i++, to += c->taps * c->pixels) {
        memset(to, 0, (size_t)(c->taps * c->pixels) * sizeof *to);
        for (int64_t channel = 0; channel < w->channels; channel++) {
            const E *from = row_of(w, n, channel, row * w->stride + i - w->pad_t);
            if (!from)
                continue;
            memset(room, 0, (size_t)padded * sizeof *room);
            memcpy(room + w->pad_l, from, (size_t)end * sizeof *room);
            for (int64_t kx = 0; kx < w->kernel_w; kx++)
                pick(room + kx, w->stride, c->pixels, to + (kx * w->channels + channel) * c->pixels);
        }
    }
}

/* The gradients of a strip, two pixels side by side: [row][block][pixel / 2][B][2], with zeros beyond the map. */
static void pair_gradients(const struct ls_conv *w, const struct cut *c, int64_t n, int64_t row, E *to)
{
    for (int64_t y = row; y < min_of(w->out_h, row + STRIP); y++)
        for (int64_t m = 0; m < w->out_blocks; m++, to += c->pixels * B) {
            const E *from = (const E *)w->out + ((n * w->out_blocks + m) * w->out_h + y) * w->out_w * B;
            int64_t whole = w->out_w / 2 * 2;
            E last[2 * B] = {0};
            pair_up(from, whole, to);
            memset(to + whole * B, 0, (size_t)(c->pixels - whole) * PIXEL);
            if (whole < w->out_w) {
                memcpy(last, from + whole * B, PIXEL);
                pair_up(last, 2, to + whole * B);
            }
        }
}

struct rows {
    const E *x, *dy0, *dy1;
    int64_t count, x_row, dy_row; /* of rows; elements from one to the next */
};
/* 32 taps and channels of a kernel's row by two blocks of results += the rows of a strip. */
AMX static void accumulate(const struct rows *rows, int64_t pixels, float *c[4], bool fresh)
{
    struct rows at = *rows;
    if (fresh)
        sums_clear();
    else
        sums_load(c);
    for (int64_t y = 0; y < rows->count; y++, at.x += at.x_row, at.dy0 += at.dy_row, at.dy1 += at.dy_row)
        for (int64_t i = 0; i < pixels; i += K) {
            sums_add(at.x + i, at.x + ROWS * pixels + i, pixels * (int64_t)sizeof(E), at.dy0 + i * B, at.dy1 + i * B);
        }
    sums_store(c);
}

/* sums: [block of results][kernel's row][taps and channels][B]. */
static void one_part(const struct ls_conv *w, const struct cut *c, int64_t part, E *x, float *sums)
{
    E *dy = x + c->lines * c->taps * c->pixels, *room = dy + STRIP * w->out_blocks * B * c->pixels;
    int64_t first = w->n * part / c->parts, end = w->n * (part + 1) / c->parts;
    int64_t block = w->kernel_h * c->taps * B, tiles = c->taps / (2 * ROWS);
    for (int64_t i = first * c->strips; i < end * c->strips; i++) {
        int64_t n = i / c->strips, row = i % c->strips * STRIP;
        spread_taps(w, c, n, row, room, x);
        pair_gradients(w, c, n, row, dy);
        for (int64_t m = 0; m < w->out_blocks; m += 2)
            for (int64_t t = 0; t < w->kernel_h * tiles; t++) {
                float unused[2 * B * B] __attribute__((aligned(64)));
                bool two = m + 1 < w->out_blocks;
                float *c0 = sums + m * block + t * 2 * B * B, *c1 = two ? c0 + block : unused;
                struct rows rows = {.x = x + t * 2 * ROWS * c->pixels,
                                    .dy0 = dy + m * c->pixels * B,
                                    .dy1 = dy + (two ? m + 1 : m) * c->pixels * B,
                                    .count = min_of(STRIP, w->out_h - row),
                                    .x_row = w->stride * c->taps * c->pixels,
                                    .dy_row = w->out_blocks * c->pixels * B};
                accumulate(&rows, c->pixels, (float *[]){c0, c1, c0 + B * B, c1 + B * B}, i == first * c->strips);
            }
    }
}

static void add_parts(const struct ls_conv *w, const struct cut *c, int64_t o, const float *sums)
{
    int64_t block = w->kernel_h * c->taps * B;
    for (int64_t channel = 0; channel < w->channels; channel++)
        for (int64_t ky = 0; ky < w->kernel_h; ky++)
            for (int64_t kx = 0; kx < w->kernel_w; kx++) {
                int64_t at = o / B * block + (ky * c->taps + kx * w->channels + channel) * B + o % B;
                float total = sums[at];
                for (int64_t part = 1; part < c->parts; part++)
                    total += sums[part * (int64_t)c->sums + at];
                w->weights[((o * w->channels + channel) * w->kernel_h + ky) * w->kernel_w + kx] = total;
            }
}

static void gradient(const struct ls_conv *w)
{
    struct cut c = cut_images(w);
    float *sums = w->scratch;
    E *rooms = (E *)(void *)(sums + (size_t)c.parts * c.sums);
#pragma omp parallel num_threads(w->threads)
    {
        tiles_open(&ls_amx_whole);
#pragma omp for schedule(dynamic)
        for (int64_t part = 0; part < c.parts; part++)
            one_part(w, &c, part, rooms + (size_t)omp_get_thread_num() * c.own, sums + (size_t)part * c.sums);
        tiles_close();
#pragma omp for schedule(static)
        for (int64_t o = 0; o < w->results; o++)
            add_parts(w, &c, o, sums);
        if (w->bias)
            bias_gradient(w);
    }
}

static size_t scratch(const struct ls_conv *w)
{
    struct cut c = cut_images(w);
    size_t own = (size_t)w->threads * c.own * sizeof(E);
    return own + (w->pass == LS_CONV_FORWARD ? c.weights * sizeof(E) : (size_t)c.parts * c.sums * sizeof(float));
}

static void run(const struct ls_conv *w)
{
    if (w->pass == LS_CONV_FORWARD)
        forward(w);
    else
        gradient(w);
}

void LS_KERNEL_NAME(fill_amx_images)(struct ls_kernels *k)
{
    if (ls_amx_usable())
        k->conv[LS_CONV_IMAGES] = (struct ls_conv_kernel){scratch, run};
}

#else
void LS_KERNEL_NAME(fill_amx_images)(struct ls_kernels *k)
{
    (void)k;
}
#endif
