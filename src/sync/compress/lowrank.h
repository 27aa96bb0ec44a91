/* The three passes of powersgd.c over a matrix M, for one instruction set.
 *
 * M has rows x cols values. It is stored in blocks of `block` rows, column by column within a block: value (i, j) is
 * at ((i / block) * cols + j) * block + i % block. block = 1 is row-major. block = 16 is an example of blocked
 * weights (OIhw16i16o: one row is one output channel). block is 1 or a multiple of 8 that divides rows. P has rank
 * columns of `rows` values, Q has rank columns of `cols` values. */
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
    /* q = m^T p. */
    void (*right)(const struct ls_lowrank_shape *s, const float *m, const float *p, float *q);
    /* feedback = m - p own^T; m = p q^T. */
    void (*rebuild)(const struct ls_lowrank_shape *s, float *m, float *feedback, const float *p, const float *own,
                    const float *q);
};

/* Returns the best passes for this processor, or those of one instruction set (NULL when the processor lacks it). */
const struct ls_lowrank *ls_lowrank_pick(const char *isa);

#endif
