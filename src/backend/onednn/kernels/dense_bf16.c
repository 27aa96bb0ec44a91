/* Large dense layers (graph/split.h) in bf16: activations are bf16, weights and their gradients f32, and sums are made in f32.
 * As in dense.c, bits depend neither on the layout of the weights, nor on how many of a layer's rows are here, nor on the
 * number of threads (LOOP-1). A result of the forward pass is the sum over the inputs in their order. A gradient of the inputs
 * is the sum over chunks of rows along their tree, in f32, and is rounded when it is complete. Within a chunk the order is that
 * of the rows.
 *
 * Forward and back to the inputs, samples are on the left of a product (dense_tiles.h). They are copied into tiles
 * once. Weights are on the right: a thread takes some tiles of columns and rounds DEPTH tiles of their depth to bf16,
 * which stay in the L2 cache. For the gradient of the weights, the depth is the samples. */
#include "backend/onednn/kernels/dense_tiles.h"
#include "backend/onednn/kernels/table.h"

#include <omp.h>

#ifdef LS_DENSE_TILES

enum {
    DEPTH = 8, /* tiles of the depth that are packed at a time */
    MOST = 16,
    LEAST = 4, /* tiles of columns that a thread takes at a time */
    HIGH = 32, /* tiles of rows, in the gradient of the weights */
    LEVELS = 4 /* unfinished sums of a tree of 8 chunks, and the chunk being computed */
};

/* --- forward, and back to the inputs ------------------------------------------------------------------------------ */

/* The depth in parts that are summed by themselves: all inputs, or a chunk of rows each. */
static int64_t part_depth(const struct ls_dense *d)
{
    return forward_pass(d) ? d->inputs : d->range.chunk;
}
static int64_t parts_of(const struct ls_dense *d)
{
    return forward_pass(d) ? 1 : d->range.end - d->range.first;
}
static int64_t part_end(const struct ls_dense *d, int64_t part)
{
    return min_of((part + 1) * part_depth(d), forward_pass(d) ? d->inputs : d->rows);
}
/* Tiles on the left: [tile of samples][part][tile of its depth]. */
static int64_t part_tiles(const struct ls_dense *d)
{
    return tiles_of(part_depth(d), DEEP);
}

static void pack_samples(const struct ls_dense *d, int64_t tile, int64_t part, E *to)
{
    int64_t width = forward_pass(d) ? d->inputs : d->rows, end = part_end(d, part);
    for (int64_t at = part * part_depth(d); at < end; at += DEEP)
        for (int64_t n = tile * SIDE; n < (tile + 1) * SIDE; n++, to += DEEP) {
            const E *from = (const E *)d->in + n * width + at;
            _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(n < d->n ? mask_of(end - at) : 0, from));
        }
}

/* Columns that a thread takes at a time, for the same pass over the samples. */
struct columns {
    int64_t first, n, tiles;
};

/* sums = the sum over a part of the depth. */
static void sum_over(const struct ls_dense *d, const struct method *m, const E *samples, int64_t part,
                     const struct columns *c, E *packed, float *sums)
{
    bool by_rows = (d->block == 0) != forward_pass(d);
    int64_t from = part * part_depth(d), end = part_end(d, part), all = tiles_of(end - from, DEEP),
            tile = part_tiles(d);
    int64_t left_step = parts_of(d) * tile * TILE, left_tiles = tiles_of(d->n, SIDE);
    for (int64_t k = 0; k < all; k += DEPTH) {
        struct product p = {
            .deep = min_of(DEPTH, all - k), .left_step = left_step, .to_step = c->tiles * SUMS, .first = k == 0};
        p.right_step = p.deep * TILE;
        for (int64_t i = 0; i < p.deep; i++)
            for (int64_t t = 0; t < c->tiles; t++)
                (by_rows ? pack_by_rows : pack_by_columns)(d, from + (k + i) * DEEP, end, c->first + t * SIDE,
                                                           c->n - t * SIDE, packed + (t * p.deep + i) * TILE);
        for (int64_t s = 0; s < left_tiles; s += 2)
            for (int64_t t = 0; t < c->tiles; t += 2) {
                p.two = s + 1 < left_tiles;
                p.rows = min_of(d->n - s * SIDE, 2 * SIDE);
                p.pairs = p.deep * (DEEP / 2);
                p.left = samples + s * left_step + (part * tile + k) * TILE;
                p.right = packed + t * p.right_step;
                p.to = sums + (s * c->tiles + t) * SUMS;
                m->multiply(&p);
            }
    }
}

/* Calls body with 16 sums of a sample: n, column, count: how many of them there are. */
#define FOR_EACH_SUM(d, c, sums, body)                                                      \
    for (int64_t n = 0; n < (d)->n; n++)                                                    \
        for (int64_t t = 0; t * SIDE < (c)->n; t++) {                                       \
            vf sum = vloadf((sums) + (n / SIDE * (c)->tiles + t) * SUMS + n % SIDE * SIDE); \
            int64_t column = (c)->first + t * SIDE;                                         \
            uint32_t here = mask_of(min_of(SIDE, (c)->n - t * SIDE));                       \
            body                                                                            \
        }

static void forward(const struct ls_dense *d, const struct method *m, const E *samples, const struct columns *c,
                    E *packed, float *sums)
{
    sum_over(d, m, samples, 0, c, packed, sums);
    FOR_EACH_SUM(d, c, sums, {
        if (d->bias)
            sum += (vf)_mm512_maskz_loadu_ps((__mmask16)here, d->bias + column);
        _mm256_mask_storeu_epi16((E *)d->out + n * d->rows + column, (__mmask16)here, bf16_of(activate(d->act, sum)));
    })
}

static void write_part(const struct ls_dense *d, const struct columns *c, const float *sums, int64_t part)
{
    FOR_EACH_SUM(d, c, sums, {
        int64_t at = (part * d->n + n) * d->inputs + column;
        if (d->sums)
            _mm512_mask_storeu_ps((float *)d->out + at, (__mmask16)here, (__m512)sum);
        else
            _mm256_mask_storeu_epi16((E *)d->out + at, (__mmask16)here, bf16_of(sum));
    })
}

/* Chunks come from left to right. Two neighbouring sums become one where they are the halves of a sum of the tree. */
static void backward(const struct ls_dense *d, const struct method *m, const E *samples, const struct columns *c,
                     E *packed, float *sums)
{
    const struct ls_split_range *range = &d->range;
    int64_t size = tiles_of(d->n, SIDE) * c->tiles * SUMS;
    int at[LEVELS + 1], depth = 0;
    for (int chunk = range->first; chunk < range->end; chunk++) {
        sum_over(d, m, samples, chunk - range->first, c, packed, sums + depth * size);
        for (at[depth++] = chunk; depth > 1; depth--) {
            float *to = sums + (depth - 2) * size;
            if (!ls_split_joins(at[depth - 2], at[depth - 1], chunk + 1, range->chunks))
                break;
            for (int64_t i = 0; i < size; i += B) /* rows of tiles; samples fill the first of them */
                if (i / (c->tiles * SUMS) * SIDE + i % SUMS / SIDE < d->n)
                    vstoref(to + i, vloadf(to + i) + vloadf(to + size + i));
        }
    }
    for (int part = 0; part < depth; part++)
        write_part(d, c, sums + part * size, part);
}

/* --- gradient of the weights -------------------------------------------------------------------------------------- */

/* dw' = x' dy or dw = dy' x, whichever has results that lie by rows: `wide` is the operand whose values are columns, `tall` the
 * one whose values are rows. */
struct outer {
    const E *wide, *tall;
    int64_t wides, talls;
};

static struct outer outer_of(const struct ls_dense *d)
{
    return d->block > 0 ? (struct outer){d->dy, d->in, d->rows, d->inputs}
                        : (struct outer){d->in, d->dy, d->inputs, d->rows};
}

/* The tiles of 16 values of all samples: on the right, or turned, on the left. */
static void pack_values(const struct ls_dense *d, const E *from, int64_t width, int64_t tile, bool left, E *to)
{
    __mmask16 here = (__mmask16)mask_of(min_of(SIDE, width - tile * SIDE));
    for (int64_t n = 0; n < d->n; n += DEEP, to += TILE) {
        vf lanes[SIDE];
        for (int i = 0; i < SIDE; i++) {
            const E *even = from + (n + 2 * i) * width + tile * SIDE;
            lanes[i] = pair(_mm256_maskz_loadu_epi16(n + 2 * i < d->n ? here : 0, even),
                            _mm256_maskz_loadu_epi16(n + 2 * i + 1 < d->n ? here : 0, even + width));
        }
        if (left)
            transpose_lanes(lanes);
        for (int i = 0; i < SIDE; i++)
            _mm512_storeu_si512(to + i * DEEP, (__m512i)lanes[i]);
    }
}

/* 16 rows of LEAST tiles of columns. In blocks, zeros are written where the layer has no rows. */
static void write_gradient(const struct ls_dense *d, const float *sums, int64_t tall, int64_t column)
{
    struct outer o = outer_of(d);
    float *out = d->out;
    for (int64_t i = 0; i < SIDE && tall + i < o.talls; i++)
        for (int t = 0; t < LEAST; t++) {
            __m512 sum = _mm512_loadu_ps(sums + t * SUMS + i * SIDE);
            if (d->block > 0) /* past the caches: it is not read soon */
                _mm512_stream_ps(out + (column / d->block * d->inputs + tall + i) * d->block + t * SIDE, sum);
            else
                _mm512_mask_storeu_ps(out + (tall + i) * o.wides + column + t * SIDE,
                                      (__mmask16)mask_of(min_of(SIDE, o.wides - column - t * SIDE)), sum);
        }
}

static void weights_gradient(const struct ls_dense *d, const struct method *m, const E *left, const E *right,
                             int64_t row, int64_t column)
{
    float sums[2 * LEAST * SUMS];
    int64_t deep = tiles_of(d->n, DEEP), end = min_of(row + HIGH, tiles_of(outer_of(d).talls, SIDE));
    struct product p = {.deep = deep,
                        .pairs = tiles_of(d->n, 2),
                        .left_step = deep * TILE,
                        .right_step = deep * TILE,
                        .to_step = LEAST * SUMS,
                        .first = true};
    for (; row < end; row += 2) {
        p.two = row + 1 < end;
        p.rows = p.two ? 2 * SIDE : SIDE;
        p.left = left + row * deep * TILE;
        for (int t = 0; t < LEAST; t += 2) {
            p.right = right + (column + t) * deep * TILE;
            p.to = sums + t * SUMS;
            m->multiply(&p);
        }
        for (int t = 0; t <= p.two; t++)
            write_gradient(d, sums + t * p.to_step, (row + t) * SIDE, column * SIDE);
    }
}

static void dense_bias(const struct ls_dense *d)
{
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t first = 0; first < d->rows; first += SIDE) {
        double sums[SIDE] = {0};
        int64_t end = min_of(SIDE, d->rows - first);
        for (int64_t n = 0; n < d->n; n++)
            for (int64_t i = 0; i < end; i++)
                sums[i] += (double)get((const E *)d->dy + n * d->rows + first + i);
        for (int64_t i = 0; i < end; i++)
            d->out_bias[first + i] = (float)sums[i];
    }
}

/* --- */

/* Tiles of columns that a thread takes at a time: many, so that samples are read seldom, but some for each thread. */
static int64_t tiles_at_a_time(const struct ls_dense *d)
{
    int64_t tiles = MOST, all = forward_pass(d) ? d->rows : d->inputs;
    while (tiles > LEAST && tiles_of(all, tiles * SIDE) < 4 * d->threads)
        tiles /= 2;
    return tiles;
}

/* Values on the left that all threads read; on the right in the gradient of the weights. */
static int64_t left_values(const struct ls_dense *d)
{
    return d->pass == LS_CONV_WEIGHTS ? tiles_of(outer_of(d).talls, SIDE) * tiles_of(d->n, DEEP) * TILE
                                      : tiles_of(d->n, SIDE) * parts_of(d) * part_tiles(d) * TILE;
}
static int64_t right_tiles(const struct ls_dense *d)
{
    return tiles_of(outer_of(d).wides, LEAST * SIDE) * LEAST;
}
/* Of one thread: packed weights and sums. */
static int64_t thread_sums(const struct ls_dense *d)
{
    return (forward_pass(d) ? 1 : LEVELS) * tiles_of(d->n, SIDE) * tiles_at_a_time(d) * SUMS;
}
static size_t thread_bytes(const struct ls_dense *d)
{
    return (size_t)(tiles_at_a_time(d) * DEPTH * TILE) * sizeof(E) + (size_t)thread_sums(d) * sizeof(float);
}

static size_t scratch(const struct ls_dense *d)
{
    size_t left = (size_t)left_values(d) * sizeof(E);
    return d->pass == LS_CONV_WEIGHTS ? left + (size_t)(right_tiles(d) * tiles_of(d->n, DEEP) * TILE) * sizeof(E)
                                      : left + thread_bytes(d) * (size_t)d->threads;
}

static void run_weights(const struct ls_dense *d, const struct method *m)
{
    struct outer o = outer_of(d);
    E *left = d->scratch, *right = left + left_values(d);
    int64_t rows = tiles_of(o.talls, SIDE), columns = right_tiles(d), values = tiles_of(d->n, DEEP) * TILE;
#pragma omp parallel num_threads(d->threads)
    {
#pragma omp for schedule(static)
        for (int64_t tile = 0; tile < rows + columns; tile++)
            if (tile < rows)
                pack_values(d, o.tall, o.talls, tile, true, left + tile * values);
            else
                pack_values(d, o.wide, o.wides, tile - rows, false, right + (tile - rows) * values);
        m->open();
#pragma omp for schedule(static) collapse(2)
        for (int64_t row = 0; row < rows; row += HIGH)
            for (int64_t column = 0; column < columns; column += LEAST)
                weights_gradient(d, m, left, right, row, column);
        m->close();
    }
    if (d->out_bias)
        dense_bias(d);
}

static void run_samples(const struct ls_dense *d, const struct method *m)
{
    E *left = d->scratch;
    char *own = (char *)(left + left_values(d));
    int64_t tiles = tiles_at_a_time(d), all = forward_pass(d) ? d->rows : d->inputs, parts = parts_of(d);
#pragma omp parallel num_threads(d->threads)
    {
        E *packed = (E *)(void *)(own + (size_t)omp_get_thread_num() * thread_bytes(d));
        float *sums = (float *)(void *)(packed + tiles * DEPTH * TILE);
#pragma omp for schedule(static) collapse(2)
        for (int64_t tile = 0; tile < tiles_of(d->n, SIDE); tile++)
            for (int64_t part = 0; part < parts; part++)
                pack_samples(d, tile, part, left + (tile * parts + part) * part_tiles(d) * TILE);
        m->open();
#pragma omp for schedule(static)
        for (int64_t first = 0; first < all; first += tiles * SIDE) {
            struct columns c = {first, min_of(tiles * SIDE, all - first), tiles};
            (forward_pass(d) ? forward : backward)(d, m, left, &c, packed, sums);
        }
        m->close();
    }
}

static void run_by(const struct ls_dense *d, const struct method *m)
{
    (d->pass == LS_CONV_WEIGHTS ? run_weights : run_samples)(d, m);
}

static void run_vectors(const struct ls_dense *d)
{
    run_by(d, &by_vectors);
}
#ifdef LS_AMX
static void run_amx(const struct ls_dense *d)
{
    run_by(d, &by_amx);
}
#endif

void LS_KERNEL_NAME(fill_dense)(struct ls_kernels *k)
{
    k->dense = (struct ls_dense_kernel){scratch, run_vectors};
#ifdef LS_AMX
    if (ls_amx_usable())
        k->dense_amx = (struct ls_dense_kernel){scratch, run_amx};
#endif
}

#elif LS_KERNEL_BF16
void LS_KERNEL_NAME(fill_dense)(struct ls_kernels *k)
{
    (void)k; /* oneDNN has no bf16 without AVX-512 */
}
#endif
