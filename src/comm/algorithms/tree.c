#include "comm/algorithms/tree.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

struct walk {
    struct ls_tree *t;
    int *owner; /* process of each replica; owned */
    int *order; /* a part's number when found -> its number in the order of ranks; owned */
};

static bool power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* Writes the leaves of T(v, s) from left to right and returns their number. */
static int list_leaves(int v, int s, int replicas, int *leaves)
{
    if (v >= replicas)
        return 0;
    if (s >= replicas) {
        leaves[0] = v;
        return 1;
    }
    int n = list_leaves(v, 2 * s, replicas, leaves);
    return n + list_leaves(v + s, 2 * s, replicas, leaves + n);
}

static void deal_leaves(struct ls_tree *t, int *owner)
{
    int v = t->replicas, w = t->size;
    bool subtrees = w == v || (power_of_two(w) && v % w == 0);
    if (!subtrees)
        list_leaves(0, 1, v, t->leaves);
    for (int rank = 0; rank < w; rank++) {
        t->first[rank] = (int)((long long)rank * v / w);
        if (subtrees)
            list_leaves(rank, w, v, t->leaves + t->first[rank]);
    }
    t->first[w] = v;
    for (int rank = 0; rank < w; rank++)
        for (int i = t->first[rank]; i < t->first[rank + 1]; i++)
            owner[t->leaves[i]] = rank;
}

/* The process that computes all of T(v, s), or -1. */
static int sole_owner(const struct walk *w, int v, int s)
{
    int owner = w->owner[v];
    for (int other = v; other < w->t->replicas; other += s)
        if (w->owner[other] != owner)
            return -1;
    return owner;
}

/* Finds the parts and sums of T(v, s), numbered in the order found. Returns the part that ends as its sum. */
static int find_parts(struct walk *w, int v, int s)
{
    struct ls_tree *t = w->t;
    int owner = sole_owner(w, v, s);
    if (owner >= 0) {
        t->parts[t->n_parts] = (struct ls_tree_part){.rank = owner, .v = v, .s = s};
        return t->n_parts++;
    }
    int left = find_parts(w, v, 2 * s);
    if (v + s >= t->replicas)
        return left;
    int right = find_parts(w, v + s, 2 * s);
    t->sums[t->n_sums++] = (struct ls_tree_sum){.to = left, .from = right};
    return left;
}

/* Numbers the parts in the order of ranks; those of a rank stay in order from left to right. */
static enum ls_status sort_parts(struct walk *w)
{
    struct ls_tree *t = w->t;
    struct ls_tree_part *sorted = ls_alloc((size_t)t->replicas, sizeof *sorted);
    if (!sorted)
        return LS_FAILED;
    int n = 0;
    for (int rank = 0; rank < t->size; rank++) {
        t->first_part[rank] = n;
        for (int i = 0; i < t->n_parts; i++)
            if (t->parts[i].rank == rank) {
                w->order[i] = n;
                sorted[n++] = t->parts[i];
            }
    }
    t->first_part[t->size] = n;
    ls_free(t->parts);
    t->parts = sorted;
    for (int i = 0; i < t->n_sums; i++) {
        t->sums[i].to = w->order[t->sums[i].to];
        t->sums[i].from = w->order[t->sums[i].from];
    }
    return LS_OK;
}

/* Replaces places by the ranks that take them. */
static enum ls_status place_ranks(struct walk *w, const int *rank_of)
{
    struct ls_tree *t = w->t;
    int n = 0, *leaves = ls_alloc((size_t)t->replicas, sizeof *leaves);
    int *first = ls_alloc((size_t)t->size + 1, sizeof *first);
    if (!leaves || !first) {
        ls_free(leaves);
        ls_free(first);
        return LS_FAILED;
    }
    for (int rank = 0; rank < t->size; rank++) {
        int place = 0;
        while (rank_of[place] != rank)
            place++;
        first[rank] = n;
        for (int i = t->first[place]; i < t->first[place + 1]; i++)
            leaves[n++] = t->leaves[i];
    }
    first[t->size] = n;
    ls_free(t->leaves);
    ls_free(t->first);
    t->leaves = leaves;
    t->first = first;
    for (int i = 0; i < t->n_parts; i++)
        t->parts[i].rank = rank_of[t->parts[i].rank];
    return LS_OK;
}

static enum ls_status take_lists(struct walk *w)
{
    struct ls_tree *t = w->t;
    t->leaves = ls_alloc((size_t)t->replicas, sizeof *t->leaves);
    t->first = ls_alloc((size_t)t->size + 1, sizeof *t->first);
    t->parts = ls_alloc((size_t)t->replicas, sizeof *t->parts);
    t->first_part = ls_alloc((size_t)t->size + 1, sizeof *t->first_part);
    t->sums = ls_alloc((size_t)t->replicas, sizeof *t->sums);
    w->owner = ls_alloc((size_t)t->replicas, sizeof *w->owner);
    w->order = ls_alloc((size_t)t->replicas, sizeof *w->order);
    bool all = t->leaves && t->first && t->parts && t->first_part && t->sums && w->owner && w->order;
    return all ? LS_OK : LS_FAILED;
}

static enum ls_status end_walk(struct walk *w, enum ls_status st)
{
    ls_free(w->owner);
    ls_free(w->order);
    if (st != LS_OK)
        ls_tree_release(w->t);
    return st;
}

enum ls_status ls_tree_init_placed(struct ls_tree *t, int replicas, int size, const int *rank_of)
{
    *t = (struct ls_tree){.replicas = replicas, .size = size};
    struct walk w = {.t = t};
    enum ls_status st = LS_OK;
    if (replicas < size)
        return ls_fail(LS_USAGE,
                       "%d processes cannot share %d replica%s: start at most %d, or a run with --replicas %d", size,
                       replicas, replicas == 1 ? "" : "s", replicas, size);
    LS_TRY_GOTO(end, take_lists(&w));
    deal_leaves(t, w.owner);
    find_parts(&w, 0, 1);
    if (rank_of)
        LS_TRY_GOTO(end, place_ranks(&w, rank_of));
    st = sort_parts(&w);
end:
    return end_walk(&w, st);
}

/* The leaves of each group, in the order of the tree. */
static void deal_to_groups(struct ls_tree *t, const struct ls_tree *of, const int *group_of, int *owner, int *order)
{
    int n = 0;
    for (int rank = 0; rank < of->size; rank++)
        for (int i = of->first[rank]; i < of->first[rank + 1]; i++)
            owner[of->leaves[i]] = group_of[rank];
    list_leaves(0, 1, t->replicas, order);
    for (int group = 0; group < t->size; group++) {
        t->first[group] = n;
        for (int i = 0; i < t->replicas; i++)
            if (owner[order[i]] == group)
                t->leaves[n++] = order[i];
    }
    t->first[t->size] = n;
}

enum ls_status ls_tree_init_grouped(struct ls_tree *t, const struct ls_tree *of, int groups, const int *group_of)
{
    *t = (struct ls_tree){.replicas = of->replicas, .size = groups};
    struct walk w = {.t = t};
    enum ls_status st = LS_OK;
    LS_TRY_GOTO(end, take_lists(&w));
    deal_to_groups(t, of, group_of, w.owner, w.order);
    find_parts(&w, 0, 1);
    st = sort_parts(&w);
end:
    return end_walk(&w, st);
}

enum ls_status ls_tree_init(struct ls_tree *t, int replicas, int size)
{
    return ls_tree_init_placed(t, replicas, size, NULL);
}

enum ls_status ls_tree_add_idle(struct ls_tree *t, int ranks)
{
    size_t room = (size_t)(t->size + ranks + 1), before = (size_t)t->size + 1;
    int *first = ls_realloc(t->first, before, room, sizeof *first);
    t->first = first ? first : t->first;
    int *first_part = ls_realloc(t->first_part, before, room, sizeof *first_part);
    t->first_part = first_part ? first_part : t->first_part;
    if (!first || !first_part)
        return LS_FAILED;
    for (int rank = t->size + 1; rank <= t->size + ranks; rank++) {
        first[rank] = t->replicas;
        first_part[rank] = t->n_parts;
    }
    t->size += ranks;
    return LS_OK;
}

void ls_tree_release(struct ls_tree *t)
{
    ls_free(t->leaves);
    ls_free(t->first);
    ls_free(t->parts);
    ls_free(t->first_part);
    ls_free(t->sums);
    *t = (struct ls_tree){0};
}
