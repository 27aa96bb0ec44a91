/* One process. It updates with the gradients that it computed. */
#include "sync/sync.h"

static enum ls_status finish(struct ls_sync *s)
{
    for (int b = 0; b < s->n_buckets; b++)
        LS_TRY(ls_sync_update(s, b));
    return LS_OK;
}

const struct ls_sync_ops ls_sync_none = {
    .name = "none",
    .summary = "one process updates by its gradients",
    .cut = LS_CUT_NONE,
    .exact = true,
    .no_reduce = true,
    .after_pass = true,
    .updates_in_pass = true,
    .finish = finish,
};
