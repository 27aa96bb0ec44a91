/* The gradient of a convolution's weights by AMX: for each tap and pair of blocks the sum over all pixels of input times
 * gradient. A tile of A has 16 inputs of a block at 32 pixels, so the inputs are transposed; B has 32 pixels of a block of
 * gradients; C is the gradient of the weights as it is stored.
 *
 * The results' rows of all samples are cut into segments. A unit of work is a part of the segments and a part of the
 * inputs' blocks. Its pixels are copied and transposed by chunks that stay in the L2 cache, and used there by all pairs of
 * blocks. Segments, parts and chunks depend on the shape alone, and parts are added in their order (LOOP-1). */
#include "backend/onednn/kernels/amx.h"

#include <omp.h>

#ifdef LS_AMX

enum {
    UNITS = 32,           /* of work, about */
    PIXELS = 24 * K,      /* of a part, at least: its sums are read and written once a chunk */
    SUMS_BYTES = 32 << 20 /* of all parts, at most */
};

struct plan {
    struct planes src;
    int64_t n_planes, taps;
    int64_t strip, strips;      /* rows of a segment; segments of a sample */
    int64_t flat, chunk;        /* pixels of a segment; segments of a chunk */
    int64_t parts, block_parts; /* of the segments; of the inputs' blocks */
    int64_t blocks;             /* of a part of the inputs, at most */
    int64_t x_pixels;           /* of a block's plane of inputs, a multiple of K */
    int64_t front, dy_pixels;   /* of a block of gradients; zeros before the first */
    size_t sums_bytes, x_bytes, dy_bytes, copy_bytes;
};

static void make_plan(const struct ls_conv *w, struct plan *p)
{
    int64_t s = w->stride, margin = (w->kernel_h - 1) / s, pitch = w->out_w + (w->kernel_w - 1) / s;
    *p = (struct plan){.n_planes = s * s, .taps = w->kernel_h * w->kernel_w};
    p->sums_bytes = (size_t)(w->in_blocks * w->out_blocks * p->taps) * B * B * sizeof(float);
    int64_t all = w->n * (w->out_h + margin) * pitch, few = max_of(1, SUMS_BYTES / (int64_t)p->sums_bytes);
    p->parts = max_of(1, min_of(UNITS, min_of(few, all / PIXELS)));
    p->block_parts = min_of((w->in_blocks + 1) / 2, (UNITS + p->parts - 1) / p->parts);
    p->blocks = up_to((w->in_blocks + p->block_parts - 1) / p->block_parts, 2);
    int64_t blocks = p->blocks * p->n_planes + w->out_blocks;
    int64_t pixels = max_of(2 * K, (int64_t)L2_BYTES / (blocks * (int64_t)PIXEL)); /* of a chunk */
    p->strip = max_of(1, min_of(w->out_h, pixels / pitch - margin));
    p->strips = (w->out_h + p->strip - 1) / p->strip;
    p->src = (struct planes){s, -w->pad_t, -w->pad_l, p->strip + margin, pitch};
    p->flat = p->src.rows * pitch;
    p->parts = min_of(p->parts, w->n * p->strips);
    int64_t segments = (w->n * p->strips + p->parts - 1) / p->parts;
    p->chunk = max_of(1, min_of(segments, pixels / p->flat));
    p->x_pixels = up_to(p->chunk * p->flat, K);
    p->front = p->taps > 1 ? up_to((margin + 1) * pitch, 2) : 0;
    p->dy_pixels = p->front + p->x_pixels;
    p->x_bytes = (size_t)(p->blocks * p->n_planes * p->x_pixels) * PIXEL;
    p->dy_bytes = (size_t)(w->out_blocks * p->dy_pixels * (p->taps > 1 ? 2 : 1)) * PIXEL;
    p->copy_bytes = (size_t)(1 + p->dy_pixels) * PIXEL;
}

/* --- copies ------------------------------------------------------------------------------------------------------ */

/* Blocks [block, end) of the inputs of segments [first, first + count), transposed. `copy` has room for one plane of them. */
static void copy_inputs(const struct ls_conv *w, const struct plan *p, int64_t first, int64_t count, int64_t block,
                        int64_t end, E *copy, E *x)
{
    int64_t area = w->in_h * w->in_w;
    for (int64_t k = block; k < end; k++)
        for (int64_t q = 0; q < p->n_planes; q++, x += p->x_pixels * B) {
            for (int64_t i = 0; i < count; i++) {
                int64_t n = (first + i) / p->strips, row = (first + i) % p->strips * p->strip;
                copy_plane(&p->src, q / p->src.step, q % p->src.step, row, p->src.rows,
                           (const E *)w->in + (n * w->in_blocks + k) * area * B, w->in_h, w->in_w, B,
                           copy + i * p->flat * B);
            }
            memset(copy + count * p->flat * B, 0, (size_t)(p->x_pixels - count * p->flat) * PIXEL);
            for (int64_t i = 0; i < p->x_pixels; i += 16)
                transpose(copy + i * B, x + i / K * K * B + i % K);
        }
}

/* The gradients of these segments, at the pitch of the inputs, with zeros before and between. A tap reads them as many
 * pixels earlier as its shift says, which are whole pairs in one of two copies: pixels (0, 1), (2, 3) ... and pixels
 * (-1, 0), (1, 2) ... */
static void copy_gradients(const struct ls_conv *w, const struct plan *p, int64_t first, int64_t count, E *copy, E *dy)
{
    int64_t area = w->out_h * w->out_w;
    for (int64_t m = 0; m < w->out_blocks; m++, dy += p->dy_pixels * B * (p->taps > 1 ? 2 : 1)) {
        memset(copy, 0, (size_t)(1 + p->dy_pixels) * PIXEL);
        for (int64_t i = 0; i < count; i++) {
            int64_t n = (first + i) / p->strips, row = (first + i) % p->strips * p->strip;
            const E *from = (const E *)w->out + ((n * w->out_blocks + m) * area + row * w->out_w) * B;
            for (int64_t y = 0; y < min_of(p->strip, w->out_h - row); y++)
                memcpy(copy + (1 + p->front + i * p->flat + y * p->src.pitch) * B, from + y * w->out_w * B,
                       (size_t)w->out_w * PIXEL);
        }
        pair_up(copy + B, p->dy_pixels, dy);
        if (p->taps > 1)
            pair_up(copy, p->dy_pixels, dy + p->dy_pixels * B);
    }
}

/* --- sums -------------------------------------------------------------------------------------------------------- */

/* Adds `pixels` pixels of two blocks of inputs by two blocks of gradients to four sums. */
AMX static void accumulate(const E *x0, const E *x1, const E *dy0, const E *dy1, int64_t pixels, float *c[4],
                           bool fresh)
{
    if (fresh) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, c[0], 64);
        _tile_loadd(1, c[1], 64);
        _tile_loadd(2, c[2], 64);
        _tile_loadd(3, c[3], 64);
    }

    for (int64_t i = 0; i < pixels; i += K) {
        _tile_loadd(4, x0 + i * B, 64);
        _tile_loadd(5, x1 + i * B, 64);
        _tile_loadd(6, dy0 + i * B, 64);
        _tile_loadd(7, dy1 + i * B, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c[0], 64);
    _tile_stored(1, c[1], 64);
    _tile_stored(2, c[2], 64);
    _tile_stored(3, c[3], 64);
}

/* All pairs of blocks and taps of one chunk. With an odd number of blocks the last one is computed twice. */
static void add_chunk(const struct ls_conv *w, const struct plan *p, const E *x, const E *dy, int64_t block,
                      int64_t end, float *sums, bool fresh)
{
    float unused[2][B * B] __attribute__((aligned(64)));
    int64_t x_block = p->n_planes * p->x_pixels * B, dy_block = p->dy_pixels * B * (p->taps > 1 ? 2 : 1), s = w->stride;
    for (int64_t m = 0; m < w->out_blocks; m += 2)
        for (int64_t k = block; k < end; k += 2)
            for (int64_t t = 0; t < p->taps; t++) {
                int64_t ky = t / w->kernel_w, kx = t % w->kernel_w, plane = (ky % s) * s + kx % s;
                int64_t from = p->front - ((ky / s) * p->src.pitch + kx / s); /* the gradient's first pixel */
                bool two_k = k + 1 < end, two_m = m + 1 < w->out_blocks;
                const E *x0 = x + (k - block) * x_block + plane * p->x_pixels * B, *x1 = two_k ? x0 + x_block : x0;
                const E *dy0 = dy + m * dy_block + (from % 2 ? p->dy_pixels + from + 1 : from) * B;
                const E *dy1 = two_m ? dy0 + dy_block : dy0;
                float *c00 = sums + ((m * w->in_blocks + k) * p->taps + t) * B * B;
                float *c01 = two_m ? c00 + w->in_blocks * p->taps * B * B : unused[0];
                float *c10 = two_k ? c00 + p->taps * B * B : unused[1];
                float *c11 = two_k && two_m ? c01 + p->taps * B * B : unused[0];
                accumulate(x0, x1, dy0, dy1, p->x_pixels, (float *[]){c00, c01, c10, c11}, fresh);
            }
}

static void one_unit(const struct ls_conv *w, const struct plan *p, int64_t part, int64_t block_part, float *sums,
                     char *room)
{
    E *x = (E *)room, *dy = (E *)(room + p->x_bytes), *copy = (E *)(room + p->x_bytes + p->dy_bytes);
    int64_t segments = w->n * p->strips, end = segments * (part + 1) / p->parts, first = segments * part / p->parts;
    int64_t pairs = (w->in_blocks + 1) / 2;
    int64_t block = pairs * block_part / p->block_parts * 2;
    int64_t last = min_of(w->in_blocks, pairs * (block_part + 1) / p->block_parts * 2);
    for (int64_t i = first; i < end; i += p->chunk) {
        int64_t count = min_of(p->chunk, end - i);
        copy_inputs(w, p, i, count, block, last, copy, x);
        copy_gradients(w, p, i, count, copy, dy);
        add_chunk(w, p, x, dy, block, last, sums, i == first);
    }
}

static void add_parts(const struct ls_conv *w, const struct plan *p, const float *sums)
{
    int64_t count = (int64_t)(p->sums_bytes / sizeof(float));
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; i += B) {
        vf total = vloadf(sums + i);
        for (int64_t part = 1; part < p->parts; part++)
            total += vloadf(sums + part * count + i);
        vstoref(w->weights + i, total);
    }
}

void LS_KERNEL_NAME(amx_weights)(const struct ls_conv *w)
{
    struct plan p;
    make_plan(w, &p);
    float *sums = w->scratch;
    char *rooms = (char *)w->scratch + p.sums_bytes * (size_t)p.parts;
    size_t room = p.x_bytes + p.dy_bytes + p.copy_bytes;
#pragma omp parallel num_threads(w->threads)
    {
        tiles_open(&ls_amx_whole);
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t part = 0; part < p.parts; part++)
            for (int64_t blocks = 0; blocks < p.block_parts; blocks++)
                one_unit(w, &p, part, blocks, sums + (size_t)part * (p.sums_bytes / sizeof(float)),
                         rooms + (size_t)omp_get_thread_num() * room);
        tiles_close();
        add_parts(w, &p, sums);
        if (w->bias)
            bias_gradient(w);
    }
}

size_t LS_KERNEL_NAME(amx_weights_scratch)(const struct ls_conv *w)
{
    struct plan p;
    make_plan(w, &p);
    return p.sums_bytes * (size_t)p.parts + (p.x_bytes + p.dy_bytes + p.copy_bytes) * (size_t)w->threads;
}

#endif
