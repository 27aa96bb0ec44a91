/* The fixed tree of additions over V replicas (exec/replicas.h, R2), spread over W processes.
 *
 *     T(v, s) = T(v, 2s) + T(v+s, 2s)   when replica v+s exists, else T(v, 2s);   T(v, s) = replica v when s >= V
 *
 * The leaves of T(0, 1) from left to right are divided among the processes in W runs, as even as possible. Where W is a
 * power of two that divides V, and where W = V, the run of process w is the subtree T(w, W) = {v : v = w mod W}. A process
 * computes the largest subtrees that lie completely in its run: its parts. The rest of the tree is a short list of
 * additions over all parts, equal on every rank. */
#ifndef LS_COMM_ALGORITHMS_TREE_H
#define LS_COMM_ALGORITHMS_TREE_H

#include "base/status.h"

struct ls_tree_part {
    int rank; /* the owner */
    int v, s; /* T(v, s) */
};
struct ls_tree_sum {
    int to, from; /* part[to] += part[from]; part[0] ends as the total */
};

struct ls_tree {
    int replicas, size;
    int *leaves;                /* owned; replica numbers, process after process */
    int *first;                 /* owned; process w computes leaves[first[w]] .. leaves[first[w + 1] - 1] */
    struct ls_tree_part *parts; /* owned; in the order of ranks */
    int n_parts;
    int *first_part;          /* owned; like first, over parts */
    struct ls_tree_sum *sums; /* owned; n_parts - 1 of them, in an order that respects the tree */
    int n_sums;
};

/* LS_USAGE when there are fewer replicas than processes. */
enum ls_status ls_tree_init(struct ls_tree *t, int replicas, int size);
/* The same, where place w of the above is taken by rank rank_of[w]; rank_of[0] is 0. The tree does not change. It lets the
 * ranks of one node own neighbouring subtrees. */
enum ls_status ls_tree_init_placed(struct ls_tree *t, int replicas, int size, const int *rank_of);
/* The same tree, where groups of the ranks of another one stand in their place: rank r of it is in group group_of[r]. */
enum ls_status ls_tree_init_grouped(struct ls_tree *t, const struct ls_tree *of, int groups, const int *group_of);
/* Appends this many ranks that compute no replica. */
enum ls_status ls_tree_add_idle(struct ls_tree *t, int ranks);
void ls_tree_release(struct ls_tree *t);
/* The number of parts of a rank, and its first part. */
static inline int ls_tree_parts(const struct ls_tree *t, int rank, int *first)
{
    *first = t->first_part[rank];
    return t->first_part[rank + 1] - t->first_part[rank];
}
/* The largest number of parts of any rank; at least 1. */
static inline int ls_tree_most_parts(const struct ls_tree *t)
{
    int most = 1, first;
    for (int rank = 0; rank < t->size; rank++)
        most = ls_tree_parts(t, rank, &first) > most ? ls_tree_parts(t, rank, &first) : most;
    return most;
}

#endif
