/* The three passes over a matrix M that powersgd.c makes, for one instruction set.
 *
 * M has rows x cols values, stored in blocks of `block` rows, column after column within a block: value (i, j) is at
 * ((i / block) * cols + j) * block + i % block. block = 1 is row after row; 16, say, is how blocked weights lie
 * (OIhw16i16o: one row an output channel). block is 1 or a multiple of 8 that divides rows. P is rank columns of `rows`
 * values, Q rank columns of `cols`. */
#ifndef LS_COMPRESS_LOWRANK_H
#define LS_COMPRESS_LOWRANK_H

#include <stddef.h>

struct ls_lowrank_shape {
    size_t rows, cols, block;
    int rank;
};

struct ls_lowrank {
    /* m += feedback; p = m q. */
    void (*left)(const struct ls_lowrank_shape *s, float *m, const float *feedback, const float *q, float *p);
    /* q = transposed m, times p. */
    void (*right)(const struct ls_lowrank_shape *s, const float *m, const float *p, float *q);
    /* feedback = m - p own^T, m = p q^T; the squares of feedback and of the old m are added to *error and *norm. */
    void (*rebuild)(const struct ls_lowrank_shape *s, float *m, float *feedback, const float *p, const float *own,
                    const float *q, double *error, double *norm);
};

/* The best for this processor, or that of one instruction set (NULL when the processor lacks it). */
const struct ls_lowrank *ls_lowrank_pick(const char *isa);

#endif
