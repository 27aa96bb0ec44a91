/* Gradients of several passes become one sum, always in the same order of additions.
 *
 * Invariants (tests cite them):
 *  EXEC-1  A replica's gradient is the sum of its passes in order: ((p0 + p1) + p2) + ...
 *  EXEC-2  Replicas are summed by one fixed binary tree. With T(v, s) the sum over replicas v, v+s, v+2s, ...
 *              T(v, s) = T(v, 2s) + T(v+s, 2s)   when replica v+s exists, else T(v, 2s);
 *              T(v, s) = replica v               when s >= V: no further one exists.
 *          The step's gradient is T(0, 1). For V a power of two, level 1 adds (v, v+V/2), level 2 (v, v+V/4) ...
 *  EXEC-3  The tree depends on V alone. A process computes the subtrees that comm/algorithms/tree.h gives it, its parts;
 *          the additions that are left are made between processes.
 *  EXEC-4  Depth first, the walk holds at most ceil(log2 V) unfinished sums besides the gradients being computed, and one
 *          more for passes. All of it is taken before the first step.
 *  EXEC-5  In the last pass the additions that remain can be made range by range, while the pass still runs: a range that
 *          is settled is this process's last part of the sum. */
#ifndef LS_EXEC_REPLICAS_H
#define LS_EXEC_REPLICAS_H

#include "backend/backend.h"
#include "comm/algorithms/tree.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where gradients are. All of it is borrowed. */
struct ls_replicas_memory {
    float *grads; /* where a pass leaves its gradients: the backend's memory */
    size_t count;
    float *sum;  /* the last part of this process: grads, or the host's copy of them */
    float *side; /* all parts but the last, (n_parts - 1) * count floats of the host */
    const struct ls_backend *backend;
    struct ls_program *program; /* whose queue moves gradients */
};

enum { LS_REPLICAS_LEVELS = 32 };

struct ls_replicas {
    int passes, n_slices, n_parts, levels;
    int at[LS_REPLICAS_LEVELS]; /* while the walk is listed: which of the unfinished sums each level has */
    int *order;                 /* owned; slice numbers (replica * passes + pass) in the order of the walk */
    struct ls_replicas_op *ops; /* owned; the walk, as a list */
    int n_ops, last_run;
    struct ls_replicas_memory memory;
    float **parts;     /* owned list; of this process, in the tree's order; the last is memory.sum */
    float *unfinished; /* owned; levels times count, the backend's memory */
    size_t unfinished_bytes;
};

enum ls_status ls_replicas_init(struct ls_replicas *r, const struct ls_tree *tree, int rank, int passes,
                                const struct ls_replicas_memory *memory);
void ls_replicas_release(struct ls_replicas *r);
/* Floats of unfinished sums where one process computes all replicas (EXEC-4). */
size_t ls_replicas_unfinished(int replicas, int passes, size_t count);
/* How many memories of the size of all gradients a rank takes: for its parts of the sum, and for sums it has not finished. */
size_t ls_replicas_gradients(const struct ls_tree *tree, int rank, int passes);

/* One pass: overwrite the gradients. last: nothing follows but additions, and the pass makes them itself with
 * ls_replicas_settle, for every range, when it is complete. */
typedef enum ls_status (*ls_pass)(void *context, int replica, int pass, bool last);
/* Every pass of every replica of this process, in the walk's order. Then `parts` but the last hold its sums; the last part
 * is in memory.grads, and the pass brings it to memory.sum where that is other memory. */
enum ls_status ls_replicas_run(struct ls_replicas *r, ls_pass pass, void *context);
enum ls_status ls_replicas_settle(struct ls_replicas *r, size_t first, size_t count);
/* The gradients of a pass without samples. */
enum ls_status ls_replicas_clear(struct ls_replicas *r);

#endif
