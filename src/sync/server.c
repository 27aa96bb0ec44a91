/* Parameters are sharded. Rank b mod W owns bucket b: it receives the gradients, keeps the momentum, updates the
 * parameters and sends the new weights to all ranks. */
#include "sync/sync.h"

extern const struct ls_sync_ops ls_sync_dedicated;

static int owner_of(const struct ls_sync *s, int bucket)
{
    return bucket % ls_comm_size(s->comm);
}

static enum ls_status ready(struct ls_sync *s, int bucket)
{
    ls_sync_post(s, bucket, LS_WORK_REDUCE, owner_of(s, bucket));
    return LS_OK;
}

/* Broadcasts the owner's values of a bucket: the optimizer state, or all others. */
static enum ls_status share(struct ls_sync *s, int bucket, bool optimizer)
{
    const struct ls_bucket *b = &s->buckets[bucket];
    for (int v = 0; v < b->n_values; v++) {
        struct ls_work work = {.kind = LS_WORK_BROADCAST,
                               .peer = owner_of(s, bucket),
                               .data = b->values[v].memory,
                               .bytes = b->values[v].count * sizeof(float),
                               .step = s->step,
                               .bucket = bucket};
        if (b->values[v].optimizer != optimizer)
            continue;
        ls_comm_post(s->comm, &work);
        LS_TRY(ls_sync_wait(s, &work));
    }
    return LS_OK;
}

static enum ls_status finish(struct ls_sync *s)
{
    int rank = ls_comm_rank(s->comm);
    for (int b = 0; b < s->n_buckets; b++) {
        LS_TRY(ls_sync_wait(s, &s->works[b]));
        if (owner_of(s, b) == rank)
            LS_TRY(ls_sync_update(s, b));
    }
    for (int b = 0; b < s->n_buckets; b++)
        LS_TRY(share(s, b, false));
    return LS_OK;
}

static enum ls_status collect(struct ls_sync *s)
{
    for (int b = 0; b < s->n_buckets; b++) {
        if (owner_of(s, b) == ls_comm_rank(s->comm))
            LS_TRY(s->pull_values(s->context, b, LS_PART_ALL));
        LS_TRY(share(s, b, true));
    }
    return LS_OK;
}

const struct ls_sync_ops ls_sync_server = {
    .name = "server",
    .summary = "parameters sharded over servers; gradients are pushed, new weights pulled",
    .exact = true,
    .shards = true,
    .works_on_values = true,
    .with_servers = &ls_sync_dedicated,
    .ready = ready,
    .finish = finish,
    .collect = collect,
};
