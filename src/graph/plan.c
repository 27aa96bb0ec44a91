#define _GNU_SOURCE
#include "graph/plan.h"
#include "base/log.h"
#include "graph/ops.h"

#include <stdlib.h>

static int root_of(const struct ls_span *spans, int s)
{
    while (spans[s].over != LS_NONE)
        s = spans[s].over;
    return s;
}

static int larger_first(const void *a, const void *b, void *spans)
{
    const struct ls_span *x = (struct ls_span *)spans + *(const int *)a, *y = (struct ls_span *)spans + *(const int *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return *(const int *)a - *(const int *)b;
}

/* The lowest offset at which span s fits among the placed spans (sorted by offset) that are live at the same time. */
static size_t lowest_gap(const struct ls_span *spans, const int *placed, int n_placed, const struct ls_span *s)
{
    size_t at = 0;
    for (int i = 0; i < n_placed; i++) {
        const struct ls_span *p = &spans[placed[i]];
        if (p->last < s->first || s->last < p->first)
            continue;
        if (at + s->bytes <= p->offset)
            break;
        if (p->offset + p->bytes > at)
            at = p->offset + p->bytes;
    }
    return at;
}

enum ls_status ls_plan_place(struct ls_span *spans, int n, bool reuse, size_t *bytes)
{
    enum ls_status st = LS_OK;
    int *order = ls_alloc((size_t)n + 1, sizeof *order), *placed = ls_alloc((size_t)n + 1, sizeof *placed);
    int n_order = 0, n_placed = 0;
    if (!order || !placed) {
        st = LS_FAILED;
        goto free_lists;
    }
    for (int s = 0; s < n; s++) {
        spans[s].bytes = (spans[s].bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
        if (!reuse)
            spans[s].over = LS_NONE;
        int root = root_of(spans, s);
        if (root != s) {
            if (spans[s].first < spans[root].first)
                spans[root].first = spans[s].first;
            if (spans[s].last > spans[root].last)
                spans[root].last = spans[s].last;
        } else {
            order[n_order++] = s;
        }
    }
    qsort_r(order, (size_t)n_order, sizeof *order, larger_first, spans);
    *bytes = 0;
    for (int i = 0; i < n_order; i++) {
        struct ls_span *s = &spans[order[i]];
        s->offset = reuse ? lowest_gap(spans, placed, n_placed, s) : *bytes;
        if (s->offset + s->bytes > *bytes)
            *bytes = s->offset + s->bytes;
        int at = n_placed++;
        for (; at > 0 && spans[placed[at - 1]].offset > s->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = order[i];
    }
    for (int s = 0; s < n; s++)
        spans[s].offset = spans[root_of(spans, s)].offset;
free_lists:
    ls_free(order);
    ls_free(placed);
    return st;
}

void ls_plan_lifetimes(const struct ls_graph *g, int *first, int *last)
{
    for (int t = 0; t < g->n_tensors; t++) {
        first[t] = g->n_nodes;
        last[t] = -1;
    }
    for (int n = 0; n < g->n_nodes; n++) {
        for (int i = 0; i < LS_MAX_IN + LS_MAX_OUT; i++) {
            int t = i < LS_MAX_IN ? g->nodes[n].in[i] : g->nodes[n].out[i - LS_MAX_IN];
            if (t == LS_NONE)
                continue;
            if (n < first[t])
                first[t] = n;
            last[t] = n;
        }
    }
    int kept[] = {g->logits, g->loss, g->label_rank};
    for (int i = 0; i < 3; i++)
        if (kept[i] != LS_NONE && last[kept[i]] >= 0)
            last[kept[i]] = g->n_nodes;
}

int ls_plan_inplace(const struct ls_graph *g, int n, const int *last)
{
    const struct ls_node *node = &g->nodes[n];
    int slot = node->op->inplace - 1;
    if (slot < 0 || node->in[slot] == LS_NONE || node->out[0] == LS_NONE)
        return LS_NONE;
    int in = node->in[slot], out = node->out[0];
    for (int i = 0; i < LS_MAX_IN; i++)
        if (i != slot && node->in[i] == in)
            return LS_NONE;
    if (g->tensors[in].role != LS_ROLE_ACT || g->tensors[out].role != LS_ROLE_ACT || last[in] != n ||
        g->tensors[in].dtype != g->tensors[out].dtype || !ls_shape_equal(&g->tensors[in].shape, &g->tensors[out].shape))
        return LS_NONE;
    return in;
}
