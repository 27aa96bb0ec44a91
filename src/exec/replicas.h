/* Gradients of several passes become one sum, always in the same order of additions.
 *
 * Invariants (tests cite them):
 *  R1  A replica's gradient is the sum of its passes in order: ((p0 + p1) + p2) + ...
 *  R2  Replicas are summed by one fixed binary tree. With T(v, s) the sum over replicas v, v+s, v+2s, ...
 *          T(v, s) = T(v, 2s) + T(v+s, 2s)   when replica v+s exists, else T(v, 2s);
 *          T(v, s) = replica v               when s >= V: no further one exists.
 *      The step's gradient is T(0, 1). For V a power of two, level 1 adds (v, v+V/2), level 2 (v, v+V/4) ...
 *  R3  The tree depends on V alone. A process computes the subtrees that comm/algorithms/tree.h gives it, its parts; the additions
 *      that are left are made between processes.
 *  R4  Depth first, the walk holds at most ceil(log2 V) unfinished sums besides the gradients being computed,
 *      and one more for passes. All of it is taken before the first step.
 *  R5  In the last pass the additions that remain can be made range by range, while the pass still runs: a range that is
 *      settled is this process's last part of the sum.
 *  R6  A sample's loss is rounded to 2^-24 before it is counted: sums of up to 2^29 are then exact, in any order. */
#ifndef LS_EXEC_REPLICAS_H
#define LS_EXEC_REPLICAS_H

#include "backend/backend.h"
#include "comm/algorithms/tree.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is counted over samples; summed along the same tree. */
struct ls_totals {
    double loss;
    int64_t top1, top5, samples;
    int64_t stop; /* not a sum but the largest: the signal to stop by, 0: none */
};
void ls_totals_add(struct ls_totals *sum, const struct ls_totals *more);

/* Where gradients are. All of it is borrowed. */
struct ls_replicas_memory {
    float *grads; /* where a pass leaves its gradients: the backend's memory */
    size_t count;
    float *sum;  /* the last part of this process: grads, or with a queue the host's memory of that size, if any */
    float *side; /* all parts but the last, (n_parts - 1) * count floats of the host */
    const struct ls_backend *backend;
    struct ls_program *program; /* whose queue moves gradients; NULL where the backend has none */
};

struct ls_replicas {
    int passes, n_slices, n_parts, levels;
    int *order;                 /* owned; slice numbers (replica * passes + pass) as the walk asks for them */
    struct ls_replicas_op *ops; /* owned; the walk, as a list */
    int n_ops, last_run;
    struct ls_replicas_memory memory;
    float **parts;                       /* owned list; of this process, in the tree's order; the last is memory.sum */
    struct ls_totals *part_totals;       /* owned; one a part */
    struct ls_totals *unfinished_totals; /* owned; one a level */
    float *unfinished;                   /* owned; levels times count, the backend's memory */
    size_t unfinished_bytes;
};

enum ls_status ls_replicas_init(struct ls_replicas *r, const struct ls_tree *tree, int rank, int passes,
                                const struct ls_replicas_memory *memory);
void ls_replicas_release(struct ls_replicas *r);

/* One pass: overwrite the gradients, add to *totals (zero before each replica). last: nothing follows but additions, and
 * the pass makes them itself with ls_replicas_settle, for every range, when it is complete. */
typedef enum ls_status (*ls_pass)(void *context, int replica, int pass, bool last, struct ls_totals *totals);
/* Every pass of every replica of this process in the walk's order; then `parts` and `part_totals` hold its sums. With a
 * queue the additions are enqueued, and the last part is left in memory.grads: it is the pass that brings it to the host. */
enum ls_status ls_replicas_run(struct ls_replicas *r, ls_pass pass, void *context);
enum ls_status ls_replicas_settle(struct ls_replicas *r, size_t first, size_t count);
/* The gradients of a pass without samples. */
enum ls_status ls_replicas_clear(struct ls_replicas *r);

#endif
