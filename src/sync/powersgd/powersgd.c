#include "sync/powersgd/powersgd.h"

#include "base/memory.h"
#include "base/random.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A column that shrinks below this share of itself when the others are taken out holds rounding and nothing else. */
#define NOTHING 1e-6

bool ls_powersgd_pays(size_t rows, size_t cols, int rank)
{
    size_t r = (size_t)rank;
    return rows > r && cols > r && 2 * r * (rows + cols) <= rows * cols;
}

/* A fresh column of Q. Uniform, not normal: made without a library function that machines may round differently. */
static void draw(struct ls_powersgd *s, int k)
{
    uint64_t stream = ls_random_stream(LS_RANDOM_COMPRESS, s->stream, s->round, (uint64_t)k);
    ls_random_fill_uniform(s->seed, stream, -1.0f, 1.0f, (int64_t)s->shape.cols, s->q + (size_t)k * s->shape.cols);
}

enum ls_status ls_powersgd_init(struct ls_powersgd *s, const struct ls_lowrank_shape *shape, uint64_t seed,
                                uint64_t stream, float *p, float *q)
{
    assert(shape->rank >= 1 && shape->rank <= LS_POWERSGD_MAX_RANK);
    assert(shape->block == 1 || (shape->block % 8 == 0 && shape->rows % shape->block == 0));
    *s = (struct ls_powersgd){
        .shape = *shape, .passes = ls_lowrank_pick(NULL), .seed = seed, .stream = stream, .p = p, .q = q};
    s->own = ls_alloc((size_t)shape->rank * shape->cols, sizeof *s->own);
    s->feedback = ls_alloc(shape->rows * shape->cols, sizeof *s->feedback);
    if (!s->own || !s->feedback) {
        ls_powersgd_release(s);
        return LS_FAILED;
    }
    for (int k = 0; k < shape->rank; k++)
        draw(s, k);
    return LS_OK;
}

void ls_powersgd_release(struct ls_powersgd *s)
{
    ls_free(s->own);
    ls_free(s->feedback);
    *s = (struct ls_powersgd){0};
}

/* In f64, where the product of two floats is exact, in eight sums that are added in one order. */
static double dot(const float *a, const float *b, size_t n)
{
    double sum[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            sum[l] += (double)a[i + l] * (double)b[i + l];
    for (int l = 0; i < n; i++, l++)
        sum[l] += (double)a[i] * (double)b[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static void scale(float *a, double factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = (float)((double)a[i] * factor);
}

/* a -= factor * b */
static void take_out(float *a, double factor, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = (float)((double)a[i] - factor * (double)b[i]);
}

/* Gram-Schmidt, each column twice, as the first time leaves rounding behind. A column made of the others becomes zero;
 * one that is not finite becomes NaN. */
static void orthonormalise(float *p, size_t rows, int rank)
{
    for (int k = 0; k < rank; k++) {
        float *column = p + (size_t)k * rows;
        double before = sqrt(dot(column, column, rows));
        if (before > 0.0)
            scale(column, 1.0 / before, rows);
        for (int again = 0; again < 2; again++)
            for (int other = 0; other < k; other++) {
                const float *o = p + (size_t)other * rows;
                take_out(column, dot(column, o, rows), o, rows);
            }
        double after = sqrt(dot(column, column, rows));
        if (before == 0.0 || after < NOTHING)
            memset(column, 0, rows * sizeof *column);
        else
            scale(column, isfinite(before) ? 1.0 / after : NAN, rows);
    }
}

void ls_powersgd_begin(struct ls_powersgd *s, float *grad)
{
    s->passes->left(&s->shape, grad, s->feedback, s->q, s->p);
}

void ls_powersgd_middle(struct ls_powersgd *s, float *grad)
{
    orthonormalise(s->p, s->shape.rows, s->shape.rank);
    s->passes->right(&s->shape, grad, s->p, s->q);
    memcpy(s->own, s->q, (size_t)s->shape.rank * s->shape.cols * sizeof *s->q);
}

void ls_powersgd_end(struct ls_powersgd *s, float *grad)
{
    size_t rows = s->shape.rows, cols = s->shape.cols;
    double length[LS_POWERSGD_MAX_RANK];
    bool finite = true;
    for (int k = 0; k < s->shape.rank; k++) {
        const float *p = s->p + (size_t)k * rows, *q = s->q + (size_t)k * cols;
        length[k] = sqrt(dot(q, q, cols));
        finite = finite && isfinite(length[k]) && isfinite(dot(p, p, rows));
    }
    s->round++;
    if (finite) {
        s->passes->rebuild(&s->shape, grad, s->feedback, s->p, s->own, s->q);
    } else {
        for (size_t i = 0; i < rows * cols; i++)
            grad[i] = NAN;
        memset(s->feedback, 0, rows * cols * sizeof *s->feedback);
    }
    /* Only the direction of a column counts for the next step: at length one nothing overflows or vanishes. A column
     * that holds nothing would stay so for ever. */
    for (int k = 0; k < s->shape.rank; k++)
        if (finite && length[k] > 0.0)
            scale(s->q + (size_t)k * cols, 1.0 / length[k], cols);
        else
            draw(s, k);
}
