/* Asynchronous SGD with bounded staleness. A server updates with each push as it arrives and answers at once. A
 * worker that is more than --staleness steps ahead of the slowest worker gets its answer when the slowest has caught
 * up.
 *
 * A push is the mean gradient over the samples of its worker. It is weighted by their share of the step. All pushes
 * of one step together change and decay the weights as much as one synchronous step. */
#include "sync/pushpull.h"

static int slowest(const struct ls_pushpull *p)
{
    int least = 0;
    for (int w = 1; w < p->workers; w++)
        if (p->pushers[w].clock < p->pushers[least].clock)
            least = w;
    return least;
}

static enum ls_status arrived(struct ls_sync *s, int worker)
{
    struct ls_pushpull *p = s->state;
    struct ls_pusher *from = &p->pushers[worker];
    const struct ls_push *push = &from->push;
    from->behind = (int64_t)(p->updates - from->pulled);
    double share = push->samples > 0 ? (double)push->own / (double)push->samples : 0;
    LS_TRY(ls_pushpull_update(s, from->grads, push->step, push->lr * share, push->own));
    from->clock = push->step + 1;
    uint64_t least = p->pushers[slowest(p)].clock;
    for (int w = 0; w < p->workers; w++) {
        const struct ls_pusher *to = &p->pushers[w];
        struct ls_lag lag = {to->behind, (int64_t)(to->clock - least)};
        if (to->waits && lag.ahead <= s->o->staleness)
            LS_TRY(ls_pushpull_answer(s, w, to->clock, lag, false));
    }
    return LS_OK;
}

static int late(const struct ls_sync *s)
{
    const struct ls_pushpull *p = s->state;
    int least = slowest(p);
    for (int w = 0; w < p->workers; w++)
        if (p->pushers[w].waits || (p->pushers[w].left && !p->pushers[least].left))
            return least;
    return -1;
}

static enum ls_status serve(struct ls_sync *s, uint64_t *step)
{
    static const struct ls_serving serving = {.arrived = arrived, .late = late};
    return ls_pushpull_serve(s, &serving, step);
}

const struct ls_sync_ops ls_sync_async = {
    .name = "async",
    .summary = "servers update by each worker's gradients as they come; --staleness bounds who is ahead",
    .cut = LS_CUT_BY_TENSOR,
    .local_mean = true,
    .shards = true,
    .works_on_values = true,
    .servers = true,
    .open = ls_pushpull_open,
    .ready = ls_pushpull_ready,
    .finish = ls_pushpull_finish,
    .collect = ls_pushpull_collect,
    .serve = serve,
    .close = ls_pushpull_close,
};
