/* Sums after the pass among some of the processes, one of several groups that sum at the same time: the processes of a
 * layout that have the same stage of the model. */
#include "sync/group_sum.h"

static enum ls_status finish(struct ls_sync *s)
{
    for (int b = 0; b < s->n_buckets; b++) {
        ls_group_sum_post(s->group_sums[b], s->bucket_parts + b * s->n_parts);
        LS_TRY(ls_group_sum_advance(s->group_sums[b], true));
        LS_TRY(ls_sync_update(s, b));
    }
    return LS_OK;
}

const struct ls_sync_ops ls_sync_group = {
    .name = "group",
    .summary = "one sum among the processes that have the same stage, after backward",
    .cut = LS_CUT_NONE,
    .exact = true,
    .after_pass = true,
    .finish = finish,
};
