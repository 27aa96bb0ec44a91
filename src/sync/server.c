/* Parameters are sharded. Rank b mod W owns bucket b: it receives the gradients, keeps the momentum, updates the
 * parameters and sends the new weights to all ranks. */
#include "sync/sync.h"

static int owner_of(const struct ls_sync *s, int bucket)
{
    return bucket % ls_comm_size(s->comm);
}

static enum ls_status ready(struct ls_sync *s, int bucket)
{
    ls_sync_post(s, bucket, LS_WORK_REDUCE, owner_of(s, bucket));
    return LS_OK;
}

/* Broadcasts the owners' values of all buckets. */
static enum ls_status share(struct ls_sync *s, enum ls_sync_part part)
{
    for (int b = 0; b < s->n_buckets; b++)
        ls_sync_post_values(s, b, part,
                            (struct ls_work){.kind = LS_WORK_BROADCAST, .peer = owner_of(s, b), .step = s->step});
    return ls_sync_wait_values(s);
}

static enum ls_status finish(struct ls_sync *s)
{
    int rank = ls_comm_rank(s->comm);
    for (int b = 0; b < s->n_buckets; b++) {
        LS_TRY(ls_sync_wait(s, &s->works[b]));
        if (owner_of(s, b) == rank)
            LS_TRY(ls_sync_update(s, b));
    }
    LS_TRY(s->values_arrived(s->context));
    return share(s, LS_PART_MODEL);
}

static enum ls_status collect(struct ls_sync *s)
{
    for (int b = 0; b < s->n_buckets; b++)
        if (owner_of(s, b) == ls_comm_rank(s->comm))
            LS_TRY(s->fetch_values(s->context, b, LS_PART_ALL));
    LS_TRY(s->values_arrived(s->context));
    return share(s, LS_PART_OPTIMIZER);
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
