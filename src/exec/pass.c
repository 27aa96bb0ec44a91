/* One pass: forward and backward over one slot. */
#include "exec/pass.h"
#include "base/clock.h"
#include "base/log.h"

#include <math.h>

enum ls_status ls_pass_count(struct ls_stepper *s, const struct ls_net *net, int slot, int64_t valid,
                             struct ls_totals *totals)
{
    const struct ls_backend *b = s->engine->backend;
    const float *loss = s->loss;
    const int32_t *rank = s->rank;
    if (b->queue) {
        LS_TRY(b->queue->results(net->program, slot, &loss, &rank));
    } else {
        LS_TRY(b->read(net->program, net->graph.loss, s->loss));
        LS_TRY(b->read(net->program, net->graph.rank, s->rank));
    }
    for (int64_t i = 0; i < valid; i++) {
        totals->loss += rint((double)loss[i] * 0x1p24) * 0x1p-24; /* R6 */
        totals->top1 += rank[i] == 0;
        totals->top5 += rank[i] >= 0 && rank[i] < 5;
    }
    totals->samples += valid;
    return LS_OK;
}

enum ls_status ls_pass_input(struct ls_stepper *s, struct ls_net *net, const struct ls_slot *slot)
{
    const struct ls_backend *b = s->engine->backend;
    s->run.valid = slot->valid;
    if (slot->form == LS_FORM_PLANES)
        LS_TRY(b->input(net->program, net->graph.input, slot->images));
    else
        LS_TRY(b->queue->crops(net->program, slot->crops, slot->pixels));
    return b->input(net->program, net->graph.label, slot->labels);
}

static void say_position(const struct ls_stepper *s, int bucket, enum ls_stage stage)
{
    if (s->engine->comm)
        ls_comm_position(s->engine->comm, s->run.step, bucket, stage);
}

/* The bucket is complete in this process: hand it over, and update what has come back meanwhile. */
static enum ls_status hand_over(struct ls_stepper *s, int bucket, int at)
{
    if (!s->sync.ops)
        return LS_OK;
    say_position(s, bucket, LS_STAGE_COMPUTE);
    return ls_sync_ready(&s->sync, bucket, at);
}

static enum ls_status settle(struct ls_stepper *s, int bucket)
{
    const struct ls_bucket *b = &s->engine->buckets[bucket];
    return ls_replicas_settle(&s->replicas, b->first, b->count);
}

/* Buckets that come to the host together: one, unless there are more of them than marks. */
static int buckets_a_mark(const struct ls_engine *e)
{
    return (e->n_buckets + LS_QUEUE_MARKS - 1) / LS_QUEUE_MARKS;
}

/* With a queue: enqueue, behind what completes the bucket, its way to the host. */
static enum ls_status fetch_bucket(struct ls_stepper *s, int bucket)
{
    struct ls_engine *e = s->engine;
    int each = buckets_a_mark(e), mark = bucket / each;
    LS_TRY(settle(s, bucket));
    if (!e->fetched || ((bucket + 1) % each != 0 && bucket + 1 < e->n_buckets))
        return LS_OK;
    size_t first = e->buckets[mark * each].first, end = e->buckets[bucket].first + e->buckets[bucket].count;
    return e->backend->queue->fetch(e->train.program, mark, e->grads + first, e->kept + first, end - first);
}

/* ... and when all is enqueued hand them over as they come. The pass reads nothing any more that an update enqueued from
 * now on would change: as S2 sees it, it is over. */
static enum ls_status hand_over_fetched(struct ls_stepper *s)
{
    struct ls_engine *e = s->engine;
    int each = buckets_a_mark(e);
    for (int bucket = 0; e->fetched && bucket < e->n_buckets; bucket++) {
        if (bucket % each == 0)
            LS_TRY(e->backend->queue->arrived(e->train.program, bucket / each));
        LS_TRY(hand_over(s, bucket, e->train.end));
    }
    return LS_OK;
}

/* Where cards sum among themselves, what is left of the step is theirs. */
static enum ls_status run_shared(struct ls_stepper *s)
{
    struct ls_engine *e = s->engine;
    LS_TRY(e->backend->peers->step(e->train.program, &s->run, s->scarce));
    return e->backend->queue->ask(e->train.program, s->turn);
}

/* A pass whose gradients nobody waits for is one run. */
static enum ls_status run_enqueued(struct ls_stepper *s, bool last)
{
    struct ls_engine *e = s->engine;
    bool shared = last && e->fetched;
    int at = 0;
    if (last && e->peers)
        return run_shared(s);
    for (int bucket = 0; shared && bucket < e->n_buckets; bucket++) {
        int end = e->buckets[bucket].ready + 1;
        if (end > at)
            LS_TRY(e->backend->run(e->train.program, at, end, &s->run));
        LS_TRY(fetch_bucket(s, bucket));
        at = end;
    }
    if (e->train.end > at)
        LS_TRY(e->backend->run(e->train.program, at, e->train.end, &s->run));
    for (int bucket = 0; last && !shared && bucket < e->n_buckets; bucket++)
        LS_TRY(settle(s, bucket));
    LS_TRY(e->backend->queue->ask(e->train.program, s->turn));
    return shared ? hand_over_fetched(s) : LS_OK;
}

/* The last pass of a step gives its gradients away bucket by bucket, while it computes the next. */
static enum ls_status run_nodes(struct ls_stepper *s, bool last)
{
    struct ls_engine *e = s->engine;
    int at = 0;
    if (e->backend->queue)
        return run_enqueued(s, last);
    for (int bucket = 0; last && bucket < e->n_buckets; bucket++) {
        int end = e->buckets[bucket].ready + 1;
        LS_TRY(e->backend->run(e->train.program, at, end, &s->run));
        LS_TRY(settle(s, bucket));
        LS_TRY(hand_over(s, bucket, end));
        at = end;
    }
    return e->backend->run(e->train.program, at, e->train.end, &s->run);
}

/* A pass without samples: its gradients are zero. */
static enum ls_status run_nothing(struct ls_stepper *s, bool last, struct ls_totals *totals)
{
    struct ls_engine *e = s->engine;
    s->run.valid = 0;
    if (last && e->peers) {
        LS_TRY(run_shared(s));
        return s->lags ? LS_OK : ls_pass_count(s, &e->train, s->turn, 0, totals);
    }
    LS_TRY(ls_replicas_clear(&s->replicas));
    for (int bucket = 0; last && bucket < e->n_buckets; bucket++) {
        if (e->backend->queue) {
            LS_TRY(fetch_bucket(s, bucket));
            continue;
        }
        LS_TRY(settle(s, bucket));
        LS_TRY(hand_over(s, bucket, e->train.end));
    }
    if (s->lags)
        LS_TRY(e->backend->queue->ask(e->train.program, s->turn));
    return last && e->backend->queue ? hand_over_fetched(s) : LS_OK;
}

enum ls_status ls_pass_run(void *context, int replica, int pass, bool last, struct ls_totals *totals)
{
    struct ls_stepper *s = context;
    const struct ls_slot *slot;
    double start = ls_now();
    if (s->starved) /* until all have come to the step at which they stop */
        return run_nothing(s, last, totals);
    say_position(s, 0, LS_STAGE_INPUT);
    LS_TRY(s->feed.next(s->feed.context, &slot));
    double fed = ls_now();
    s->input_seconds += fed - start;
    if (!slot)
        return ls_fail(LS_FAILED, "step %llu: the data ended too early", (unsigned long long)s->run.step);
    say_position(s, 0, LS_STAGE_COMPUTE);
    if (slot->valid == 0)
        return run_nothing(s, last, totals);
    s->run.replica = (uint32_t)(replica * s->replicas.passes + pass);
    s->run.stat_weight = (float)slot->valid * s->run.grad_scale;
    LS_TRY(ls_pass_input(s, &s->engine->train, slot));
    LS_TRY(run_nodes(s, last));
    if (!s->lags)
        LS_TRY(ls_pass_count(s, &s->engine->train, s->turn, slot->valid, totals));
    s->compute_seconds += ls_now() - fed;
    return LS_OK;
}
