/* Gradients of several passes become one sum, always in the same order of additions.
 *
 * Invariants (tests cite them):
 *  R1  A replica's gradient is the sum of its passes in order: ((p0 + p1) + p2) + ...
 *  R2  Replicas are summed by one fixed binary tree. With T(v, s) the sum over replicas v, v+s, v+2s, ...
 *          T(v, s) = T(v, 2s) + T(v+s, 2s)   when replica v+s exists, else T(v, 2s);
 *          T(v, s) = replica v               when s >= V: no further one exists.
 *      The step's gradient is T(0, 1). For V a power of two, level 1 adds (v, v+V/2), level 2 (v, v+V/4) ...
 *  R3  The tree depends on V alone. A process that computes the replicas v = w mod W owns the subtree T(w, W)
 *      whole, so the same additions can be spread over processes.
 *  R4  Depth first, the walk holds at most ceil(log2 V) unfinished sums besides the gradients being computed,
 *      and one more for passes. All of it is taken before the first step. */
#ifndef LS_TRAIN_REPLICAS_H
#define LS_TRAIN_REPLICAS_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* What is counted over samples; summed along the same tree. */
struct ls_totals {
    double loss;
    int64_t top1, top5, samples;
};

/* A stretch of the memory that holds gradients. */
struct ls_grad_range {
    float *values; /* borrowed */
    size_t count;
};

struct ls_replicas {
    int replicas, passes, levels;
    int *order;                   /* owned; slice numbers (replica * passes + pass) as the walk asks for them */
    struct ls_grad_range *ranges; /* owned */
    int n_ranges;
    float *unfinished; /* owned; levels times room */
    size_t room;       /* floats of all ranges */
};

/* ranges (copied) is where a pass leaves its gradients and where the sum ends up. */
enum ls_status ls_replicas_init(struct ls_replicas *r, int replicas, int passes, const struct ls_grad_range *ranges,
                                int n_ranges);
void ls_replicas_release(struct ls_replicas *r);

/* One pass: overwrite the gradients, add to *totals (zero before each replica). */
typedef enum ls_status (*ls_pass)(void *context, int replica, int pass, struct ls_totals *totals);
/* Every pass of every replica in the walk's order; the ranges then hold the step's gradient. */
enum ls_status ls_replicas_run(struct ls_replicas *r, ls_pass pass, void *context, struct ls_totals *totals);
/* The gradients of a pass without samples. */
void ls_replicas_clear(struct ls_replicas *r);

#endif
