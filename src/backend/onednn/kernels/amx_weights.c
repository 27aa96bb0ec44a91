/* The gradient of a convolution's weights by AMX: for each tap and pair of blocks the sum over all pixels of input times
 * gradient. A tile of A has 16 inputs of a block at 32 pixels, so the inputs are transposed; B has 32 pixels of a block of
 * gradients; C is the gradient of the weights as it is stored.
 *
 * The results' rows of all samples are cut into segments. A unit of work is a part of the segments, some blocks of inputs and
 * some of results. Its sums stay in the L2 cache, and so do its pixels, which are copied and transposed by chunks. Segments and
 * parts depend on the shape alone, and parts are added in their order; how blocks are cut and pixels grouped in chunks changes
 * no order of sums (LOOP-1). */
#include "backend/onednn/kernels/amx.h"

#include <omp.h>

#ifdef LS_AMX

enum {
    UNITS = 32,            /* of work, about */
    PIXELS = 48 * K,       /* of a part, at least: its sums are written and read once more */
    UNIT_BYTES = 320 << 10 /* of a unit's sums, at most */
};

struct plan {
    struct planes src;
    int64_t n_planes, taps;
    int64_t strip, strips;    /* rows of a segment; segments of a sample */
    int64_t flat, chunk;      /* pixels of a segment; segments of a chunk */
    int64_t parts;            /* of the segments */
    int64_t in, out;          /* blocks of inputs and of results of a unit, at most; even */
    int64_t x_pixels;         /* of a block's plane of inputs, a multiple of K */
    int64_t front, dy_pixels; /* of a block of gradients; zeros before the first */
    size_t sums_bytes, x_bytes, dy_bytes, copy_bytes;
};

/* Blocks of inputs and results of a unit: about as many of each, so that copies of either are used often. */
static void cut_blocks(const struct ls_conv *w, struct plan *p)
{
    int64_t pairs = max_of(4, UNIT_BYTES / (p->taps * B * B * (int64_t)sizeof(float))), side = 2;
    int64_t in = up_to(w->in_blocks, 2), out = up_to(w->out_blocks, 2);
    while ((side + 2) * (side + 2) <= pairs)
        side += 2;
    p->in = min_of(in, max_of(side, pairs / out / 2 * 2));
    p->out = min_of(out, max_of(2, pairs / p->in / 2 * 2));
}

/* The number of units that share a part. */
static int64_t units_of(const struct ls_conv *w, const struct plan *p)
{
    return (w->in_blocks + p->in - 1) / p->in * ((w->out_blocks + p->out - 1) / p->out);
}

/* The pixels of a chunk, at most. */
static int64_t pixels_of(const struct plan *p)
{
    int64_t blocks = p->in * p->n_planes + p->out * (p->taps > 1 ? 2 : 1);
    return max_of(2 * K, (int64_t)L2_BYTES / (blocks * (int64_t)PIXEL));
}

static void make_plan(const struct ls_conv *w, struct plan *p)
{
    int64_t s = w->stride, margin = (w->kernel_h - 1) / s, pitch = w->out_w + (w->kernel_w - 1) / s;
    *p = (struct plan){.n_planes = s * s, .taps = w->kernel_h * w->kernel_w};
    p->sums_bytes = (size_t)(w->in_blocks * w->out_blocks * p->taps) * B * B * sizeof(float);
    cut_blocks(w, p);
    int64_t all = w->n * (w->out_h + margin) * pitch, units = units_of(w, p);
    p->parts = max_of(1, min_of((UNITS + units - 1) / units, all / PIXELS));
    p->strip = max_of(1, min_of(w->out_h, pixels_of(p) / pitch - margin));
    p->strips = (w->out_h + p->strip - 1) / p->strip;
    p->src = (struct planes){s, -w->pad_t, -w->pad_l, p->strip + margin, pitch};
    p->flat = p->src.rows * pitch;
    p->parts = min_of(p->parts, w->n * p->strips);
    while (w->threads > 1 && p->parts * units_of(w, p) < 2 * w->threads && p->in + p->out > 4) {
        int64_t *more = p->in > p->out ? &p->in : &p->out;
        *more = up_to(*more / 2, 2);
    }
    int64_t segments = (w->n * p->strips + p->parts - 1) / p->parts;
    p->chunk = max_of(1, min_of(segments, pixels_of(p) / p->flat));
    p->x_pixels = up_to(p->chunk * p->flat, K);
    p->front = p->taps > 1 ? up_to((margin + 1) * pitch, 2) : 0;
    p->dy_pixels = p->front + p->x_pixels;
    p->x_bytes = (size_t)(p->in * p->n_planes * p->x_pixels) * PIXEL;
    p->dy_bytes = (size_t)(p->out * p->dy_pixels * (p->taps > 1 ? 2 : 1)) * PIXEL;
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

/* Blocks [block, end) of the gradients of these segments, at the pitch of the inputs, with zeros before and between. A
 * tap reads them as many pixels earlier as its shift says, which are whole pairs in one of two copies: pixels (0, 1),
 * (2, 3) ... and pixels (-1, 0), (1, 2) ... */
static void copy_gradients(const struct ls_conv *w, const struct plan *p, int64_t first, int64_t count, int64_t block,
                           int64_t end, E *copy, E *dy)
{
    int64_t area = w->out_h * w->out_w;
    for (int64_t m = block; m < end; m++, dy += p->dy_pixels * B * (p->taps > 1 ? 2 : 1)) {
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
    if (fresh)
        sums_clear();
    else
        sums_load(c);

    for (int64_t i = 0; i < pixels; i += K) {
        sums_add(x0 + i * B, x1 + i * B, 64, dy0 + i * B, dy1 + i * B);
    }
    sums_store(c);
}

/* Blocks of inputs and of results: [first, end). */
struct unit {
    int64_t k, k_end, m, m_end;
};

/* All pairs of a unit's blocks and taps of one chunk. With an odd number of blocks the last one is computed twice. */
static void add_chunk(const struct ls_conv *w, const struct plan *p, const E *x, const E *dy, const struct unit *u,
                      float *sums, bool fresh)
{
    float unused[2][B * B] __attribute__((aligned(64)));
    int64_t x_block = p->n_planes * p->x_pixels * B, dy_block = p->dy_pixels * B * (p->taps > 1 ? 2 : 1), s = w->stride;
    for (int64_t m = u->m; m < u->m_end; m += 2)
        for (int64_t k = u->k; k < u->k_end; k += 2)
            for (int64_t t = 0; t < p->taps; t++) {
                int64_t ky = t / w->kernel_w, kx = t % w->kernel_w, plane = (ky % s) * s + kx % s;
                int64_t from = p->front - ((ky / s) * p->src.pitch + kx / s); /* the gradient's first pixel */
                bool two_k = k + 1 < u->k_end, two_m = m + 1 < u->m_end;
                const E *x0 = x + (k - u->k) * x_block + plane * p->x_pixels * B, *x1 = two_k ? x0 + x_block : x0;
                const E *dy0 = dy + (m - u->m) * dy_block + (from % 2 ? p->dy_pixels + from + 1 : from) * B;
                const E *dy1 = two_m ? dy0 + dy_block : dy0;
                float *c00 = sums + ((m * w->in_blocks + k) * p->taps + t) * B * B;
                float *c01 = two_m ? c00 + w->in_blocks * p->taps * B * B : unused[0];
                float *c10 = two_k ? c00 + p->taps * B * B : unused[1];
                float *c11 = two_k && two_m ? c01 + p->taps * B * B : unused[0];
                accumulate(x0, x1, dy0, dy1, p->x_pixels, (float *[]){c00, c01, c10, c11}, fresh);
            }
}

static void one_unit(const struct ls_conv *w, const struct plan *p, int64_t part, const struct unit *u, float *sums,
                     char *room)
{
    E *x = (E *)room, *dy = (E *)(room + p->x_bytes), *copy = (E *)(room + p->x_bytes + p->dy_bytes);
    int64_t segments = w->n * p->strips, end = segments * (part + 1) / p->parts, first = segments * part / p->parts;
    for (int64_t i = first; i < end; i += p->chunk) {
        int64_t count = min_of(p->chunk, end - i);
        copy_inputs(w, p, i, count, u->k, u->k_end, copy, x);
        copy_gradients(w, p, i, count, u->m, u->m_end, copy, dy);
        add_chunk(w, p, x, dy, u, sums, i == first);
    }
}

static void add_parts(const struct ls_conv *w, const struct plan *p, const float *sums)
{
    int64_t count = (int64_t)(p->sums_bytes / sizeof(float));
    if (p->parts == 1)
        return;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; i += B) {
        vf total = vloadf(sums + i);
        for (int64_t part = 1; part < p->parts; part++)
            total += vloadf(sums + part * count + i);
        vstoref(w->weights + i, total);
    }
}

/* The sums of one part alone are the result. */
static size_t sums_scratch(const struct plan *p)
{
    return p->parts > 1 ? p->sums_bytes * (size_t)p->parts : 0;
}

void LS_KERNEL_NAME(amx_weights)(const struct ls_conv *w)
{
    struct plan p;
    make_plan(w, &p);
    float *sums = p.parts > 1 ? w->scratch : w->weights;
    char *rooms = (char *)w->scratch + sums_scratch(&p);
    size_t room = p.x_bytes + p.dy_bytes + p.copy_bytes;
#pragma omp parallel num_threads(w->threads)
    {
        tiles_open(&ls_amx_whole);
#pragma omp for collapse(3) schedule(dynamic)
        for (int64_t part = 0; part < p.parts; part++)
            for (int64_t m = 0; m < w->out_blocks; m += p.out)
                for (int64_t k = 0; k < w->in_blocks; k += p.in) {
                    struct unit u = {k, min_of(w->in_blocks, k + p.in), m, min_of(w->out_blocks, m + p.out)};
                    one_unit(w, &p, part, &u, sums + (size_t)part * (p.sums_bytes / sizeof(float)),
                             rooms + (size_t)omp_get_thread_num() * room);
                }
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
    return sums_scratch(&p) + (p.x_bytes + p.dy_bytes + p.copy_bytes) * (size_t)w->threads;
}

#endif
