/* Sums every tensor separately after the pass. */
#include "sync/sync.h"

static enum ls_status finish(struct ls_sync *s)
{
    for (int b = 0; b < s->n_buckets; b++)
        ls_sync_post(s, b, LS_WORK_ALLREDUCE, 0);
    return ls_sync_settle(s, true);
}

const struct ls_sync_ops ls_sync_allreduce = {
    .name = "allreduce",
    .summary = "one sum a tensor, after backward",
    .cut = LS_CUT_BY_TENSOR,
    .exact = true,
    .on_device = true,
    .with_shards = &ls_sync_sharded_allreduce,
    .finish = finish,
};
