/* Sums each bucket while the pass computes the next ones, and updates it as soon as its sum is complete. */
#include "sync/sync.h"

static enum ls_status ready(struct ls_sync *s, int bucket)
{
    ls_sync_post(s, bucket, LS_WORK_ALLREDUCE, 0);
    return ls_sync_settle(s, false);
}

static enum ls_status finish(struct ls_sync *s)
{
    return ls_sync_settle(s, true);
}

const struct ls_sync_ops ls_sync_overlap = {
    .name = "overlap",
    .summary = "buckets are summed while backward runs, and updated as soon as they are",
    .exact = true,
    .on_device = true,
    .with_shards = &ls_sync_sharded_overlap,
    .ready = ready,
    .finish = finish,
};
