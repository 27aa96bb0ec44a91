/* The first K gradients of a step count. They are summed along the tree of all replicas, without the missing
 * branches. The sum depends on which workers arrived in time, not on their order. With all workers it has the bits
 * of one process, so that K = N is the strategy `server` with dedicated servers. A worker that arrives late
 * continues with the step that is open now. */
#include "base/log.h"
#include "comm/algorithms/sum.h"
#include "sync/pushpull.h"

extern const struct ls_sync_ops ls_sync_cutoff, ls_sync_dedicated;

static int needed(const struct ls_sync *s)
{
    const struct ls_pushpull *p = s->state;
    if (s->ops != &ls_sync_cutoff)
        return p->workers;
    if (s->o->cutoff_k > 0)
        return (int)s->o->cutoff_k;
    return p->workers > 1 ? p->workers - 1 : 1;
}

static bool came(const struct ls_pushpull *p, int worker)
{
    return p->pushers[worker].waits && p->pushers[worker].push.step == p->open;
}

/* Sums T(v, s) over the workers that arrived in time. Returns the worker whose gradients hold the sum, or -1 when
 * none arrived. */
static int sum(struct ls_pushpull *p, int v, int s)
{
    if (v >= p->workers)
        return -1;
    if (s >= p->workers)
        return came(p, v) ? v : -1;
    int left = sum(p, v, 2 * s), right = sum(p, v + s, 2 * s);
    if (left < 0 || right < 0)
        return left < 0 ? right : left;
    ls_sum_add(p->pushers[left].grads, p->pushers[left].grads, p->pushers[right].grads, p->grads_of[p->me]);
    return left;
}

/* Makes one update from all gradients of the open step. The mean is over the samples that arrived. */
static enum ls_status close_step(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    int64_t samples = 0;
    for (int w = 0; w < p->workers; w++)
        samples += came(p, w) ? p->pushers[w].push.own : 0;
    const struct ls_pusher *all = &p->pushers[sum(p, 0, 1)];
    if (samples > 0 && samples < all->push.samples) {
        float scale = (float)((double)all->push.samples / (double)samples);
        for (size_t i = 0; i < p->grads_of[p->me]; i++)
            all->grads[i] *= scale;
    }
    LS_TRY(ls_pushpull_update(s, all->grads, p->open, all->push.lr, samples));
    p->open++;
    for (int w = 0; w < p->workers; w++)
        if (p->pushers[w].waits && p->pushers[w].push.step < p->open) {
            p->pushers[w].clock = p->open;
            LS_TRY(ls_pushpull_answer(s, w, p->open, (struct ls_lag){0}, false));
        }
    return LS_OK;
}

static enum ls_status arrived(struct ls_sync *s, int worker)
{
    struct ls_pushpull *p = s->state;
    struct ls_pusher *from = &p->pushers[worker];
    if (from->push.step < p->open) {
        from->clock = p->open;
        return ls_pushpull_answer(s, worker, p->open, (struct ls_lag){0}, true);
    }
    from->clock = from->push.step;
    for (;;) { /* with several servers a worker may be a step ahead of this server */
        int n = 0;
        for (int w = 0; w < p->workers; w++)
            n += came(p, w);
        if (n < needed(s))
            return LS_OK;
        LS_TRY(close_step(s));
    }
}

static int late(const struct ls_sync *s)
{
    const struct ls_pushpull *p = s->state;
    bool any_pushed = false;
    for (int w = 0; w < p->workers; w++)
        any_pushed |= p->pushers[w].waits || p->pushers[w].left;
    for (int w = 0; any_pushed && w < p->workers; w++)
        if (!p->pushers[w].waits && !p->pushers[w].left)
            return w;
    return -1;
}

static enum ls_status serve(struct ls_sync *s, uint64_t *step)
{
    static const struct ls_serving serving = {arrived, late};
    return ls_pushpull_serve(s, &serving, step);
}

static enum ls_status open(struct ls_sync *s)
{
    LS_TRY(ls_pushpull_open(s));
    const struct ls_pushpull *p = s->state;
    if (needed(s) > p->workers)
        return ls_fail(LS_USAGE, "--cutoff-k %d: there are only %d workers besides %d server%s", needed(s), p->workers,
                       p->servers, p->servers == 1 ? "" : "s");
    return LS_OK;
}

const struct ls_sync_ops ls_sync_cutoff = {
    .name = "cutoff",
    .summary = "the first --cutoff-k gradients of a step count, late ones are dropped",
    .cut = LS_CUT_BY_TENSOR,
    .shards = true,
    .works_on_values = true,
    .servers = true,
    .open = open,
    .ready = ls_pushpull_ready,
    .finish = ls_pushpull_finish,
    .collect = ls_pushpull_collect,
    .serve = serve,
    .close = ls_pushpull_close,
};

const struct ls_sync_ops ls_sync_dedicated = {
    .name = "server",
    .summary = "parameters sharded over servers that do nothing else",
    .cut = LS_CUT_BY_TENSOR,
    .shards = true,
    .works_on_values = true,
    .servers = true,
    .open = open,
    .ready = ls_pushpull_ready,
    .finish = ls_pushpull_finish,
    .collect = ls_pushpull_collect,
    .serve = serve,
    .close = ls_pushpull_close,
};
