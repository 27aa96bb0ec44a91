/* Rank 0 receives every gradient, adds them and sends the sum back. */
#include "sync/sync.h"

static enum ls_status finish(struct ls_sync *s)
{
    for (int b = 0; b < s->n_buckets; b++)
        ls_sync_post(s, b, LS_WORK_REDUCE, 0);
    for (int b = 0; b < s->n_buckets; b++) {
        LS_TRY(ls_sync_wait(s, &s->works[b]));
        ls_sync_post(s, b, LS_WORK_BROADCAST, 0);
    }
    return ls_sync_settle(s, true);
}

const struct ls_sync_ops ls_sync_gather = {
    .name = "gather",
    .summary = "every gradient to rank 0, averaged there, and back",
    .cut = LS_CUT_BY_TENSOR,
    .exact = true,
    .finish = finish,
};
