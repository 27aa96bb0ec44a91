/* A square of B vectors of B lanes, turned over its diagonal. */
#ifndef LS_KERNELS_TRANSPOSE_H
#define LS_KERNELS_TRANSPOSE_H

#include "backend/onednn/kernels/simd.h"

#if defined(__AVX512F__)
#define STAGES(EXCHANGE)                                                     \
    EXCHANGE(1, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30), \
             (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))    \
    EXCHANGE(2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),  \
             (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))   \
    EXCHANGE(4, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),  \
             (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))   \
    EXCHANGE(8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),    \
             (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#else
#define STAGES(EXCHANGE)                                                  \
    EXCHANGE(1, (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15)) \
    EXCHANGE(2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)) \
    EXCHANGE(4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
#endif
#define OPEN(...) __VA_ARGS__
#define SHUFFLE(...) __builtin_shufflevector(__VA_ARGS__)

/* Rows of B values become columns. Each stage exchanges blocks of `step` values between rows that are `step` apart. */
INLINE void transpose_lanes(vf *r)
{
#define EXCHANGE(step, low, high)                     \
    for (int i = 0; i < B; i++)                       \
        if (!(i & (step))) {                          \
            vf x = r[i], y = r[i + (step)];           \
            r[i] = SHUFFLE(x, y, OPEN low);           \
            r[i + (step)] = SHUFFLE(x, y, OPEN high); \
        }
    STAGES(EXCHANGE)
#undef EXCHANGE
}

#endif
