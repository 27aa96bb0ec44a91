/* Large dense layers in chunks of rows of their weights (a row: an output feature), so that several workers can share a layer
 * and compute the bits of one.
 *
 *   SPLIT-1  The gradient of a large layer's inputs is a sum over chunks, along a tree that depends on the number of rows
 *            alone: with C chunks,
 *                T(a, s) = T(a, s/2) + T(a + s/2, s/2)   when chunk a + s/2 exists, else T(a, s/2);   T(a, 1) = chunk a
 *            and the gradient is T(0, 8). Within a chunk, rows are added in their order. All sums are f32; where activations
 *            are bf16, the gradient is rounded once.
 *   SPLIT-2  A worker holds whole chunks that are neighbours. It computes the largest subtrees of its chunks, its parts. */
#ifndef LS_GRAPH_SPLIT_H
#define LS_GRAPH_SPLIT_H

#include "graph/graph.h"

enum {
    LS_SPLIT_CHUNKS = 8,       /* at most */
    LS_SPLIT_PARTS = 3,        /* of one worker, at most */
    LS_SPLIT_ROWS = 128,       /* a large layer has as many rows, */
    LS_SPLIT_WEIGHTS = 4000000 /* and as many weights */
};

static inline bool ls_split_is_large(const struct ls_shape *weights)
{
    return weights->rank == 2 && weights->dim[0] >= LS_SPLIT_ROWS &&
           weights->dim[0] * weights->dim[1] >= LS_SPLIT_WEIGHTS;
}

/* Rows of a chunk, but the last; a multiple of 16. And how many chunks there are. */
static inline int64_t ls_split_chunk(int64_t rows)
{
    return ((rows + LS_SPLIT_CHUNKS - 1) / LS_SPLIT_CHUNKS + 15) / 16 * 16;
}
static inline int ls_split_count(int64_t rows)
{
    return (int)((rows + ls_split_chunk(rows) - 1) / ls_split_chunk(rows));
}

/* Are the sums over chunks [a, m) and [m, b) the two halves of a sum of the tree? */
static inline bool ls_split_joins(int a, int m, int b, int chunks)
{
    int s = m - a, end = a + 2 * s < chunks ? a + 2 * s : chunks;
    return (s & (s - 1)) == 0 && a % (2 * s) == 0 && b == end;
}

/* The parts of chunks [first, end): part i is the sum over [at[i], at[i + 1]). Returns their number. */
static inline int ls_split_parts(int first, int end, int chunks, int at[LS_SPLIT_CHUNKS + 1])
{
    int n = 0;
    for (int chunk = first; chunk < end; chunk++) {
        at[n++] = chunk;
        while (n > 1 && ls_split_joins(at[n - 2], at[n - 1], chunk + 1, chunks))
            n--;
    }
    at[n] = end;
    return n;
}

/* The chunks of a node's layer that are here. */
struct ls_split_range {
    int64_t chunk;          /* rows of a chunk */
    int first, end, chunks; /* [first, end) of so many */
};
/* Of a dense layer, or of its gradient, with these weights. False: it is not computed in chunks. */
static inline bool ls_split_range_of(const struct ls_attr *a, const struct ls_shape *weights, struct ls_split_range *r)
{
    int64_t rows = a->whole_rows > 0 ? a->whole_rows : weights->dim[0];
    if (a->whole_rows == 0 && !ls_split_is_large(weights))
        return false;
    r->chunk = ls_split_chunk(rows);
    r->chunks = ls_split_count(rows);
    r->first = (int)(a->first_row / r->chunk);
    r->end = (int)((a->first_row + weights->dim[0] + r->chunk - 1) / r->chunk);
    return true;
}

/* The dense layer of a graph whose weights or bias the parameter is, where it is computed in chunks: its node, and its chunks
 * that are here; else LS_NONE. */
int ls_split_layer_of(const struct ls_graph *g, int parameter, struct ls_split_range *r);

/* What a backend divides. */
struct ls_split_way {
    int together;    /* so many neighbouring chunks stay on one worker; a power of two, 0: 1 */
    int64_t weights; /* a layer has at least as many; 0: LS_SPLIT_WEIGHTS */
};
/* How many workers can share a layer. */
static inline int ls_split_most(const struct ls_split_way *way, int chunks)
{
    int together = way->together > 1 ? way->together : 1;
    return (chunks + together - 1) / together;
}

/* The first chunk, or row, of the worker at `place`, of so many workers; that of the place behind the last is their number. */
int ls_split_first_chunk(const struct ls_split_way *way, int64_t rows, int place, int workers);
int64_t ls_split_first_row(const struct ls_split_way *way, int64_t rows, int place, int workers);
/* Leaves of each large dense layer the rows of one worker, and puts the ops of graph/ops/split.c around it. Layers that fewer
 * workers can share stay whole. Call it after ls_graph_fuse. *layers: how many were split. */
enum ls_status ls_graph_split(struct ls_graph *g, const struct ls_split_way *way, int place, int workers, int *layers);

#endif
