/* An engine whose process holds a part of the model (parallel/parts.h). */
#include "base/log.h"
#include "exec/engine.h"
#include "exec/shards/shards.h"
#include "parallel/parts.h"

#include <string.h>

/* The parts, and where the tensors of the whole model are in this process. */
struct ls_engine_parts {
    struct ls_parts parts;
    int *own; /* owned; for each tensor of the whole graph its number in this process's, or LS_NONE */
};

const struct ls_graph *ls_engine_whole(const struct ls_engine *e)
{
    return e->parts ? &e->whole : &ls_engine_net(e)->graph;
}

bool ls_engine_in_parts(const struct ls_engine *e)
{
    return e->parts != NULL || e->params != NULL;
}

/* --- this process's rows ---------------------------------------------------------------------------------------- */

static enum ls_status read_part(void *context, int tensor, float *values)
{
    const struct ls_engine *e = context;
    return e->backend->read(ls_engine_net(e)->program, e->parts->own[tensor], values);
}

static enum ls_status write_part(void *context, int tensor, const float *values)
{
    const struct ls_engine *e = context;
    return e->backend->write(ls_engine_net(e)->program, e->parts->own[tensor], values);
}

/* Without `given`, a tensor that this process has is whole here. */
static enum ls_status find_own(struct ls_engine *e, const struct ls_rows *given, struct ls_rows *mine)
{
    const struct ls_graph *g = &ls_engine_net(e)->graph;
    for (int t = 0; t < e->whole.n_tensors; t++) {
        const struct ls_tensor *whole = &e->whole.tensors[t];
        int own = ls_role_kept(whole->role) ? ls_graph_find(g, whole->name) : LS_NONE;
        mine[t] = (struct ls_rows){0};
        e->parts->own[t] = own;
        if (own == LS_NONE)
            continue;
        mine[t] = given ? given[t] : (struct ls_rows){0, ls_rows_of(whole)};
        if (ls_shape_count(&g->tensors[own].shape) != mine[t].count * ls_row_values(whole))
            return ls_fail(LS_FAILED, "%s: this process has %lld values of it, which are not %lld rows", whole->name,
                           (long long)ls_shape_count(&g->tensors[own].shape), (long long)mine[t].count);
    }
    return LS_OK;
}

enum ls_status ls_engine_open_parts(struct ls_engine *e, const struct ls_rows *given)
{
    struct ls_rows *mine = ls_alloc((size_t)e->whole.n_tensors, sizeof *mine);
    e->parts = ls_alloc(1, sizeof *e->parts);
    if (!mine || !e->parts || !(e->parts->own = ls_alloc((size_t)e->whole.n_tensors, sizeof *e->parts->own))) {
        ls_free(mine);
        return LS_FAILED;
    }
    e->parts->parts =
        (struct ls_parts){.comm = e->comm, .whole = &e->whole, .read = read_part, .write = write_part, .context = e};
    enum ls_status st = find_own(e, given, mine);
    if (st == LS_OK)
        st = ls_parts_open(&e->parts->parts, mine);
    ls_free(mine);
    return st;
}

void ls_engine_close_parts(struct ls_engine *e)
{
    if (!e->parts)
        return;
    ls_parts_close(&e->parts->parts);
    ls_free(e->parts->own);
    ls_free(e->parts);
    e->parts = NULL;
}

/* --- start values ----------------------------------------------------------------------------------------------- */

/* Every process makes the whole tensor and takes its rows, so that values do not depend on the layout. */
static enum ls_status start_tensor(struct ls_engine *e, int tensor, uint64_t number, uint64_t seed)
{
    const struct ls_tensor *t = &e->whole.tensors[tensor];
    struct ls_rows rows = ls_parts_rows(&e->parts->parts, ls_comm_rank(e->comm), tensor);
    if (rows.count == 0 || !ls_start_needed(t))
        return LS_OK;
    float *values = ls_alloc((size_t)ls_shape_count(&t->shape), sizeof *values);
    if (!values)
        return LS_FAILED;
    ls_start_values(t, number, seed, values);
    enum ls_status st = write_part(e, tensor, values + rows.first * ls_row_values(t));
    ls_free(values);
    return st;
}

enum ls_status ls_engine_start_values(struct ls_engine *e, uint64_t seed)
{
    const struct ls_net *net = ls_engine_net(e);
    uint64_t number = 0;
    if (e->params)
        return ls_shards_start_values(e, seed);
    if (!e->parts)
        return ls_program_init_params(e->backend, net->program, &net->graph, seed);
    for (int t = 0; t < e->whole.n_tensors; t++)
        if (ls_role_kept(e->whole.tensors[t].role))
            LS_TRY(start_tensor(e, t, number++, seed));
    return LS_OK;
}

/* --- whole tensors ---------------------------------------------------------------------------------------------- */

/* Optimizer state or parameters in shards; without a part of the model, tensors of the whole graph are this process's. */
static bool is_sharded(const struct ls_engine *e, int tensor)
{
    return e->shards && e->train.graph.tensors[tensor].apart;
}

enum ls_status ls_engine_read(const struct ls_engine *e, int tensor, float *values)
{
    if (is_sharded(e, tensor))
        return ls_shards_read(e, tensor, values);
    return e->parts ? ls_parts_read(&e->parts->parts, tensor, values)
                    : e->backend->read(ls_engine_net(e)->program, tensor, values);
}

enum ls_status ls_engine_write(struct ls_engine *e, int tensor, const float *values)
{
    if (is_sharded(e, tensor))
        return ls_shards_write(e, tensor, values);
    return e->parts ? ls_parts_write(&e->parts->parts, tensor, values)
                    : e->backend->write(ls_engine_net(e)->program, tensor, values);
}

enum ls_status ls_engine_serve(struct ls_engine *e)
{
    if (e->shards)
        return ls_shards_serve(e);
    return e->parts ? ls_parts_serve(&e->parts->parts) : LS_OK;
}

enum ls_status ls_engine_served(struct ls_engine *e, enum ls_status status)
{
    if ((!e->parts && !e->shards) || status == LS_PEER_LOST)
        return status;
    enum ls_status end = e->shards ? ls_shards_end(e) : ls_parts_end(&e->parts->parts);
    return status == LS_OK ? end : status;
}
