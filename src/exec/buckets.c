/* Kept gradients cut into buckets: ranges of memory that a pass completes one after the other. */
#include "base/system/clock.h"
#include "base/log.h"
#include "graph/ops.h"
#include "sync/compress.h"
#include "exec/device/host_copy.h"
#include "exec/engine.h"
#include "exec/shards/params.h"
#include "exec/shards/shards.h"
#include "exec/split/split.h"

#include <string.h>

#define DEVICE_MB 25 /* a bucket's MiB where devices sum: they are fast, and each sum costs the host time */

/* A gradient in the order of completion. */
struct grad {
    int tensor;
    size_t first, count; /* floats, padding included */
    int ready;           /* the node that writes it */
    struct ls_sync_matrix matrix;
    bool plain; /* made by forward: a statistic */
    bool local; /* of rows that are here alone */
};

static enum ls_status list_grads(const struct ls_engine *e, struct grad **list, int *n)
{
    const struct ls_graph *g = &e->train.graph;
    struct grad *grads = ls_alloc((size_t)g->n_tensors, sizeof *grads);
    *n = 0;
    if (!grads)
        return LS_FAILED;
    for (int node = 0; node < g->n_nodes; node++)
        for (int o = 0; o < LS_MAX_OUT; o++) {
            int t = g->nodes[node].out[o];
            size_t bytes;
            if (t == LS_NONE || g->tensors[t].role != LS_ROLE_GRAD)
                continue;
            const float *memory = e->backend->memory(e->train.program, t, &bytes);
            grads[(*n)++] = (struct grad){.tensor = t,
                                          .first = (size_t)(memory - e->kept),
                                          .ready = node,
                                          .plain = g->nodes[node].phase == LS_FORWARD,
                                          .local = ls_split_owns(e, t)};
        }
    for (int i = 0; i < *n; i++) {
        struct ls_sync_matrix *m = &grads[i].matrix;
        grads[i].count = (i + 1 < *n ? grads[i + 1].first : e->n_grads) - grads[i].first;
        *m = (struct ls_sync_matrix){.first = grads[i].first, .count = grads[i].count};
        if (!e->backend->matrix(e->train.program, grads[i].tensor, &m->rows, &m->cols, &m->block) ||
            m->rows * m->cols != m->count)
            m->cols = 0;
    }
    *list = grads;
    return LS_OK;
}

/* --- where to cut ------------------------------------------------------------------------------------- */

/* Gradient i has arrived where strategies see it. */
static enum ls_status see_grad(struct ls_engine *e, int i, double start, double *ready)
{
    LS_TRY(e->backend->queue->arrived(e->train.program, i % LS_QUEUE_MARKS));
    ready[i] = ls_now() - start;
    return LS_OK;
}

/* One pass, with the seconds at which each gradient has arrived. Where run only enqueues, the pass goes on meanwhile, as far
 * as there are marks. */
static enum ls_status time_once(struct ls_engine *e, const struct grad *grads, int n, const struct ls_run *run,
                                double *ready)
{
    const struct ls_backend *b = e->backend;
    int under_way = b->queue->delay ? LS_QUEUE_MARKS - 1 : 0, seen = 0, at = 0;
    double start = ls_now();
    for (int i = 0; i < n; i++) {
        int end = grads[i].ready + 1;
        if (end > at)
            LS_TRY(b->run(e->train.program, at, end, run));
        at = end > at ? end : at;
        LS_TRY(b->queue->fetch(e->train.program, i % LS_QUEUE_MARKS, e->grads + grads[i].first,
                               e->kept + grads[i].first, grads[i].count));
        while (i + 1 - seen > under_way)
            LS_TRY(see_grad(e, seen++, start, ready));
    }
    while (seen < n)
        LS_TRY(see_grad(e, seen++, start, ready));
    return LS_OK;
}

/* How far into a pass each gradient is complete: one pass over blank images after one that warms up. */
static enum ls_status time_pass(struct ls_engine *e, const struct grad *grads, int n, double *ready)
{
    enum ls_status st = LS_OK;
    const struct ls_backend *b = e->backend;
    struct ls_run run = {.valid = e->size.batch, .grad_scale = 1.0f / (float)e->size.batch, .stat_weight = 1};
    size_t values = (size_t)(e->size.batch * e->size.channels * e->size.height * e->size.width);
    float *images = ls_alloc(values, sizeof *images);
    int32_t *labels = ls_alloc((size_t)e->size.batch, sizeof *labels);
    if (!images || !labels) {
        st = LS_FAILED;
        goto free_batch;
    }
    LS_TRY_GOTO(free_batch, b->input(e->train.program, e->train.graph.input, images));
    LS_TRY_GOTO(free_batch, b->input(e->train.program, e->train.graph.label, labels));
    for (int round = 0; round < 2; round++)
        LS_TRY_GOTO(free_batch, time_once(e, grads, n, &run, ready));
free_batch:
    ls_free(images);
    ls_free(labels);
    return st;
}

static enum ls_status cut_by_time(struct ls_engine *e, const struct grad *grads, int n, bool *last)
{
    enum ls_status st = LS_FAILED;
    double *ready = ls_alloc((size_t)n, sizeof *ready);
    size_t *bytes = ls_alloc((size_t)n, sizeof *bytes);
    if (!ready || !bytes)
        goto free_lists;
    LS_TRY_GOTO(free_lists, time_pass(e, grads, n, ready));
    for (int i = 0; i < n; i++)
        bytes[i] = grads[i].local ? 0 : grads[i].count * sizeof(float);
    LS_TRY_GOTO(free_lists,
                ls_sync_cut(n, ready, bytes,
                            ls_comm_cost(e->comm, ls_comm_choice(e->comm, e->n_grads * sizeof(float) / 8)), last));
    st = ls_comm_broadcast(e->comm, 0, last, (size_t)n * sizeof *last);
free_lists:
    ls_free(ready);
    ls_free(bytes);
    return st;
}

static void cut_by_size(const struct grad *grads, int n, double mib, bool *last)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += grads[i].count * sizeof(float);
        last[i] = i == n - 1 || (double)sum >= mib * 1048576;
        if (last[i])
            sum = 0;
    }
}

static enum ls_status cut(struct ls_engine *e, const struct ls_options *o, const struct grad *grads, int n, bool *last)
{
    enum ls_sync_cut how = e->strategy->cut;
    if (e->strategy->shards_state && ls_shards_by_norm(e))
        how = LS_CUT_BY_TENSOR;
    for (int i = 0; i < n; i++)
        last[i] = i == n - 1 || how == LS_CUT_BY_TENSOR;
    if (how == LS_CUT_BY_TIME && e->params) /* which cannot be timed: no parameters are there yet */
        how = LS_CUT_NONE;
    if (how == LS_CUT_BY_TIME && o->bucket_mb <= 0)
        return cut_by_time(e, grads, n, last);
    if (how == LS_CUT_BY_TIME || how == LS_CUT_BY_SIZE)
        cut_by_size(grads, n, o->bucket_mb > 0 ? o->bucket_mb : DEVICE_MB, last);
    return LS_OK;
}

/* --- what updates a bucket ---------------------------------------------------------------------------- */

static int bucket_of(const struct ls_engine *e, int update)
{
    const struct ls_graph *g = &e->train.graph;
    for (int i = 0; i < LS_MAX_IN; i++) {
        int t = g->nodes[update].in[i];
        size_t bytes;
        if (t == LS_NONE || g->tensors[t].role != LS_ROLE_GRAD)
            continue;
        size_t at = (size_t)((const float *)e->backend->memory(e->train.program, t, &bytes) - e->kept);
        for (int b = 0; b < e->n_buckets; b++)
            if (at >= e->buckets[b].first && at < e->buckets[b].first + e->buckets[b].count)
                return b;
    }
    return LS_NONE;
}

static bool touches(const struct ls_node *n, int tensor)
{
    for (int i = 0; i < LS_MAX_IN; i++)
        if (n->in[i] == tensor)
            return true;
    return false;
}

static bool has_value(const struct ls_bucket *b, const float *memory)
{
    for (int v = 0; v < b->n_values; v++)
        if (b->values[v].memory == memory)
            return true;
    return false;
}

/* Parameters and state that an update reads are those it changes. An average reads what an update changed before it. */
static void add_values(const struct ls_engine *e, int update, struct ls_bucket *b)
{
    const struct ls_graph *g = &e->train.graph;
    for (int i = 0; i < LS_MAX_IN; i++) {
        int t = g->nodes[update].in[i];
        size_t bytes;
        if (t == LS_NONE || !ls_role_kept(g->tensors[t].role))
            continue;
        for (int n = b->used + 1; n < e->train.end; n++)
            if (touches(&g->nodes[n], t))
                b->used = n;
        float *memory = e->backend->memory(e->train.program, t, &bytes);
        if (has_value(b, memory))
            continue;
        b->values[b->n_values++] = (struct ls_sync_values){.memory = memory,
                                                           .count = bytes / sizeof(float),
                                                           .optimizer = g->tensors[t].role == LS_ROLE_OPTIMIZER,
                                                           .running = g->tensors[t].role == LS_ROLE_STATE};
    }
}

static enum ls_status find_updates(struct ls_engine *e)
{
    int n = e->train.graph.n_nodes - e->train.end, used = 0;
    e->update_nodes = ls_alloc((size_t)n, sizeof *e->update_nodes);
    e->update_first = ls_alloc((size_t)e->n_buckets + 1, sizeof *e->update_first);
    if (!e->update_nodes || !e->update_first)
        return LS_FAILED;
    for (int b = 0; b < e->n_buckets; b++) {
        e->update_first[b] = used;
        for (int node = e->train.end; node < e->train.graph.n_nodes; node++)
            if (bucket_of(e, node) == b)
                e->update_nodes[used++] = node;
        int updates = used - e->update_first[b];
        e->buckets[b].values = ls_alloc((size_t)updates * LS_MAX_IN, sizeof *e->buckets[b].values);
        if (!e->buckets[b].values)
            return LS_FAILED;
        for (int i = e->update_first[b]; i < used; i++)
            add_values(e, e->update_nodes[i], &e->buckets[b]);
    }
    e->update_first[e->n_buckets] = used;
    if (used != n)
        return ls_fail(LS_FAILED, "%d of %d updates have no gradient", n - used, n);
    return LS_OK;
}

/* --- padding ------------------------------------------------------------------------------------------ */

/* A gradient of ones, as the host sees it. */
static enum ls_status write_ones(const struct ls_engine *e, const struct grad *g)
{
    int64_t count = ls_shape_count(&e->train.graph.tensors[g->tensor].shape);
    float *ones = ls_alloc((size_t)count, sizeof *ones);
    if (!ones)
        return LS_FAILED;
    for (int64_t i = 0; i < count; i++)
        ones[i] = 1;
    enum ls_status st = e->backend->write(e->train.program, g->tensor, ones);
    ls_free(ones);
    if (st != LS_OK || e->grads == e->kept)
        return st;
    LS_TRY(e->backend->queue->fetch(e->train.program, 0, e->grads + g->first, e->kept + g->first, g->count));
    LS_TRY(e->backend->queue->arrived(e->train.program, 0));
    return e->backend->queue->clear(e->train.program, e->kept + g->first, g->count);
}

/* A tensor of ones shows where its memory holds no value. Counts the stretches, and lists them where there is room. */
static enum ls_status find_gaps(const struct ls_engine *e, const struct grad *g, struct ls_sync_gap *gaps, int *n)
{
    float *memory = e->grads + g->first;
    enum ls_status st = write_ones(e, g);
    for (size_t i = 0; st == LS_OK && i < g->count; i++) {
        size_t first = i;
        while (i < g->count && memory[i] == 0)
            i++;
        if (i == first)
            continue;
        if (gaps)
            gaps[*n] = (struct ls_sync_gap){g->first + first, i - first};
        ++*n;
    }
    memset(memory, 0, g->count * sizeof *memory);
    return st;
}

static enum ls_status list_gaps(const struct ls_engine *e, const struct grad *grads, int n, struct ls_bucket *b)
{
    for (int round = 0; round < 2; round++) {
        b->n_gaps = 0;
        for (int i = 0; i < n; i++)
            LS_TRY(find_gaps(e, &grads[i], b->gaps, &b->n_gaps));
        if (round == 0 && !(b->gaps = ls_alloc((size_t)b->n_gaps, sizeof *b->gaps)))
            return LS_FAILED;
    }
    return LS_OK;
}

enum ls_status ls_engine_make_buckets(struct ls_engine *e, const struct ls_options *o)
{
    const struct ls_codec *codec = ls_compress_find(o->compress);
    const struct ls_sync_ops *ops = e->strategy;
    struct grad *grads = NULL;
    int n = 0;
    if (e->n_grads == 0 || e->buckets)
        return LS_OK;
    LS_TRY(list_grads(e, &grads, &n));
    enum ls_status st = LS_FAILED;
    bool *last = ls_alloc((size_t)n, sizeof *last);
    e->buckets = ls_alloc((size_t)n, sizeof *e->buckets);
    if (!last || !e->buckets)
        goto free_lists;
    LS_TRY_GOTO(free_lists, cut(e, o, grads, n, last));
    for (int i = 0; i + 1 < n; i++)
        last[i] |= (grads[i].plain && !grads[i + 1].plain && (strcmp(o->compress, "none") != 0 || ops->shards_state)) ||
                   grads[i].local != grads[i + 1].local ||
                   (e->params && ls_params_group_ends(e, grads[i].first + grads[i].count));
    for (int i = 0, first = 0; i < n; i++) {
        if (!last[i])
            continue;
        e->buckets[e->n_buckets++] = (struct ls_bucket){.first = grads[first].first,
                                                        .count = grads[i].first + grads[i].count - grads[first].first,
                                                        .ready = ops->after_pass ? e->train.end - 1 : grads[i].ready,
                                                        .plain = grads[i].plain,
                                                        .local = grads[i].local};
        struct ls_bucket *b = &e->buckets[e->n_buckets - 1];
        b->matrices = ls_alloc((size_t)(i + 1 - first), sizeof *b->matrices);
        if (!b->matrices)
            goto free_lists;
        if (!ops->no_reduce && codec && codec->fills_padding && !b->plain)
            LS_TRY_GOTO(free_lists, list_gaps(e, grads + first, i + 1 - first, b));
        for (; first <= i; first++)
            b->matrices[b->n_matrices++] = grads[first].matrix;
    }
    LS_TRY_GOTO(free_lists, find_updates(e));
    e->updates_together = (e->backend->queue->delay > 0 || o->clip_norm > 0) && !ops->shards;
    if (ops->shards_state)
        LS_TRY_GOTO(free_lists, ls_shards_open(e, o));
    if (e->backend->queue->own_memory && ops->works_on_values)
        st = ls_host_copy_open(e);
free_lists:
    ls_free(grads);
    ls_free(last);
    return st;
}

void ls_engine_free_buckets(struct ls_engine *e)
{
    for (int b = 0; b < e->n_buckets; b++) {
        ls_free(e->buckets[b].values);
        ls_free(e->buckets[b].matrices);
        ls_free(e->buckets[b].gaps);
    }
    ls_host_copy_free(e);
    ls_free(e->buckets);
    ls_free(e->update_nodes);
    ls_free(e->update_first);
    e->buckets = NULL;
    e->n_buckets = 0;
    e->update_nodes = e->update_first = NULL;
}
