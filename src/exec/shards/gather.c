/* State and parameters in shards, read and written as whole tensors. Rank 0 names a tensor to all others, and each of them sends or receives
 * its windows. One tensor at a time is whole, on rank 0 alone. */
#include "base/log.h"
#include "base/memory.h"
#include "exec/shards/params.h"
#include "exec/shards/plan.h"

#include <string.h>

enum { TAG_REQUEST = LS_TAG_LIMIT - 5, TAG_VALUES = LS_TAG_LIMIT - 6 };

enum request_kind { REQUEST_READ, REQUEST_WRITE, REQUEST_END };

struct request {
    int32_t kind, tensor;
};

static enum ls_status message(const struct ls_engine *e, enum ls_work_kind kind, int rank, uint32_t tag, void *data,
                              size_t bytes)
{
    struct ls_work w = {.kind = kind, .peer = rank, .tag = tag, .data = data, .bytes = bytes, .bucket = -1};
    return ls_comm_do(e->comm, &w);
}

static enum ls_status ask_all(const struct ls_engine *e, enum request_kind kind, int tensor)
{
    struct request r = {(int32_t)kind, tensor};
    for (int rank = 1; rank < ls_comm_size(e->comm); rank++)
        LS_TRY(message(e, LS_WORK_SEND, rank, TAG_REQUEST, &r, sizeof r));
    return LS_OK;
}

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* The update in whose windows the tensor is held. */
static int update_of(const struct ls_engine *e, int tensor)
{
    const struct ls_graph *g = &e->train.graph;
    int tensors[LS_SHARDED];
    for (int n = e->train.end; n < g->n_nodes; n++)
        for (int i = ls_shards_updates(g, n) ? ls_shards_tensors(g, n, tensors) - 1 : -1; i >= 0; i--)
            if (tensors[i] == tensor)
                return n;
    return LS_NONE;
}

static float *own_values(const struct ls_engine *e, int tensor)
{
    size_t bytes;
    if (e->train.graph.tensors[tensor].role == LS_ROLE_PARAM)
        return e->shards->params[update_of(e, tensor)];
    return e->backend->memory(e->train.program, tensor, &bytes);
}

size_t ls_shards_count(const struct ls_engine *e, int tensor)
{
    const struct ls_shards *h = e->shards;
    int node = update_of(e, tensor);
    size_t count = 0;
    for (int i = 0; i < h->n_segments; i++)
        count += h->segments[i].node == node ? h->segments[i].own.count : 0;
    return count;
}

/* Copies floats that are held here to the host, or from it, and waits for that. */
static enum ls_status copy_held(const struct ls_engine *e, float *held, float *host, size_t count, bool out)
{
    const struct ls_backend_queue *queue = e->backend->queue;
    struct ls_program *p = e->train.program;
    float any;
    if (out)
        LS_TRY(queue->send(p, held, host, count));
    LS_TRY(queue->fetch(p, LS_SHARD_MARK, out ? &any : host, held, out ? 1 : count));
    return queue->arrived(p, LS_SHARD_MARK);
}

enum ls_status ls_shards_get(const struct ls_engine *e, int tensor, float *values)
{
    size_t count = ls_shards_count(e, tensor);
    return count > 0 ? copy_held(e, own_values(e, tensor), values, count, false) : LS_OK;
}

enum ls_status ls_shards_put(struct ls_engine *e, int tensor, const float *values)
{
    size_t count = ls_shards_count(e, tensor);
    return count > 0 ? copy_held(e, own_values(e, tensor), (float *)(uintptr_t)values, count, true) : LS_OK;
}

/* Copies this process's windows into the whole tensor, or out of it. */
static enum ls_status copy_own(const struct ls_engine *e, int tensor, float *whole, bool out)
{
    const struct ls_shards *h = e->shards;
    float *own = own_values(e, tensor);
    int node = update_of(e, tensor);
    for (int i = 0; i < h->n_segments; i++) {
        const struct ls_window *w = &h->segments[i].own;
        if (h->segments[i].node == node && w->count > 0)
            LS_TRY(copy_held(e, own + w->at, whole + w->first, w->count, out));
    }
    return LS_OK;
}

/* Sends another rank's windows of the whole tensor, or receives them. */
static enum ls_status exchange(const struct ls_engine *e, int tensor, int rank, float *whole, enum ls_work_kind kind)
{
    const struct ls_shards *h = e->shards;
    int node = update_of(e, tensor);
    for (int i = 0; i < h->n_segments; i++) {
        struct ls_window w = ls_shards_window(e, &h->segments[i], rank);
        if (h->segments[i].node == node && w.count > 0)
            LS_TRY(message(e, kind, rank, TAG_VALUES, whole + w.first, w.count * sizeof *whole));
    }
    return LS_OK;
}

/* --- whole tensors ------------------------------------------------------------------------------------------------ */

/* Memory for all of a tensor as stored; windows may end in the padding behind it. */
static float *whole_memory(const struct ls_engine *e, int tensor)
{
    size_t bytes;
    e->backend->memory(e->train.program, tensor, &bytes);
    return ls_alloc((bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN, 1);
}

/* Back to where a tensor was. */
static void point_back(const struct ls_engine *e, int tensor, void *before)
{
    if (e->train.graph.tensors[tensor].role == LS_ROLE_PARAM)
        ls_params_point(e, &e->train, tensor);
    else
        e->backend->point(e->train.program, tensor, before, NULL);
}

/* Reads or writes the values of a tensor that is stored in `whole`. Its memory is the backend's meanwhile. */
static enum ls_status convert(const struct ls_engine *e, int tensor, float *whole, float *values, bool write)
{
    size_t bytes;
    void *memory, *before = e->backend->memory(e->train.program, tensor, &bytes);
    LS_TRY(ls_backend_take(e->backend, bytes, &memory));
    enum ls_status st = write ? LS_OK : copy_held(e, memory, whole, bytes / sizeof *whole, true);
    e->backend->point(e->train.program, tensor, memory, NULL);
    if (st == LS_OK)
        st = write ? e->backend->write(e->train.program, tensor, values)
                   : e->backend->read(e->train.program, tensor, values);
    point_back(e, tensor, before);
    if (st == LS_OK && write)
        st = copy_held(e, memory, whole, bytes / sizeof *whole, false);
    ls_backend_give(e->backend, memory, bytes);
    return st;
}

enum ls_status ls_shards_read(const struct ls_engine *e, int tensor, float *values)
{
    enum ls_status st = LS_OK;
    float *whole = whole_memory(e, tensor);
    if (!whole)
        return LS_FAILED;
    LS_TRY_GOTO(free_whole, ask_all(e, REQUEST_READ, tensor));
    LS_TRY_GOTO(free_whole, copy_own(e, tensor, whole, false));
    for (int rank = 1; rank < ls_comm_size(e->comm); rank++)
        LS_TRY_GOTO(free_whole, exchange(e, tensor, rank, whole, LS_WORK_RECEIVE));
    st = convert(e, tensor, whole, values, false);
free_whole:
    ls_free(whole);
    return st;
}

enum ls_status ls_shards_write(struct ls_engine *e, int tensor, const float *values)
{
    enum ls_status st = LS_OK;
    float *whole = whole_memory(e, tensor);
    if (!whole)
        return LS_FAILED;
    LS_TRY_GOTO(free_whole, convert(e, tensor, whole, (float *)(uintptr_t)values, true));
    LS_TRY_GOTO(free_whole, ask_all(e, REQUEST_WRITE, tensor));
    LS_TRY_GOTO(free_whole, copy_own(e, tensor, whole, true));
    for (int rank = 1; rank < ls_comm_size(e->comm); rank++)
        LS_TRY_GOTO(free_whole, exchange(e, tensor, rank, whole, LS_WORK_SEND));
free_whole:
    ls_free(whole);
    return st;
}

/* One tensor at a time is whole. */
static enum ls_status start_tensor(struct ls_engine *e, int tensor, uint64_t number, uint64_t seed)
{
    const struct ls_tensor *t = &e->train.graph.tensors[tensor];
    float *values = ls_alloc((size_t)ls_shape_count(&t->shape), sizeof *values);
    float *whole = values && t->apart ? whole_memory(e, tensor) : NULL;
    enum ls_status st = values && (whole || !t->apart) ? LS_OK : LS_FAILED;
    if (st == LS_OK) {
        ls_start_values(t, number, seed, values);
        st = t->apart ? convert(e, tensor, whole, values, true) : e->backend->write(e->train.program, tensor, values);
    }
    if (st == LS_OK && t->apart)
        st = copy_own(e, tensor, whole, true);
    ls_free(values);
    ls_free(whole);
    return st;
}

enum ls_status ls_shards_start_values(struct ls_engine *e, uint64_t seed)
{
    const struct ls_graph *g = &e->train.graph;
    uint64_t number = 0;
    for (int t = 0; t < g->n_tensors; t++) {
        uint64_t own = number;
        number += ls_role_kept(g->tensors[t].role);
        if (ls_role_kept(g->tensors[t].role) && ls_start_needed(&g->tensors[t]))
            LS_TRY(start_tensor(e, t, own, seed));
    }
    return LS_OK;
}

enum ls_status ls_shards_end(const struct ls_engine *e)
{
    return ask_all(e, REQUEST_END, 0);
}

/* --- the other ranks ---------------------------------------------------------------------------------------------- */

/* A window travels straight from where it is held, and there, if the host can read and write that memory. */
static enum ls_status answer_window(const struct ls_engine *e, bool read, float *held, size_t count)
{
    bool apart = e->backend->queue->own_memory;
    enum ls_status st = LS_OK;
    float *host = apart ? ls_alloc(count, sizeof *host) : held;
    if (!host)
        return LS_FAILED;
    if (apart && read)
        st = copy_held(e, held, host, count, false);
    if (st == LS_OK)
        st = message(e, read ? LS_WORK_SEND : LS_WORK_RECEIVE, 0, TAG_VALUES, host, count * sizeof *host);
    if (st == LS_OK && apart && !read)
        st = copy_held(e, held, host, count, true);
    if (apart)
        ls_free(host);
    return st;
}

static enum ls_status answer(const struct ls_engine *e, const struct request *r)
{
    const struct ls_shards *h = e->shards;
    float *own = own_values(e, r->tensor);
    int node = update_of(e, r->tensor);
    for (int i = 0; i < h->n_segments; i++) {
        const struct ls_window *w = &h->segments[i].own;
        if (h->segments[i].node == node && w->count > 0)
            LS_TRY(answer_window(e, r->kind == REQUEST_READ, own + w->at, w->count));
    }
    return LS_OK;
}

enum ls_status ls_shards_serve(const struct ls_engine *e)
{
    for (struct request r;;) {
        LS_TRY(message(e, LS_WORK_RECEIVE, 0, TAG_REQUEST, &r, sizeof r));
        if (r.kind == REQUEST_END)
            return LS_OK;
        LS_TRY(answer(e, &r));
    }
}
