#include "parallel/parts.h"
#include "base/log.h"

#include <string.h>

enum { TAG_REQUEST = LS_TAG_LIMIT - 3, TAG_VALUES = LS_TAG_LIMIT - 4 };

enum request_kind { REQUEST_READ, REQUEST_WRITE, REQUEST_END };

/* What rank 0 wants from a rank: rows of a tensor, which that rank holds. */
struct request {
    int32_t kind, tensor;
    struct ls_rows rows;
};

int64_t ls_rows_of(const struct ls_tensor *t)
{
    return t->shape.rank > 0 ? t->shape.dim[0] : 1;
}

int64_t ls_row_values(const struct ls_tensor *t)
{
    int64_t rows = ls_rows_of(t);
    return rows > 0 ? ls_shape_count(&t->shape) / rows : 0;
}

/* --- the directory ---------------------------------------------------------------------------------------------- */

/* The lowest rank that holds the row, or -1. */
static int holder_of(const struct ls_parts *p, int tensor, int64_t row)
{
    for (int rank = 0; rank < ls_comm_size(p->comm); rank++) {
        struct ls_rows r = ls_parts_rows(p, rank, tensor);
        if (row >= r.first && row < r.first + r.count)
            return rank;
    }
    return -1;
}

static enum ls_status check_whole(const struct ls_parts *p)
{
    for (int t = 0; t < p->n_tensors; t++) {
        const struct ls_tensor *tensor = &p->whole->tensors[t];
        for (int64_t row = 0; ls_role_kept(tensor->role) && row < ls_rows_of(tensor);) {
            int rank = holder_of(p, t, row);
            if (rank < 0)
                return ls_fail(LS_FAILED, "no rank holds row %lld of %s", (long long)row, tensor->name);
            struct ls_rows r = ls_parts_rows(p, rank, t);
            row = r.first + r.count;
        }
    }
    return LS_OK;
}

enum ls_status ls_parts_open(struct ls_parts *p, const struct ls_rows *mine)
{
    p->n_tensors = p->whole->n_tensors;
    size_t bytes = (size_t)p->n_tensors * sizeof *mine;
    p->rows = ls_alloc((size_t)ls_comm_size(p->comm), bytes);
    if (!p->rows)
        return LS_FAILED;
    LS_TRY(ls_comm_allgather(p->comm, mine, bytes, p->rows));
    return check_whole(p);
}

void ls_parts_close(struct ls_parts *p)
{
    ls_free(p->rows);
    p->rows = NULL;
}

/* --- rank 0 ----------------------------------------------------------------------------------------------------- */

static enum ls_status message(struct ls_parts *p, enum ls_work_kind kind, int rank, uint32_t tag, void *data,
                              size_t bytes)
{
    struct ls_work w = {.kind = kind, .peer = rank, .tag = tag, .data = data, .bytes = bytes};
    return ls_comm_do(p->comm, &w);
}

static enum ls_status ask(struct ls_parts *p, int rank, struct request *r)
{
    return message(p, LS_WORK_SEND, rank, TAG_REQUEST, r, sizeof *r);
}

/* Rank 0's own rows `rows`, out of all that it holds. */
static enum ls_status read_own(struct ls_parts *p, int tensor, struct ls_rows rows, float *to)
{
    const struct ls_tensor *t = &p->whole->tensors[tensor];
    struct ls_rows own = ls_parts_rows(p, ls_comm_rank(p->comm), tensor);
    size_t row = (size_t)ls_row_values(t);
    float *values = ls_alloc((size_t)own.count * row, sizeof *values);
    if (!values)
        return LS_FAILED;
    enum ls_status st = p->read(p->context, tensor, values);
    if (st == LS_OK)
        memcpy(to, values + (size_t)(rows.first - own.first) * row, (size_t)rows.count * row * sizeof *to);
    ls_free(values);
    return st;
}

enum ls_status ls_parts_read(struct ls_parts *p, int tensor, float *values)
{
    const struct ls_tensor *t = &p->whole->tensors[tensor];
    size_t row_bytes = (size_t)ls_row_values(t) * sizeof *values;
    for (int64_t row = 0; row < ls_rows_of(t);) {
        int rank = holder_of(p, tensor, row);
        struct ls_rows held = ls_parts_rows(p, rank, tensor), rows = {row, held.first + held.count - row};
        float *to = values + row * ls_row_values(t);
        if (rank == 0) {
            LS_TRY(read_own(p, tensor, rows, to));
        } else {
            LS_TRY(ask(p, rank, &(struct request){REQUEST_READ, tensor, rows}));
            LS_TRY(message(p, LS_WORK_RECEIVE, rank, TAG_VALUES, to, (size_t)rows.count * row_bytes));
        }
        row += rows.count;
    }
    return LS_OK;
}

enum ls_status ls_parts_write(struct ls_parts *p, int tensor, const float *values)
{
    const struct ls_tensor *t = &p->whole->tensors[tensor];
    size_t row_bytes = (size_t)ls_row_values(t) * sizeof *values;
    for (int rank = 0; rank < ls_comm_size(p->comm); rank++) {
        struct ls_rows rows = ls_parts_rows(p, rank, tensor);
        const float *from = values + rows.first * ls_row_values(t);
        if (rows.count == 0)
            continue;
        if (rank == 0) {
            LS_TRY(p->write(p->context, tensor, from));
            continue;
        }
        LS_TRY(ask(p, rank, &(struct request){REQUEST_WRITE, tensor, rows}));
        LS_TRY(message(p, LS_WORK_SEND, rank, TAG_VALUES, (void *)(uintptr_t)from, (size_t)rows.count * row_bytes));
    }
    return LS_OK;
}

enum ls_status ls_parts_end(struct ls_parts *p)
{
    for (int rank = 1; rank < ls_comm_size(p->comm); rank++)
        LS_TRY(ask(p, rank, &(struct request){.kind = REQUEST_END}));
    return LS_OK;
}

/* --- the other ranks -------------------------------------------------------------------------------------------- */

static enum ls_status answer(struct ls_parts *p, const struct request *r)
{
    size_t count = (size_t)(r->rows.count * ls_row_values(&p->whole->tensors[r->tensor]));
    float *values = ls_alloc(count, sizeof *values);
    if (!values)
        return LS_FAILED;
    enum ls_status st;
    if (r->kind == REQUEST_READ) {
        st = read_own(p, r->tensor, r->rows, values);
        if (st == LS_OK)
            st = message(p, LS_WORK_SEND, 0, TAG_VALUES, values, count * sizeof *values);
    } else {
        st = message(p, LS_WORK_RECEIVE, 0, TAG_VALUES, values, count * sizeof *values);
        if (st == LS_OK)
            st = p->write(p->context, r->tensor, values);
    }
    ls_free(values);
    return st;
}

enum ls_status ls_parts_serve(struct ls_parts *p)
{
    for (struct request r;;) {
        LS_TRY(message(p, LS_WORK_RECEIVE, 0, TAG_REQUEST, &r, sizeof r));
        if (r.kind == REQUEST_END)
            return LS_OK;
        LS_TRY(answer(p, &r));
    }
}
