/* Memory plan of the activations. A span is a tensor or scratch, with a size and with the first and last node that
 * use it. ls_plan_place gives each span an offset such that no two spans that are live at once overlap.
 *
 *   P1  Spans whose lifetimes meet never overlap in memory.
 *   P2  Offsets are multiples of LS_ALIGN.
 *   P3  A span with `over` set has exactly the memory of that span (an in-place result), and extends its lifetime.
 *   P4  With reuse off every span has separate memory; results are the same bits. */
#ifndef LS_GRAPH_PLAN_H
#define LS_GRAPH_PLAN_H

#include "graph/graph.h"

struct ls_span {
    size_t bytes;
    int first, last; /* node numbers, inclusive */
    int over;        /* index of the span whose memory it reuses, or LS_NONE */
    size_t offset;   /* result of ls_plan_place */
};

/* Places all spans and sets *bytes to the total size. */
enum ls_status ls_plan_place(struct ls_span *spans, int n, bool reuse, size_t *bytes);

/* The first and last use of every tensor of g, in arrays of n_tensors. last = -1: no node uses it. Tensors that are
 * read from outside (logits, loss, rank) are live to the end. */
void ls_plan_lifetimes(const struct ls_graph *g, int *first, int *last);

/* The input tensor whose memory output slot 0 of node n may reuse, or LS_NONE. The op must allow it, and the input
 * must be an activation of the same size whose last use is n. */
int ls_plan_inplace(const struct ls_graph *g, int n, const int *last);

#endif
