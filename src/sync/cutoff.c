/* The first K gradients of a step count. They are summed along the tree of all replicas, without the missing
 * branches. The sum depends on which workers arrived in time, not on their order. With all workers it has the bits
 * of one process, so that K = N is the strategy `server` with dedicated servers. A worker that arrives late
 * continues with the step that is open now.
 *
 * With --cutoff-k auto K is planned for each step from the arrivals so far (arrivals.h), and a late worker may have to wait
 * for the next step to open. */
#include "base/log.h"
#include "base/memory.h"
#include "base/system/clock.h"
#include "comm/algorithms/sum.h"
#include "sync/pushpull.h"

#include <math.h>

static bool is_auto(const struct ls_sync *s)
{
    return s->ops == &ls_sync_cutoff && s->o->cutoff_k <= LS_FLOOR_AUTO;
}

/* The gradients that a step counts at least. */
static int least(const struct ls_sync *s)
{
    const struct ls_pushpull *p = s->state;
    if (s->ops != &ls_sync_cutoff)
        return p->workers;
    if (s->o->cutoff_k > 0)
        return (int)s->o->cutoff_k;
    if (s->o->cutoff_k < LS_FLOOR_AUTO)
        return (int)(LS_FLOOR_AUTO - s->o->cutoff_k);
    if (is_auto(s))
        return (p->workers + 1) / 2;
    return p->workers > 1 ? p->workers - 1 : 1;
}

static int needed(const struct ls_sync *s)
{
    const struct ls_pushpull *p = s->state;
    return is_auto(s) ? p->plan.k : least(s);
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

static int count_came(const struct ls_pushpull *p)
{
    int n = 0;
    for (int w = 0; w < p->workers; w++)
        n += came(p, w);
    return n;
}

/* --- --cutoff-k auto ------------------------------------------------------------------------------------------ */

/* Plans the open step. Workers that still compute an earlier step take no part. After all have met, nobody knows when
 * they began: that step waits for all. */
static void plan_step(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    bool unknown = false;
    for (int w = 0; w < p->workers; w++) {
        const struct ls_pusher *from = &p->pushers[w];
        bool present = from->clock == p->open && !from->held && !from->left;
        p->start[w] = present ? from->began - p->opened : INFINITY;
        unknown |= present && from->began == 0;
    }
    p->plan = unknown ? (struct ls_arrivals_plan){p->workers, INFINITY, 0}
                      : ls_arrivals_plan(&p->arrivals, p->start, least(s));
}

/* Whether the open step goes on without a worker that is ready to begin it now. The worker then rests until the next step
 * opens: otherwise it would compute a gradient that comes too late again. The step must close without it. */
static bool better_without(struct ls_sync *s, int worker)
{
    struct ls_pushpull *p = s->state;
    int present = 0;
    for (int w = 0; w < p->workers; w++)
        present += w != worker && isfinite(p->start[w]) && !p->pushers[w].left;
    if (present < p->plan.k || p->plan.rate == 0)
        return false;
    p->start[worker] = ls_now() - p->opened;
    struct ls_arrivals_plan with = ls_arrivals_plan(&p->arrivals, p->start, least(s));
    p->start[worker] = INFINITY;
    return with.rate < p->plan.rate * (1 + 0.5 / p->workers);
}

/* --- steps ---------------------------------------------------------------------------------------------------- */

/* Answers all workers whose step is closed. The one that is answered last begins last and is most likely to come too late, so
 * that each worker has this place in turn. */
static enum ls_status answer_waiting(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    for (int i = 0; i < p->workers; i++) {
        int w = (int)((p->open + (uint64_t)i) % (uint64_t)p->workers);
        if (!p->pushers[w].waits || p->pushers[w].push.step >= p->open)
            continue;
        bool dropped = p->pushers[w].push.step + 1 < p->open;
        p->pushers[w].clock = p->open;
        LS_TRY(ls_pushpull_answer(s, w, p->open, (struct ls_lag){0}, dropped));
    }
    return LS_OK;
}

/* Makes one update from all gradients of the open step. The mean is over the samples that arrived. */
static enum ls_status close_step(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    int64_t samples = 0;
    int missing = p->workers - count_came(p);
    p->last_k = p->workers - missing;
    p->tally.without[missing < LS_TALLY_WITHOUT ? missing : LS_TALLY_WITHOUT - 1]++;
    p->opened = ls_now();
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
    LS_TRY(answer_waiting(s));
    if (is_auto(s))
        plan_step(s);
    return LS_OK;
}

/* A gradient of an earlier step. */
static enum ls_status arrived_late(struct ls_sync *s, int worker)
{
    struct ls_pushpull *p = s->state;
    p->pushers[worker].held = is_auto(s) && better_without(s, worker);
    p->pushers[worker].clock = p->open;
    if (p->pushers[worker].held)
        return LS_OK;
    LS_TRY(ls_pushpull_answer(s, worker, p->open, (struct ls_lag){0}, true));
    if (is_auto(s))
        plan_step(s);
    return LS_OK;
}

static enum ls_status arrived(struct ls_sync *s, int worker)
{
    struct ls_pushpull *p = s->state;
    struct ls_pusher *from = &p->pushers[worker];
    if (is_auto(s) && from->began > 0)
        ls_arrivals_note(&p->arrivals, worker, ls_now() - from->began);
    if (from->push.step < p->open)
        return arrived_late(s, worker);
    from->clock = from->push.step;
    while (count_came(p) >= needed(s)) /* with several servers a worker may be a step ahead of this server */
        LS_TRY(close_step(s));
    return LS_OK;
}

static int count_held(const struct ls_pushpull *p)
{
    int n = 0;
    for (int w = 0; w < p->workers; w++)
        n += p->pushers[w].held;
    return n;
}

/* At the time of its plan a step that has gradients enough closes, and one that has too few takes in the workers that rest. A
 * time beyond the deadline is none. */
static double until(const struct ls_sync *s)
{
    const struct ls_pushpull *p = s->state;
    bool can_go_on = count_came(p) >= least(s) || count_held(p) > 0;
    return is_auto(s) && p->plan.until < s->o->deadline && can_go_on ? p->opened + p->plan.until : INFINITY;
}

/* A worker that the plan counts on is late, perhaps for ever: it must not keep those that rest from the step. */
static enum ls_status expired(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    if (count_came(p) >= least(s))
        return close_step(s);
    for (int w = 0; w < p->workers; w++)
        if (p->pushers[w].held)
            LS_TRY(ls_pushpull_answer(s, w, p->open, (struct ls_lag){0}, true));
    plan_step(s);
    return LS_OK;
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
    static const struct ls_serving serving = {arrived, late, until, expired};
    struct ls_pushpull *p = s->state;
    p->plan = (struct ls_arrivals_plan){p->workers, INFINITY, 0};
    return ls_pushpull_serve(s, &serving, step);
}

static enum ls_status open_auto(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    if (p->servers > 1)
        return ls_fail(LS_USAGE, "--cutoff-k auto: %d servers would choose different numbers; use --servers 1",
                       p->servers);
    if (p->me < 0)
        return LS_OK;
    p->start = ls_alloc((size_t)p->workers, sizeof *p->start);
    return p->start ? ls_arrivals_open(&p->arrivals, p->workers) : LS_FAILED;
}

static enum ls_status open(struct ls_sync *s)
{
    LS_TRY(ls_pushpull_open(s));
    const struct ls_pushpull *p = s->state;
    if (least(s) > p->workers)
        return ls_fail(LS_USAGE, "--cutoff-k %s%d: there are only %d workers besides %d server%s",
                       is_auto(s) ? "auto:" : "", least(s), p->workers, p->servers, p->servers == 1 ? "" : "s");
    return is_auto(s) ? open_auto(s) : LS_OK;
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
