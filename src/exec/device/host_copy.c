#include "exec/device/host_copy.h"
#include "base/log.h"
#include "base/memory.h"

/* The mark of all pulls. Where a bucket of gradients has it, too, waiting for one waits for both. */
enum { PULLED = LS_QUEUE_MARKS - 1 };

struct twin {
    int tensor;
    float *host; /* borrowed from memory below */
    float *device;
    size_t count;
    bool optimizer;
};

struct ls_host_copy {
    struct twin *twins; /* owned */
    int *first;         /* owned; bucket b: twins[first[b]] .. [first[b + 1] - 1] */
    float *memory;      /* of take_memory */
    size_t bytes;
    bool sending; /* the last push may be under way */
};

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

/* Values keep their order; their memory becomes that of the copy. */
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
            m->twins[n++] = (struct twin){tensor, at, values->memory, values->count, values->optimizer};
            values->memory = at;
            at += values->count;
        }
    }
    m->first[e->n_buckets] = n;
    return LS_OK;
}

/* Memory that the other processes of this node can read, and that copies are fast with. */
static enum ls_status take_memory(struct ls_engine *e, struct ls_host_copy *m)
{
    void *region;
    LS_TRY(e->comm ? ls_comm_region(e->comm, m->bytes, &region) : ls_region_map(m->bytes, &region));
    m->memory = region;
    e->backend->queue->pin(region, m->bytes);
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
            floats += e->buckets[b].values[v].count;
    }
    m->twins = ls_alloc(values, sizeof *m->twins);
    m->first = ls_alloc((size_t)e->n_buckets + 1, sizeof *m->first);
    m->bytes = floats * sizeof(float);
    if (!m->twins || !m->first)
        return LS_FAILED;
    LS_TRY(take_memory(e, m));
    LS_TRY(place(e, m));
    return ls_host_copy_pull_all(e);
}

void ls_host_copy_free(struct ls_engine *e)
{
    struct ls_host_copy *m = e->host_copy;
    if (!m)
        return;
    ls_host_copy_wait(e);
    if (m->memory)
        e->backend->queue->unpin(m->memory);
    if (m->memory && !e->comm) /* comm gives its regions back itself */
        ls_region_unmap(m->memory, m->bytes);
    ls_free(m->twins);
    ls_free(m->first);
    ls_free(m);
    e->host_copy = NULL;
}

static enum ls_status fetch(const struct ls_engine *e, const struct twin *t, size_t count)
{
    return e->backend->queue->fetch(e->train.program, PULLED, t->host, t->device, count);
}

enum ls_status ls_host_copy_fetch(struct ls_engine *e, int bucket, enum ls_sync_part part)
{
    const struct ls_host_copy *m = e->host_copy;
    for (int i = m ? m->first[bucket] : 0; m && i < m->first[bucket + 1]; i++)
        if (ls_sync_in_part(m->twins[i].optimizer, part))
            LS_TRY(fetch(e, &m->twins[i], m->twins[i].count));
    return LS_OK;
}

enum ls_status ls_host_copy_arrived(struct ls_engine *e)
{
    return e->host_copy ? e->backend->queue->arrived(e->train.program, PULLED) : LS_OK;
}

enum ls_status ls_host_copy_pull_all(struct ls_engine *e)
{
    for (int b = 0; e->host_copy && b < e->n_buckets; b++)
        LS_TRY(ls_host_copy_fetch(e, b, LS_PART_ALL));
    return ls_host_copy_arrived(e);
}

enum ls_status ls_host_copy_push(struct ls_engine *e, enum ls_sync_part part)
{
    struct ls_host_copy *m = e->host_copy;
    for (int i = 0; m && i < m->first[e->n_buckets]; i++) {
        if (!ls_sync_in_part(m->twins[i].optimizer, part))
            continue;
        LS_TRY(e->backend->queue->send_values(e->train.program, m->twins[i].tensor, m->twins[i].host, 0,
                                              m->twins[i].count));
        m->sending = true;
    }
    return LS_OK;
}

/* A fetch that is enqueued after a push arrives after it. */
enum ls_status ls_host_copy_wait(struct ls_engine *e)
{
    struct ls_host_copy *m = e->host_copy;
    if (!m || !m->sending)
        return LS_OK;
    m->sending = false;
    LS_TRY(fetch(e, &m->twins[0], 1));
    return e->backend->queue->arrived(e->train.program, PULLED);
}
