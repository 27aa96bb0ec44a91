/* Copies of the values that updates change, in the host's memory (engine.h). */
#include "base/log.h"
#include "base/memory.h"
#include "exec/engine.h"

struct twin {
    int tensor;
    float *host; /* borrowed from memory below */
    bool optimizer;
};

struct ls_host_copy {
    struct twin *twins; /* owned */
    int *first;         /* owned; bucket b: twins[first[b]] .. [first[b + 1] - 1] */
    float *memory;      /* owned */
};

static size_t count_of(const struct ls_engine *e, int tensor)
{
    return (size_t)ls_shape_count(&e->train.graph.tensors[tensor].shape);
}

/* The tensor whose memory a bucket's values are; LS_NONE: there is none. */
static int tensor_at(const struct ls_engine *e, const float *memory)
{
    const struct ls_graph *g = &e->train.graph;
    for (int t = 0; t < g->n_tensors; t++) {
        size_t bytes;
        if (ls_role_kept(g->tensors[t].role) && e->backend->memory(e->train.program, t, &bytes) == memory)
            return t;
    }
    return LS_NONE;
}

/* Values keep their order; their memory and count become those of the copy. */
static enum ls_status place(struct ls_engine *e, struct ls_host_copy *m)
{
    float *at = m->memory;
    int n = 0;
    for (int b = 0; b < e->n_buckets; b++) {
        m->first[b] = n;
        for (int v = 0; v < e->buckets[b].n_values; v++) {
            struct ls_sync_values *values = &e->buckets[b].values[v];
            int tensor = tensor_at(e, values->memory);
            if (tensor == LS_NONE)
                return ls_fail(LS_FAILED, "bucket %d: value %d belongs to no tensor", b, v);
            m->twins[n++] = (struct twin){tensor, at, values->optimizer};
            values->memory = at;
            values->count = count_of(e, tensor);
            at += values->count;
        }
    }
    m->first[e->n_buckets] = n;
    return LS_OK;
}

enum ls_status ls_host_copy_open(struct ls_engine *e)
{
    size_t floats = 0, values = 0;
    struct ls_host_copy *m = e->host_copy = ls_alloc(1, sizeof *m);
    if (!m)
        return LS_FAILED;
    for (int b = 0; b < e->n_buckets; b++) {
        values += (size_t)e->buckets[b].n_values;
        for (int v = 0; v < e->buckets[b].n_values; v++)
            floats += e->buckets[b].values[v].count; /* with padding, so never too few */
    }
    m->twins = ls_alloc(values, sizeof *m->twins);
    m->first = ls_alloc((size_t)e->n_buckets + 1, sizeof *m->first);
    m->memory = ls_alloc(floats, sizeof *m->memory);
    if (!m->twins || !m->first || !m->memory)
        return LS_FAILED;
    LS_TRY(place(e, m));
    return ls_host_copy_pull_all(e);
}

void ls_host_copy_free(struct ls_host_copy *m)
{
    if (!m)
        return;
    ls_free(m->twins);
    ls_free(m->first);
    ls_free(m->memory);
    ls_free(m);
}

static bool is_of(const struct twin *t, enum ls_sync_part part)
{
    return part == LS_PART_ALL || (part == LS_PART_MODEL && !t->optimizer);
}

enum ls_status ls_host_copy_pull(struct ls_engine *e, int bucket, enum ls_sync_part part)
{
    const struct ls_host_copy *m = e->host_copy;
    for (int i = m ? m->first[bucket] : 0; m && i < m->first[bucket + 1]; i++)
        if (is_of(&m->twins[i], part))
            LS_TRY(e->backend->read(e->train.program, m->twins[i].tensor, m->twins[i].host));
    return LS_OK;
}

enum ls_status ls_host_copy_pull_all(struct ls_engine *e)
{
    for (int b = 0; e->host_copy && b < e->n_buckets; b++)
        LS_TRY(ls_host_copy_pull(e, b, LS_PART_ALL));
    return LS_OK;
}

enum ls_status ls_host_copy_push(struct ls_engine *e, enum ls_sync_part part)
{
    const struct ls_host_copy *m = e->host_copy;
    for (int i = 0; m && i < m->first[e->n_buckets]; i++)
        if (is_of(&m->twins[i], part))
            LS_TRY(e->backend->write(e->train.program, m->twins[i].tensor, m->twins[i].host));
    return LS_OK;
}
