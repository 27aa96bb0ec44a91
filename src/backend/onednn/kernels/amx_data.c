/* Convolutions forward and back to the inputs by AMX. A tile of A has 16 pixels of two blocks of inputs, B has the
 * weights of one tap between these and a block of results, C has 16 pixels of one block of results. Two tiles of pixels by
 * two blocks of results are computed at a time. Each result is summed over pairs of blocks, then taps, in this order
 * (LOOP-1). */
#include "backend/onednn/kernels/amx.h"

#include <omp.h>

#ifdef LS_AMX

enum {
    WIDE = 2 * PIXEL, /* bytes of a pair of blocks at one pixel */
    TILE = 1024       /* bytes */
};

/* A tap as a result's pixel sees it: the plane it reads, how many pixels later, and the number of its weights. */
struct tap {
    int64_t plane, shift;
    int weights;
};

/* The results of one phase: pixels (y + i * step, x + j * step) for i < rows, j < cols. A forward pass has one phase, and
 * the gradient of a convolution of stride s has s * s, each with taps of its own. */
struct phase {
    int64_t y, x, rows, cols;
    int n_taps;
    struct tap taps[LS_AMX_TAPS];
};

struct plan {
    struct planes src;
    int64_t n_planes, step; /* step: between the results of a phase */
    int n_phases;
    struct phase phases[LS_AMX_TAPS];
    int64_t rows, strips, strip; /* rows of a phase, at most; they are cut into strips */
    int64_t margin;              /* rows of a plane beyond those of the results */
    int64_t pairs;               /* of blocks of inputs */
    size_t plane_bytes, weights_bytes;
};

/* How far the taps of a gradient reach: input i of phase p takes the gradient of result i + (p + pad - k) / stride. */
static int64_t reach(int64_t p, int64_t pad, int64_t k, int64_t stride)
{
    int64_t d = p + pad - k;
    return (d - ((d % stride) + stride) % stride) / stride;
}

static void plan_forward(const struct ls_conv *w, struct plan *p)
{
    int64_t s = w->stride;
    p->n_phases = 1;
    p->step = 1;
    p->n_planes = s * s;
    p->margin = (w->kernel_h - 1) / s;
    p->src = (struct planes){s, -w->pad_t, -w->pad_l, w->out_h + p->margin, w->out_w + (w->kernel_w - 1) / s};
    struct phase *f = &p->phases[0];
    *f = (struct phase){.rows = w->out_h, .cols = w->out_w};
    for (int64_t ky = 0; ky < w->kernel_h; ky++)
        for (int64_t kx = 0; kx < w->kernel_w; kx++, f->n_taps++)
            f->taps[f->n_taps] = (struct tap){.plane = (ky % s) * s + kx % s,
                                              .shift = (ky / s) * p->src.pitch + kx / s,
                                              .weights = (int)(ky * w->kernel_w + kx)};
}

static void plan_gradient(const struct ls_conv *w, struct plan *p)
{
    int64_t s = w->stride, rows = (w->out_h + s - 1) / s, cols = (w->out_w + s - 1) / s;
    int64_t up = min_of(0, reach(0, w->pad_t, w->kernel_h - 1, s)),
            left = min_of(0, reach(0, w->pad_l, w->kernel_w - 1, s));
    int64_t down = max_of(0, reach(s - 1, w->pad_t, 0, s)), right = max_of(0, reach(s - 1, w->pad_l, 0, s));
    p->n_planes = 1;
    p->step = s;
    p->margin = down - up;
    p->src = (struct planes){1, up, left, rows + p->margin, cols + right - left};
    for (int64_t y = 0; y < s && y < w->out_h; y++)
        for (int64_t x = 0; x < s && x < w->out_w; x++) {
            struct phase *f = &p->phases[p->n_phases++];
            *f = (struct phase){y, x, (w->out_h - y + s - 1) / s, (w->out_w - x + s - 1) / s, .n_taps = 0};
            for (int64_t ky = 0; ky < w->kernel_h; ky++)
                for (int64_t kx = 0; kx < w->kernel_w; kx++)
                    if ((y + w->pad_t - ky) % s == 0 && (x + w->pad_l - kx) % s == 0)
                        f->taps[f->n_taps++] = (struct tap){.shift = (reach(y, w->pad_t, ky, s) - up) * p->src.pitch +
                                                                     reach(x, w->pad_l, kx, s) - left,
                                                            .weights = (int)(ky * w->kernel_w + kx)};
        }
}

static size_t bytes_of_plane(const struct plan *p, int64_t rows)
{
    return (size_t)((rows + p->margin) * p->src.pitch + p->src.pitch + 2 * ROWS) * WIDE;
}

static void make_plan(const struct ls_conv *w, struct plan *p)
{
    *p = (struct plan){.n_phases = 0};
    if (w->pass == LS_CONV_FORWARD)
        plan_forward(w, p);
    else
        plan_gradient(w, p);
    p->pairs = (w->in_blocks + 1) / 2;
    p->rows = p->src.rows - p->margin;
    /* Strips fit into the L2 cache, and there are enough of them for all threads. */
    size_t row = (size_t)(p->pairs * p->n_planes * p->src.pitch) * WIDE;
    p->strip = max_of(1, min_of(p->rows, (int64_t)(L2_BYTES / row) - p->margin));
    while (p->strip > 1 && w->n * ((p->rows + p->strip - 1) / p->strip) < 2 * w->threads)
        p->strip = (p->strip + 1) / 2;
    p->strips = (p->rows + p->strip - 1) / p->strip;
    p->plane_bytes = bytes_of_plane(p, p->strip);
    p->weights_bytes = (size_t)(p->pairs * w->out_blocks * w->kernel_h * w->kernel_w) * TILE;
}

/* --- weights ----------------------------------------------------------------------------------------------------- */

/* Packed weights: tiles [phase][block of results][pair of blocks of inputs][tap of the phase]. */
static void pack_weights(const struct ls_conv *w, const struct plan *p, E *packed)
{
    bool forward = w->pass == LS_CONV_FORWARD;
    int64_t taps = w->kernel_h * w->kernel_w, before = 0;
    for (int f = 0; f < p->n_phases; f++) {
        const struct phase *phase = &p->phases[f];
#pragma omp for collapse(2) schedule(static) nowait
        for (int64_t m = 0; m < w->out_blocks; m++)
            for (int64_t k = 0; k < 2 * p->pairs; k++)
                for (int t = 0; t < phase->n_taps; t++) {
                    int64_t blocks = forward ? m * w->in_blocks + k : k * w->out_blocks + m;
                    E *to = packed + ((before + (m * p->pairs + k / 2) * phase->n_taps + t) * 2 + k % 2) * B * B;
                    if (k < w->in_blocks)
                        pack_tap(forward, w->weights + (blocks * taps + phase->taps[t].weights) * B * B, to);
                    else
                        memset(to, 0, B * B * sizeof(E));
                }
        before += w->out_blocks * p->pairs * phase->n_taps;
    }
}

/* --- products ---------------------------------------------------------------------------------------------------- */

/* 32 pixels by two blocks of results. `pair` and `plane` are distances in bytes. */
AMX static void multiply(const struct phase *f, int64_t pairs, const char *x, size_t pair, size_t plane, const E *w0,
                         const E *w1, float c[4][ROWS * B])
{
    sums_clear();
    for (int64_t k = 0; k < pairs; k++, x += pair)
        for (int t = 0; t < f->n_taps; t++, w0 += 2 * B * B, w1 += 2 * B * B) {
            const char *at = x + (size_t)f->taps[t].plane * plane + f->taps[t].shift * WIDE;
            sums_add(at, at + ROWS * WIDE, WIDE, w0, w1);
        }
    sums_store((float *[]){c[0], c[1], c[2], c[3]});
}

/* Where the results of a strip go. */
struct target {
    const struct phase *phase;
    int64_t row, rows, pitch, step, width; /* rows [row, row + rows) of the phase; the map's width */
    enum ls_act act;
};

INLINE void store_tile(const struct target *t, enum ls_act act, int64_t pixel, const float *c, vf bias, E *map)
{
    int64_t y = pixel / t->pitch, x = pixel % t->pitch, cols = t->phase->cols;
    int64_t at = (t->phase->y + (t->row + y) * t->step) * t->width + t->phase->x + x * t->step;
    bool joined = cols == t->pitch && t->step == 1; /* one row follows the other */
    if (pixel + ROWS <= t->rows * t->pitch && (joined || x + ROWS <= cols)) {
        for (int r = 0; r < ROWS; r++)
            store(map + (at + r * t->step) * B, activate(act, vloadf(c + r * B) + bias));
        return;
    }
    for (int r = 0; r < ROWS && y < t->rows; r++) {
        if (x < cols)
            store(map + at * B, activate(act, vloadf(c + r * B) + bias));
        at += t->step;
        if (++x == t->pitch) {
            x = 0;
            y++;
            at = (t->phase->y + (t->row + y) * t->step) * t->width + t->phase->x;
        }
    }
}

static void store_tiles(const struct target *t, int64_t pixel, float c[4][ROWS * B], int blocks, const float *bias,
                        E *map, int64_t area)
{
    for (int m = 0; m < blocks; m++) {
        vf shift = bias ? vloadf(bias + m * B) : vset(0.0f);
        for (int half = 0; half < 2; half++) {
#define STORE(act) store_tile(t, act, pixel + half * ROWS, c[2 * half + m], shift, map + m * area * B)
            FOR_EACH_ACT(t->act, STORE)
        }
    }
}

/* Rows [row, row + rows) of all results of a sample. */
static void one_strip(const struct ls_conv *w, const struct plan *p, int64_t n, int64_t row, const E *packed,
                      char *planes)
{
    int64_t area = w->in_h * w->in_w, out_area = w->out_h * w->out_w, strip = min_of(p->strip, p->rows - row);
    size_t plane = p->plane_bytes, pair = plane * (size_t)p->n_planes;
    for (int64_t k = 0; k < 2 * p->pairs; k++)
        for (int64_t q = 0; q < p->n_planes; q++)
            copy_plane(&p->src, q / p->src.step, q % p->src.step, row, strip + p->margin,
                       k < w->in_blocks ? (const E *)w->in + (n * w->in_blocks + k) * area * B : NULL, w->in_h, w->in_w,
                       2 * B, (E *)(planes + (size_t)(k / 2) * pair + (size_t)q * plane) + k % 2 * B);
    for (int f = 0; f < p->n_phases; f++) {
        const struct phase *phase = &p->phases[f];
        struct target t = {phase, row, min_of(strip, phase->rows - row), p->src.pitch, p->step, w->out_w, w->act};
        int64_t weights = p->pairs * phase->n_taps * 2 * B * B;
        for (int64_t m = 0; m < w->out_blocks; m += 2) {
            int blocks = m + 1 < w->out_blocks ? 2 : 1;
            const E *w0 = packed + m * weights, *w1 = blocks == 2 ? w0 + weights : w0;
            E *map = (E *)w->out + (n * w->out_blocks + m) * out_area * B;
            for (int64_t pixel = 0; pixel < t.rows * t.pitch; pixel += 2 * ROWS) {
                float c[4][ROWS * B] __attribute__((aligned(64)));
                multiply(phase, p->pairs, planes + pixel * WIDE, pair, plane, w0, w1, c);
                store_tiles(&t, pixel, c, blocks, w->bias ? w->bias + m * B : NULL, map, out_area);
            }
        }
        packed += w->out_blocks * weights;
    }
}

void LS_KERNEL_NAME(amx_data)(const struct ls_conv *w)
{
    struct plan p;
    make_plan(w, &p);
    E *packed = w->scratch;
    char *planes = (char *)w->scratch + p.weights_bytes;
    size_t own = p.plane_bytes * (size_t)(p.n_planes * p.pairs);
#pragma omp parallel num_threads(w->threads)
    {
        pack_weights(w, &p, packed);
#pragma omp barrier
        tiles_open(&ls_amx_whole);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < w->n * p.strips; i++)
            one_strip(w, &p, i / p.strips, i % p.strips * p.strip, packed, planes + (size_t)omp_get_thread_num() * own);
        tiles_close();
    }
}

size_t LS_KERNEL_NAME(amx_data_scratch)(const struct ls_conv *w)
{
    struct plan p;
    make_plan(w, &p);
    return p.weights_bytes + p.plane_bytes * (size_t)(p.n_planes * p.pairs * w->threads);
}

#endif
