/* Which rank holds which part of a model: some of its tensors, or some rows of a tensor. A row is an index of dim 0.
 *
 * The directory is one list of rows per rank over the tensors of the whole model. Rank 0 reads or writes one whole tensor at a
 * time, so that no rank ever holds the whole model. Meanwhile the other ranks serve.
 *
 *   PAR-1  Values do not depend on the layout: a tensor that is written on one layout and read on another has the same bits.
 *   PAR-2  Rank 0 decides what is read and written, in any order, and may stop at any time. */
#ifndef LS_PARALLEL_PARTS_H
#define LS_PARALLEL_PARTS_H

#include "comm/comm.h"
#include "graph/graph.h"

struct ls_rows {
    int64_t first, count; /* count 0: none */
};

struct ls_parts {
    struct ls_comm *comm;         /* borrowed */
    const struct ls_graph *whole; /* borrowed; the graph of the whole model. Only tensors that are kept count */
    int n_tensors;
    struct ls_rows *rows; /* owned; rank r holds rows[r * n_tensors + t] of tensor t */
    /* Read and write this rank's rows of a tensor of the whole graph, in plain row-major f32. */
    enum ls_status (*read)(void *context, int tensor, float *values);
    enum ls_status (*write)(void *context, int tensor, const float *values);
    void *context;
};

/* The number of rows of a tensor, and of values in a row. */
int64_t ls_rows_of(const struct ls_tensor *t);
int64_t ls_row_values(const struct ls_tensor *t);

/* All ranks call it. The caller fills comm, whole, read, write and context. `mine` has an entry for each tensor of the whole
 * graph; it is copied. LS_FAILED if some row of a kept tensor is held by no rank. */
enum ls_status ls_parts_open(struct ls_parts *p, const struct ls_rows *mine);
void ls_parts_close(struct ls_parts *p);
static inline struct ls_rows ls_parts_rows(const struct ls_parts *p, int rank, int tensor)
{
    return p->rows[(size_t)rank * (size_t)p->n_tensors + (size_t)tensor];
}

/* On rank 0, while the other ranks serve. read gathers the whole tensor; write gives every rank the rows that it holds. */
enum ls_status ls_parts_read(struct ls_parts *p, int tensor, float *values);
enum ls_status ls_parts_write(struct ls_parts *p, int tensor, const float *values);
/* On the other ranks: answers rank 0 until it calls ls_parts_end. */
enum ls_status ls_parts_serve(struct ls_parts *p);
enum ls_status ls_parts_end(struct ls_parts *p);

#endif
