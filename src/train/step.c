#include "train/step.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/interrupt.h"

#include <math.h>

static enum ls_status next_from_loader(void *context, const struct ls_slot **slot)
{
    return ls_loader_next(context, slot);
}

struct ls_feed ls_feed_loader(struct ls_loader *loader)
{
    return (struct ls_feed){next_from_loader, loader};
}

/* --- one pass: forward and backward over one slot ----------------------------------------------------- */

static enum ls_status count(struct ls_stepper *s, const struct ls_net *net, int64_t valid, struct ls_totals *totals)
{
    const struct ls_backend *b = s->engine->backend;
    LS_TRY(b->read(net->program, net->graph.loss, s->loss));
    LS_TRY(b->read(net->program, net->graph.rank, s->rank));
    for (int64_t i = 0; i < valid; i++) {
        totals->loss += rint((double)s->loss[i] * 0x1p24) * 0x1p-24; /* R6 */
        totals->top1 += s->rank[i] == 0;
        totals->top5 += s->rank[i] >= 0 && s->rank[i] < 5;
    }
    totals->samples += valid;
    return LS_OK;
}

static enum ls_status point_at(struct ls_stepper *s, struct ls_net *net, const struct ls_slot *slot)
{
    const struct ls_backend *b = s->engine->backend;
    s->run.valid = slot->valid;
    LS_TRY(b->input(net->program, net->graph.input, slot->images));
    return b->input(net->program, net->graph.label, slot->labels);
}

/* The bucket is complete in this process: hand it over, and update what has come back meanwhile. */
static enum ls_status hand_over(struct ls_stepper *s, int bucket, int at)
{
    const struct ls_bucket *b = &s->engine->buckets[bucket];
    ls_replicas_settle(&s->replicas, b->first, b->count);
    if (!s->sync.ops)
        return LS_OK;
    ls_comm_position(s->sync.comm, s->run.step, bucket, LS_STAGE_COMPUTE);
    return ls_sync_ready(&s->sync, bucket, at);
}

/* The last pass of a step gives its gradients away bucket by bucket, while it computes the next. */
static enum ls_status run_nodes(struct ls_stepper *s, bool last)
{
    struct ls_engine *e = s->engine;
    int at = 0;
    for (int bucket = 0; last && bucket < e->n_buckets; bucket++) {
        int end = e->buckets[bucket].ready + 1;
        LS_TRY(e->backend->run(e->train.program, at, end, &s->run));
        LS_TRY(hand_over(s, bucket, end));
        at = end;
    }
    return e->backend->run(e->train.program, at, e->train.end, &s->run);
}

static enum ls_status run_pass(void *context, int replica, int pass, bool last, struct ls_totals *totals)
{
    struct ls_stepper *s = context;
    const struct ls_slot *slot;
    double start = ls_now();
    if (s->sync.ops)
        ls_comm_position(s->sync.comm, s->run.step, 0, LS_STAGE_INPUT);
    LS_TRY(s->feed.next(s->feed.context, &slot));
    double fed = ls_now();
    s->input_seconds += fed - start;
    if (!slot)
        return ls_fail(LS_FAILED, "step %llu: the data ended too early", (unsigned long long)s->run.step);
    if (slot->valid == 0) {
        ls_replicas_clear(&s->replicas);
        for (int bucket = 0; last && bucket < s->engine->n_buckets; bucket++)
            LS_TRY(hand_over(s, bucket, s->engine->train.end));
        return LS_OK;
    }
    if (s->sync.ops)
        ls_comm_position(s->sync.comm, s->run.step, 0, LS_STAGE_COMPUTE);
    s->run.replica = (uint32_t)(replica * s->replicas.passes + pass);
    s->run.stat_weight = (float)slot->valid * s->run.grad_scale;
    LS_TRY(point_at(s, &s->engine->train, slot));
    LS_TRY(run_nodes(s, last));
    LS_TRY(count(s, &s->engine->train, slot->valid, totals));
    s->compute_seconds += ls_now() - fed;
    return LS_OK;
}

/* --- the step ----------------------------------------------------------------------------------------- */

static enum ls_status update(void *context, int bucket)
{
    struct ls_stepper *s = context;
    if (s->sync.ops && s->sync.ops->serve) { /* of whose gradients these are */
        s->run.step = s->sync.step;
        s->run.lr = (float)s->sync.lr;
    }
    return ls_engine_update(s->engine, bucket, &s->run);
}

/* Gradients of all processes combined, parameters updated. */
static enum ls_status combine(struct ls_stepper *s)
{
    if (s->sync.ops)
        return ls_sync_finish(&s->sync);
    for (int bucket = 0; bucket < s->engine->n_buckets; bucket++)
        LS_TRY(update(s, bucket));
    return LS_OK;
}

/* How many of the step's samples this process computes. */
static int64_t own_samples(const struct ls_stepper *s, int64_t samples)
{
    int64_t slices = s->engine->tree->replicas * s->replicas.passes, own = 0;
    for (int i = 0; i < s->replicas.n_slices; i++)
        own += samples / slices + (s->replicas.order[i] < samples % slices);
    return own;
}

/* How the step went for all, or with servers, where nobody waits for all, for this process. */
static enum ls_status agree(struct ls_stepper *s, int64_t samples, struct ls_totals *totals)
{
    bool served = s->sync.ops && s->sync.ops->serve;
    if (served)
        *totals = s->replicas.part_totals[0];
    else
        LS_TRY(ls_agree_step(&s->agree, &s->replicas, totals));
    int64_t expected = served ? s->sync.own : samples;
    if (totals->samples == expected)
        return LS_OK;
    return ls_fail(LS_FAILED, "step %llu: %lld samples came where %lld were expected", (unsigned long long)s->run.step,
                   (long long)totals->samples, (long long)expected);
}

/* Leave out the samples of the steps that went on without this process. */
static enum ls_status catch_up(struct ls_stepper *s)
{
    const struct ls_slot *slot;
    if (!s->sync.ops || !s->sync.ops->serve || s->sync.next_step <= s->run.step)
        return LS_OK;
    for (uint64_t left = (s->sync.next_step - s->run.step - 1) * (uint64_t)s->replicas.n_slices; left > 0; left--)
        LS_TRY(s->feed.next(s->feed.context, &slot));
    return LS_OK;
}

enum ls_status ls_step(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, struct ls_report *r)
{
    struct ls_totals totals;
    double start = ls_now();
    bool alone = s->sync.ops && s->sync.ops->alone;
    int64_t own = own_samples(s, samples);
    s->input_seconds = s->compute_seconds = 0;
    s->run.step = step;
    s->run.lr = (float)lr;
    s->run.grad_scale = 1.0f / (float)(alone ? own : samples);

    s->sync.lr = lr;
    s->sync.own = own;
    s->sync.samples = samples;
    ls_sync_begin(&s->sync, step);
    LS_TRY(ls_replicas_run(&s->replicas, run_pass, s));
    LS_TRY(combine(s));
    if (s->replicas.n_parts > 0)
        s->replicas.part_totals[0].stop = ls_interrupted();
    LS_TRY(agree(s, samples, &totals));
    LS_TRY(catch_up(s));

    s->stop = (int)totals.stop;
    ls_totals_report(&totals, r);
    if (s->sync.ops && s->sync.ops->serve)
        r->samples = s->sync.counted;
    if (s->sync.ops && s->sync.ops->serve && alone) {
        r->gradients = 1;
        r->staleness = (double)s->sync.behind;
    }
    r->step = (int64_t)step + 1;
    r->lr = lr;
    r->seconds = ls_now() - start;
    r->input_seconds = s->input_seconds;
    r->compute_seconds = s->compute_seconds;
    r->wait_seconds = s->sync.waited;
    r->update_seconds = r->seconds - r->input_seconds - r->compute_seconds - r->wait_seconds;
    return LS_OK;
}

enum ls_status ls_step_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals)
{
    struct ls_net *net = &s->engine->eval;
    if (slot->valid == 0)
        return LS_OK;
    s->run.replica = 0;
    LS_TRY(point_at(s, net, slot));
    LS_TRY(s->engine->backend->run(net->program, 0, net->end, &s->run));
    return count(s, net, slot->valid, totals);
}

void ls_totals_report(const struct ls_totals *totals, struct ls_report *r)
{
    double n = totals->samples > 0 ? (double)totals->samples : 1;
    r->samples = totals->samples;
    r->loss = totals->loss / n;
    r->top1 = (double)totals->top1 / n;
    r->top5 = (double)totals->top5 / n;
}

/* The strategy, where there is somebody to agree with. */
static enum ls_status open_sync(struct ls_stepper *s, const struct ls_options *o)
{
    struct ls_engine *e = s->engine;
    if (!e->comm)
        return e->n_grads > 0 ? ls_engine_make_buckets(e, o, NULL) : LS_OK;
    const struct ls_sync_ops *ops = ls_sync_choose(o);
    if (!ops)
        return ls_fail(LS_USAGE, "--sync %s: this program was built without it", o->sync);
    if (ops->alone && !ops->serve && e->tree->replicas != e->tree->size)
        return ls_fail(LS_USAGE, "--sync %s needs as many replicas as workers: leave --replicas out, or say %d",
                       o->sync, e->tree->size);
    LS_TRY(ls_engine_make_buckets(e, o, ops));
    s->sync = (struct ls_sync){.ops = ops,
                               .o = o,
                               .comm = e->comm,
                               .grads = e->grads,
                               .parts = s->replicas.parts,
                               .n_parts = s->replicas.n_parts,
                               .buckets = e->buckets,
                               .n_buckets = e->n_buckets,
                               .update = update,
                               .context = s,
                               .signal = ls_interrupted};
    LS_TRY(ls_sync_open(&s->sync));
    return ls_agree_init(&s->agree, e->comm, e->tree);
}

enum ls_status ls_stepper_init(struct ls_stepper *s, struct ls_engine *engine, struct ls_feed feed,
                               const struct ls_options *o)
{
    enum ls_status st = LS_OK;
    *s = (struct ls_stepper){.engine = engine, .feed = feed, .run = {.seed = o->seed}};
    s->loss = ls_alloc((size_t)engine->size.batch, sizeof *s->loss);
    s->rank = ls_alloc((size_t)engine->size.batch, sizeof *s->rank);
    if (!s->loss || !s->rank) {
        st = LS_FAILED;
        goto failed;
    }
    if (!engine->train.program)
        return LS_OK;
    int rank = engine->comm ? ls_comm_rank(engine->comm) : 0;
    LS_TRY_GOTO(failed, ls_replicas_init(&s->replicas, engine->tree, rank, engine->passes, engine->grads,
                                         engine->n_grads, engine->side));
    LS_TRY_GOTO(failed, open_sync(s, o));
    return LS_OK;
failed:
    ls_stepper_release(s);
    return st;
}

void ls_stepper_release(struct ls_stepper *s)
{
    ls_sync_close(&s->sync);
    ls_agree_release(&s->agree);
    ls_replicas_release(&s->replicas);
    ls_free(s->loss);
    ls_free(s->rank);
    *s = (struct ls_stepper){0};
}
