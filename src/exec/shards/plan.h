/* For the files that make shards (shards.h). */
#ifndef LS_EXEC_SHARDS_PLAN_H
#define LS_EXEC_SHARDS_PLAN_H

#include "exec/shards/shards.h"

/* The part of a parameter, and of its gradient, that lies in a piece. Floats are counted as stored. */
struct ls_segment {
    int piece;
    int node;             /* its update */
    size_t grad, count;   /* in the gradient memory */
    size_t offset;        /* of these floats in the parameter */
    struct ls_window own; /* what this process updates of it; count 0: nothing */
};

struct ls_shards {
    struct ls_sync_piece *pieces; /* owned */
    int n_pieces;
    struct ls_segment *segments; /* owned; in the order of pieces */
    int n_segments;
    int *first;                /* owned; piece p: segments[first[p]] .. [first[p + 1] - 1] */
    void *memory;              /* owned; the parameters of this process, where these are sharded, and its state */
    size_t bytes, param_bytes; /* together; of the parameters */
    float **params; /* owned list; of the update of each parameter that is sharded: this process's windows of it */
    bool whole;     /* updates need all gradients: to clip them, or to see whether one overflows */
};

/* The mark of values that come to the host, and two of params.c; the last one is host_copy.c's. */
enum { LS_SHARD_MARK = LS_QUEUE_MARKS - 2, LS_PARAM_MARK = LS_QUEUE_MARKS - 4 };

/* The tensors of an update's parameter that are held in its windows. */
enum { LS_SHARDED = LS_MAX_STATES + 2 };
int ls_shards_tensors(const struct ls_graph *g, int update, int tensors[LS_SHARDED]);
/* The node that averages the parameter of an update (--ema); LS_NONE: none. */
int ls_shards_average(const struct ls_graph *g, int update);
/* Copies floats, with all threads where they are many. */
void ls_shards_copy(float *to, const float *from, size_t count);

/* Whether the node is an update whose state is sharded. */
bool ls_shards_updates(const struct ls_graph *g, int node);
/* The floats of a piece, in the gradient memory, that a rank updates; none where all ranks update all. */
void ls_shards_own(const struct ls_engine *e, int piece, int rank, size_t *first, size_t *last);
/* What a rank updates of a segment; `at` is not set. */
struct ls_window ls_shards_window(const struct ls_engine *e, const struct ls_segment *s, int rank);
/* Gives each of n tensors to one of `size` ranks such that the sums of their counts are nearly equal: the largest first, each
 * to the rank that has least. The rank of a count of 0 is not set. */
enum ls_status ls_shards_balance(const size_t *counts, int n, int size, int *ranks);

#endif
