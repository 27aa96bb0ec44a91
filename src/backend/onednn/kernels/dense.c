/* Large dense layers (graph/split.h), y = x w' + b and dx = dy w: products whose bits depend neither on the layout of the
 * weights, nor on how many of a layer's rows are here, nor on the number of threads (LOOP-1). A result of the forward pass is
 * the sum over stretches of LS_DENSE_STRETCH inputs, in their order. A gradient is the sum over chunks of rows, along their
 * tree. Within a stretch or a chunk the order is that of inputs or rows.
 *
 * Either pass multiplies a matrix of samples, (sample, depth), by a matrix of weights, (depth, column). A thread takes COLUMNS
 * columns at a time. It packs DEPTH rows of their weights, which stay in the L1 cache, and multiplies them by all samples,
 * SAMPLES of them in registers. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"
#include "backend/onednn/kernels/transpose.h"

#include <omp.h>

#if !LS_KERNEL_BF16 /* dense_bf16.c */

enum {
    VECTORS = B == 16 ? 4 : 2,
    COLUMNS = VECTORS * B,
    DEPTH = 128,
    SAMPLES = 6,
    LEVELS = 4 /* unfinished sums of a tree of 8 chunks, and the chunk being computed */
};

/* --- packing ------------------------------------------------------------------------------------------------------ */

INLINE bool forward_pass(const struct ls_dense *d)
{
    return d->pass == LS_CONV_FORWARD;
}
/* The weight of a row (output feature) and an input. */
INLINE const float *weight_at(const struct ls_dense *d, int64_t row, int64_t input)
{
    return d->w +
           (d->block == 0 ? row * d->inputs + input : (row / d->block * d->inputs + input) * d->block + row % d->block);
}
INLINE const float *matrix_at(const struct ls_dense *d, int64_t depth, int64_t column)
{
    return forward_pass(d) ? weight_at(d, column, depth) : weight_at(d, depth, column);
}
/* Are neighbours in memory neighbours in a row of the matrix? Else they are neighbours in a column. */
INLINE bool lies_by_rows(const struct ls_dense *d)
{
    return (d->block == 0) != forward_pass(d);
}

static void pack_values(const struct ls_dense *d, int64_t depth, int64_t n, int64_t column, int64_t columns, float *to)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < COLUMNS; c++)
            to[r * COLUMNS + c] = c < columns ? *matrix_at(d, depth + r, column + c) : 0;
}

static void pack_by_rows(const struct ls_dense *d, int64_t depth, int64_t n, int64_t column, float *to)
{
    const float *from[VECTORS];
    int64_t step = forward_pass(d) ? d->block : d->inputs;
    for (int v = 0; v < VECTORS; v++)
        from[v] = matrix_at(d, depth, column + v * B);
    for (int64_t r = 0; r < n; r++)
        for (int v = 0; v < VECTORS; v++)
            vstoref(to + r * COLUMNS + v * B, vloadf(from[v] + r * step));
}

/* n is a multiple of B. */
static void pack_by_columns(const struct ls_dense *d, int64_t depth, int64_t n, int64_t column, float *to)
{
    int64_t step = forward_pass(d) ? d->inputs : d->block;
    for (int64_t r = 0; r < n; r += B)
        for (int v = 0; v < VECTORS; v++) {
            vf values[B];
            const float *from = matrix_at(d, depth + r, column + v * B);
            for (int i = 0; i < B; i++)
                values[i] = vloadf(from + i * step);
            transpose_lanes(values);
            for (int i = 0; i < B; i++)
                vstoref(to + (r + i) * COLUMNS + v * B, values[i]);
        }
}

/* Whole vectors lie within blocks: a block is a multiple of B rows, or all of them. */
static void pack(const struct ls_dense *d, int64_t depth, int64_t n, int64_t column, int64_t columns, float *to)
{
    bool fits = d->block % B == 0 || d->block >= d->rows;
    int64_t done = columns < COLUMNS || !fits ? 0 : lies_by_rows(d) ? n : n / B * B;
    if (lies_by_rows(d))
        pack_by_rows(d, depth, done, column, to);
    else
        pack_by_columns(d, depth, done, column, to);
    pack_values(d, depth + done, n - done, column, columns, to + done * COLUMNS);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* Past the caches, to memory that is not read soon. */
INLINE void vstream(float *p, vf v)
{
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#else
    vstoref(p, v);
#endif
}

/* to += the product, or with `first` to = the product. */
INLINE void multiply(int samples, const float *x, int64_t sample_step, int64_t depth_step, int64_t n, const float *w,
                     bool first, bool stream, float *to)
{
    vf sums[SAMPLES][VECTORS];
    for (int s = 0; s < samples; s++)
        for (int v = 0; v < VECTORS; v++)
            sums[s][v] = first ? vset(0.0f) : vloadf(to + s * COLUMNS + v * B);
    for (int64_t r = 0; r < n; r++) {
        vf weights[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            weights[v] = vloadf(w + r * COLUMNS + v * B);
        for (int s = 0; s < samples; s++) {
            vf value = vset(x[s * sample_step + r * depth_step]);
            for (int v = 0; v < VECTORS; v++)
                sums[s][v] += value * weights[v];
        }
    }
    for (int s = 0; s < samples; s++)
        for (int v = 0; v < VECTORS; v++)
            if (stream)
                vstream(to + s * COLUMNS + v * B, sums[s][v]);
            else
                vstoref(to + s * COLUMNS + v * B, sums[s][v]);
}

/* With a constant number of samples their sums stay in registers. */
static void multiply_all(const struct ls_dense *d, const float *x, int64_t stride, int64_t depth, const float *w,
                         bool first, float *to)
{
    int64_t n = 0;
    for (; n + SAMPLES <= d->n; n += SAMPLES)
        multiply(SAMPLES, x + n * stride, stride, 1, depth, w, first, false, to + n * COLUMNS);
    for (; n + 4 <= d->n; n += 4)
        multiply(4, x + n * stride, stride, 1, depth, w, first, false, to + n * COLUMNS);
    for (; n < d->n; n++)
        multiply(1, x + n * stride, stride, 1, depth, w, first, false, to + n * COLUMNS);
}

/* The sum over depth [from, end) of some columns. */
static void sum_over(const struct ls_dense *d, int64_t from, int64_t end, int64_t column, int64_t columns,
                     float *packed, float *to)
{
    int64_t stride = forward_pass(d) ? d->inputs : d->rows;
    bool in_place = forward_pass(d) && d->block == COLUMNS; /* they lie as packed */
    for (int64_t at = from; at < end; at += DEPTH) {
        int64_t n = end - at < DEPTH ? end - at : DEPTH;
        if (!in_place)
            pack(d, at, n, column, columns, packed);
        multiply_all(d, (const float *)d->in + at, stride, n, in_place ? matrix_at(d, at, column) : packed, at == from,
                     to);
    }
}

static void add(const struct ls_dense *d, float *to, const float *other)
{
    for (int64_t i = 0; i < d->n * COLUMNS; i += B)
        vstoref(to + i, vloadf(to + i) + vloadf(other + i));
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void write_results(const struct ls_dense *d, const float *sums, int64_t column, int64_t columns)
{
    float *out = d->out;
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t c = 0; c < columns; c++) {
            float y = sums[n * COLUMNS + c] + (d->bias ? d->bias[column + c] : 0.0f);
            out[n * d->rows + column + c] = activate(d->act, vset(y))[0];
        }
}

static void forward(const struct ls_dense *d, int64_t column, int64_t columns, float *packed, float *sums)
{
    float *stretch = sums + d->n * COLUMNS;
    for (int64_t from = 0; from < d->inputs; from += LS_DENSE_STRETCH) {
        int64_t end = from + LS_DENSE_STRETCH < d->inputs ? from + LS_DENSE_STRETCH : d->inputs;
        sum_over(d, from, end, column, columns, packed, from == 0 ? sums : stretch);
        if (from > 0)
            add(d, sums, stretch);
    }
    write_results(d, sums, column, columns);
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

static void write_part(const struct ls_dense *d, const float *from, int64_t column, int64_t columns, int part)
{
    for (int64_t n = 0; n < d->n; n++)
        memcpy((float *)d->out + (part * d->n + n) * d->inputs + column, from + n * COLUMNS,
               (size_t)columns * sizeof *from);
}

/* Chunks come from left to right. Two neighbouring sums become one where they are the halves of a sum of the tree. */
static void backward(const struct ls_dense *d, int64_t column, int64_t columns, float *packed, float *sums)
{
    const struct ls_split_range *range = &d->range;
    int64_t size = d->n * COLUMNS;
    int at[LEVELS + 1], depth = 0;
    for (int chunk = range->first; chunk < range->end; chunk++) {
        int64_t row = (chunk - range->first) * range->chunk, end = row + range->chunk;
        sum_over(d, row, end < d->rows ? end : d->rows, column, columns, packed, sums + depth * size);
        for (at[depth++] = chunk; depth > 1; depth--) {
            if (!ls_split_joins(at[depth - 2], at[depth - 1], chunk + 1, range->chunks))
                break;
            add(d, sums + (depth - 2) * size, sums + (depth - 1) * size);
        }
    }
    for (int part = 0; part < depth; part++)
        write_part(d, sums + part * size, column, columns, part);
}

/* --- gradient of the weights -------------------------------------------------------------------------------------- */

/* dw' = x' dy or dw = dy' x, whichever has results that lie by rows: `wide` is the operand whose values are columns, `tall` the
 * one that is turned, in panels of SAMPLES columns. The depth is the samples. */
struct outer {
    const float *wide, *tall;
    int64_t wides, talls;
};

static struct outer outer_of(const struct ls_dense *d)
{
    return d->block > 0 ? (struct outer){d->dy, d->in, d->rows, d->inputs}
                        : (struct outer){d->in, d->dy, d->inputs, d->rows};
}

static int64_t panels_of(const struct ls_dense *d)
{
    int64_t talls = outer_of(d).talls;
    return (talls + SAMPLES - 1) / SAMPLES;
}

static void pack_panel(const struct ls_dense *d, int64_t panel, float *to)
{
    struct outer o = outer_of(d);
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t s = 0; s < SAMPLES; s++) {
            int64_t at = panel * SAMPLES + s;
            to[n * SAMPLES + s] = at < o.talls ? o.tall[n * o.talls + at] : 0;
        }
}

static void write_gradient(const struct ls_dense *d, const float *tile, int64_t tall, int64_t column, int64_t columns)
{
    int64_t talls = outer_of(d).talls;
    for (int64_t s = 0; s < SAMPLES && tall + s < talls; s++)
        for (int64_t c = 0; c < columns; c++) {
            const float *at = d->block > 0 ? weight_at(d, column + c, tall + s) : weight_at(d, tall + s, column + c);
            ((float *)d->out)[at - d->w] = tile[s * COLUMNS + c];
        }
}

static void weights_gradient(const struct ls_dense *d, int64_t column, const float *panels, float *packed)
{
    struct outer o = outer_of(d);
    float own[SAMPLES * COLUMNS];
    int64_t left = o.wides - column, columns = left < COLUMNS ? left : COLUMNS;
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t c = 0; c < COLUMNS; c++)
            packed[n * COLUMNS + c] = c < columns ? o.wide[n * o.wides + column + c] : 0;
    for (int64_t p = 0; p < panels_of(d); p++) {
        const float *panel = panels + p * d->n * SAMPLES;
        if (d->block == COLUMNS && (p + 1) * SAMPLES <= o.talls) { /* results lie as they are computed */
            float *tile = (float *)d->out + (weight_at(d, column, p * SAMPLES) - d->w);
            multiply(SAMPLES, panel, 1, SAMPLES, d->n, packed, true, true, tile);
            continue;
        }
        multiply(SAMPLES, panel, 1, SAMPLES, d->n, packed, true, false, own);
        write_gradient(d, own, p * SAMPLES, column, d->block == COLUMNS ? COLUMNS : columns);
    }
}

static void bias_gradient(const struct ls_dense *d)
{
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t row = 0; row < d->rows; row++) {
        double sum = 0;
        for (int64_t n = 0; n < d->n; n++)
            sum += (double)((const float *)d->dy)[n * d->rows + row];
        d->out_bias[row] = (float)sum;
    }
}

/* --- */

/* Floats that a thread needs, a cache line more than it writes. */
static int64_t thread_floats(const struct ls_dense *d)
{
    return (d->pass == LS_CONV_WEIGHTS ? d->n : DEPTH + LEVELS * d->n) * COLUMNS + 16;
}

static size_t scratch(const struct ls_dense *d)
{
    int64_t shared = d->pass == LS_CONV_WEIGHTS ? panels_of(d) * SAMPLES * d->n : 0;
    return (size_t)(thread_floats(d) * d->threads + shared) * sizeof(float);
}

static void run(const struct ls_dense *d)
{
    bool gradient = d->pass == LS_CONV_WEIGHTS;
    int64_t all = gradient ? outer_of(d).wides : forward_pass(d) ? d->rows : d->inputs;
    int64_t blocks = (all + COLUMNS - 1) / COLUMNS;
    float *panels = (float *)d->scratch + thread_floats(d) * d->threads;
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t p = 0; p < (gradient ? panels_of(d) : 0); p++)
        pack_panel(d, p, panels + p * d->n * SAMPLES);
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t block = 0; block < blocks; block++) {
        float *packed = (float *)d->scratch + omp_get_thread_num() * thread_floats(d), *sums = packed + DEPTH * COLUMNS;
        int64_t column = block * COLUMNS, columns = all - column < COLUMNS ? all - column : COLUMNS;
        if (gradient)
            weights_gradient(d, column, panels, packed);
        else if (forward_pass(d))
            forward(d, column, columns, packed, sums);
        else
            backward(d, column, columns, packed, sums);
    }
    if (gradient && d->out_bias)
        bias_gradient(d);
}

void LS_KERNEL_NAME(fill_dense)(struct ls_kernels *k)
{
    k->dense = (struct ls_dense_kernel){scratch, run};
}
#endif
