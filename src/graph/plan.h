/* Where each activation lies. Spans are tensors (or scratch) with a size and the first and last node during which
 * they hold something; ls_plan_place gives each an offset so that no two spans alive at once overlap.
 *
 *   P1  Spans whose lifetimes meet never overlap in memory.
 *   P2  Offsets are multiples of LS_ALIGN.
 *   P3  A span with `over` set lies exactly on that span (an in-place result), whose life it extends.
 *   P4  With reuse off every span has memory of its own; results are the same bits. */
#ifndef LS_GRAPH_PLAN_H
#define LS_GRAPH_PLAN_H

#include "graph/graph.h"

struct ls_span {
    size_t bytes;
    int first, last; /* node numbers, inclusive */
    int over;        /* index of the span it lies on, or LS_NONE */
    size_t offset;   /* the answer */
};

/* Total bytes. */
enum ls_status ls_plan_place(struct ls_span *spans, int n, bool reuse, size_t *bytes);

/* First and last use of every tensor of g (arrays of n_tensors); last = -1: not used by any node. Tensors that are
 * read from outside (logits, loss, rank) live to the end. */
void ls_plan_lifetimes(const struct ls_graph *g, int *first, int *last);

/* The input tensor that output slot 0 of node n may overwrite, or LS_NONE: the op allows it, the input is an
 * activation of the same bytes and dies at n. */
int ls_plan_inplace(const struct ls_graph *g, int n, const int *last);

#endif
