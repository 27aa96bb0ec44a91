#include "train/replicas.h"
#include "base/memory.h"

#include <string.h>

/* --- sums of gradients -------------------------------------------------------------------------------- */

static float *unfinished(const struct ls_replicas *r, int level)
{
    return r->unfinished + (size_t)level * r->room;
}

/* Keep the gradients at a level of the walk; they will be overwritten. */
static void put_by(struct ls_replicas *r, int level)
{
    float *kept = unfinished(r, level);
    for (int i = 0; i < r->n_ranges; i++) {
        const float *values = r->ranges[i].values;
        size_t count = r->ranges[i].count;
#pragma omp parallel for simd
        for (size_t k = 0; k < count; k++)
            kept[k] = values[k];
        kept += count;
    }
}

/* gradients = what was put by + gradients. */
static void add_back(struct ls_replicas *r, int level)
{
    const float *kept = unfinished(r, level);
    for (int i = 0; i < r->n_ranges; i++) {
        float *values = r->ranges[i].values;
        size_t count = r->ranges[i].count;
#pragma omp parallel for simd
        for (size_t k = 0; k < count; k++)
            values[k] = kept[k] + values[k];
        kept += count;
    }
}

void ls_replicas_clear(struct ls_replicas *r)
{
    for (int i = 0; i < r->n_ranges; i++)
        memset(r->ranges[i].values, 0, r->ranges[i].count * sizeof(float));
}

static void add_totals(struct ls_totals *sum, const struct ls_totals *more)
{
    sum->loss += more->loss;
    sum->top1 += more->top1;
    sum->top5 += more->top5;
    sum->samples += more->samples;
}

/* --- the walk ----------------------------------------------------------------------------------------- */

struct walk {
    struct ls_replicas *r;
    ls_pass pass;
    void *context;
};

/* R1 */
static enum ls_status run_replica(const struct walk *w, int replica, struct ls_totals *totals)
{
    int level = w->r->levels - 1;
    *totals = (struct ls_totals){0};
    for (int pass = 0; pass < w->r->passes; pass++) {
        if (pass > 0)
            put_by(w->r, level);
        LS_TRY(w->pass(w->context, replica, pass, totals));
        if (pass > 0)
            add_back(w->r, level);
    }
    return LS_OK;
}

/* R2: T(v, s), at depth `level` of the tree. */
static enum ls_status run_tree(const struct walk *w, int v, int s, int level, struct ls_totals *totals)
{
    struct ls_totals right;
    if (s >= w->r->replicas)
        return run_replica(w, v, totals);
    LS_TRY(run_tree(w, v, 2 * s, level + 1, totals));
    if (v + s >= w->r->replicas)
        return LS_OK;
    put_by(w->r, level);
    LS_TRY(run_tree(w, v + s, 2 * s, level + 1, &right));
    add_back(w->r, level);
    add_totals(totals, &right);
    return LS_OK;
}

enum ls_status ls_replicas_run(struct ls_replicas *r, ls_pass pass, void *context, struct ls_totals *totals)
{
    struct walk w = {r, pass, context};
    return run_tree(&w, 0, 1, 0, totals);
}

/* The leaves of T(v, s) from left to right. */
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

static int tree_depth(int replicas)
{
    int depth = 0;
    while ((1 << depth) < replicas)
        depth++;
    return depth;
}

enum ls_status ls_replicas_init(struct ls_replicas *r, int replicas, int passes, const struct ls_grad_range *ranges,
                                int n_ranges)
{
    *r = (struct ls_replicas){.replicas = replicas, .passes = passes, .n_ranges = n_ranges};
    r->levels = tree_depth(replicas) + (passes > 1);
    for (int i = 0; i < n_ranges; i++)
        r->room += ranges[i].count;
    r->order = ls_alloc((size_t)replicas * (size_t)passes, sizeof *r->order);
    r->ranges = ls_alloc((size_t)n_ranges, sizeof *r->ranges);
    r->unfinished = ls_alloc((size_t)r->levels * r->room, sizeof *r->unfinished);
    if (!r->order || !r->ranges || !r->unfinished) {
        ls_replicas_release(r);
        return LS_FAILED;
    }
    if (n_ranges > 0)
        memcpy(r->ranges, ranges, (size_t)n_ranges * sizeof *ranges);
    list_leaves(0, 1, replicas, r->order);
    for (int i = replicas - 1; i >= 0; i--)
        for (int pass = passes - 1; pass >= 0; pass--)
            r->order[i * passes + pass] = r->order[i] * passes + pass;
    return LS_OK;
}

void ls_replicas_release(struct ls_replicas *r)
{
    ls_free(r->order);
    ls_free(r->ranges);
    ls_free(r->unfinished);
    *r = (struct ls_replicas){0};
}
