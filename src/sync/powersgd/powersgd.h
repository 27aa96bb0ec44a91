/* PowerSGD (Vogels et al. 2019): a gradient matrix M travels as two thin ones, P and Q of `rank` columns each, with the
 * sum of all ranks' M close to P Q^T. Two sums are made where a codec needs one:
 *
 *     ls_powersgd_begin(s, grad)     the feedback is added to grad, and P = grad Q
 *     [sum p over all ranks]
 *     ls_powersgd_middle(s, grad)    the columns of P become orthonormal, and Q = grad^T P
 *     [sum q over all ranks]
 *     ls_powersgd_end(s, grad)       grad = P Q^T: the sum over the ranks, the same bits on all of them
 *
 * Q is kept for the next step, where it is the better start: for one and the same matrix the steps are a power
 * iteration.
 *
 *   W1  With the same sums every rank gets the same bits, whatever its processor.
 *   W2  What a rank lost, feedback = M - P (M^T P)^T, is its own; over the ranks these add up to what the sum lost.
 *   W3  A sum that is infinite or not a number gives a gradient that is all NaN, no feedback and a fresh Q: a run that
 *       diverges is seen to, and one that skips the step goes on unspoilt.
 *   W4  Nothing is allocated after init.
 *
 * To save and restore: q (before begin), feedback and round. */
#ifndef LS_SYNC_POWERSGD_POWERSGD_H
#define LS_SYNC_POWERSGD_POWERSGD_H

#include "base/status.h"
#include "sync/compress/lowrank.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_POWERSGD_MAX_RANK = 32 };

struct ls_powersgd {
    struct ls_lowrank_shape shape;
    const struct ls_lowrank *passes;
    uint64_t seed, stream, round;
    float *p;        /* borrowed; rank * rows values to be summed after begin */
    float *q;        /* borrowed; rank * cols values to be summed after middle */
    float *own;      /* owned; this rank's part of q */
    float *feedback; /* owned; as grad */
};

/* Does a matrix of this shape travel at least twice as small? Vectors (a dimension of 1) never do. */
bool ls_powersgd_pays(size_t rows, size_t cols, int rank);

/* p and q are the caller's, so that those of many matrices can lie side by side and be summed at once. seed and stream
 * (one a matrix) decide the first Q and are the same on every rank. shape: see lowrank.h. */
enum ls_status ls_powersgd_init(struct ls_powersgd *s, const struct ls_lowrank_shape *shape, uint64_t seed,
                                uint64_t stream, float *p, float *q);
void ls_powersgd_release(struct ls_powersgd *s);

void ls_powersgd_begin(struct ls_powersgd *s, float *grad);
void ls_powersgd_middle(struct ls_powersgd *s, float *grad);
void ls_powersgd_end(struct ls_powersgd *s, float *grad);

#endif
