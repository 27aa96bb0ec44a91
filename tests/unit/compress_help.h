/* What the tests of compression share. */
#ifndef LS_TESTS_COMPRESS_HELP_H
#define LS_TESTS_COMPRESS_HELP_H

#include "base/random.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static const char *const isas[] = {"avx512", "avx2", "sse2"};

static inline void fill(float *values, size_t count, uint64_t stream)
{
    ls_random_fill_normal(11, stream, 0.01f, (int64_t)count, values);
}

static inline double squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* sqrt(|a - b|^2 / |b|^2) */
static inline double distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / squares(b, n));
}

enum { SIDE = 32, PARAMETERS = SIDE * SIDE, WORKERS = 2 };

/* Leaves the sum of the workers' gradients, as far as compression lets it through, in sum. */
typedef void (*sum_gradients)(void *context, float (*grads)[PARAMETERS], float *sum);

/* SGD on sum_i c_i (x_i - target_i)^2 / 2 with two workers whose gradients differ by a shift that cancels in the sum.
 * How far from the target it ends, relative to where it began. */
static inline double descend(sum_gradients sum_up, void *context)
{
    enum { STEPS = 1500 };
    static float x[PARAMETERS], target[PARAMETERS], shift[PARAMETERS], grads[WORKERS][PARAMETERS], sum[PARAMETERS];
    fill(target, PARAMETERS, 200);
    fill(shift, PARAMETERS, 201);
    memset(x, 0, sizeof x);
    for (int step = 0; step < STEPS; step++) {
        for (int w = 0; w < WORKERS; w++)
            for (int i = 0; i < PARAMETERS; i++)
                grads[w][i] = 0.5f * (0.1f + (float)(i % 10) / 10) * (x[i] - target[i]) + (w ? shift[i] : -shift[i]);
        sum_up(context, grads, sum);
        float rate = step < STEPS / 2 ? 0.05f : 0.1f * (float)(STEPS - step) / STEPS;
        for (int i = 0; i < PARAMETERS; i++)
            x[i] -= rate * sum[i];
    }
    return distance(x, target, PARAMETERS);
}

#endif
