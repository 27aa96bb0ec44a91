/* Gradients of replicas, which come in any order, added along the tree of EXEC-2 in one process, as far as all of a subtree comes.
 * A replica's gradient is the sum of its passes, which come in order (EXEC-1). */
#ifndef LS_EXEC_SPLIT_SUMS_H
#define LS_EXEC_SPLIT_SUMS_H

#include "backend/backend.h"
#include "comm/algorithms/tree.h"

struct ls_sums {
    struct ls_tree tree; /* owned; one replica a part */
    int passes;
    const struct ls_backend *backend;
    struct ls_program *program;
    float *grads[2]; /* where the gradients are that come, and the last sum in the end; count floats of each */
    size_t counts[2];
    float **aside; /* owned list; for the other sums, the same two of each */
    int *results;  /* owned; the replica that each sum begins with */
    int n_results;
    int n_slices, came;   /* of a step */
    float **slot;         /* owned list; of each part the sum so far; NULL: none */
    int here;             /* the part whose sum so far is where gradients come; -1: none */
    bool *arrived, *done; /* owned; of parts, of sums */
    float **spare;        /* owned list; buffers that are not in use */
    int n_spare, n_buffers;
    float *memory; /* owned */
};

/* order: the slices (replica * passes + pass) as they will come. results: the subtrees that they add up to, one if all slices
 * come. */
enum ls_status ls_sums_init(struct ls_sums *s, int replicas, int passes, const int *order, int n,
                            const struct ls_tree_part *results, int n_results);
/* Before the first step: grads, counts and aside are set. Takes memory. */
enum ls_status ls_sums_open(struct ls_sums *s, const struct ls_backend *b, struct ls_program *p);
void ls_sums_release(struct ls_sums *s);
/* The gradients of a slice are there; has_samples false: they are zero. With the last slice, the sums are. */
enum ls_status ls_sums_take(struct ls_sums *s, int replica, int pass, bool has_samples);

#endif
