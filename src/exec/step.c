#include "exec/step.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/interrupt.h"
#include "exec/pass.h"
#include "sync/compress.h"

#include <string.h>

static enum ls_status next_from_loader(void *context, const struct ls_slot **slot)
{
    return ls_loader_next(context, slot);
}

static bool loader_ready(void *context, int64_t slots)
{
    return ls_loader_ready(context, slots);
}

struct ls_feed ls_feed_loader(struct ls_loader *loader)
{
    return (struct ls_feed){next_from_loader, loader, loader_ready};
}

void ls_feed_pin(const struct ls_engine *e, struct ls_loader *loader)
{
    size_t bytes;
    if (e->backend->queue && loader) {
        void *region = ls_loader_region(loader, &bytes);
        e->backend->queue->pin(region, bytes);
    }
}

void ls_feed_unpin(const struct ls_engine *e, struct ls_loader *loader)
{
    size_t bytes;
    if (loader && e->backend && e->backend->queue)
        e->backend->queue->unpin(ls_loader_region(loader, &bytes));
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

static enum ls_status look(void *context, int bucket, enum ls_sync_part part)
{
    const struct ls_stepper *s = context;
    return ls_host_copy_pull(s->engine, bucket, part);
}

/* Gradients of all processes combined, parameters updated. */
static enum ls_status combine(struct ls_stepper *s)
{
    if (s->sync.ops) {
        LS_TRY(ls_sync_finish(&s->sync));
        return ls_host_copy_push(s->engine, s->sync.wrote);
    }
    if (s->engine->peers)
        return LS_OK; /* that came with the last pass */
    for (int bucket = 0; bucket < s->engine->n_buckets; bucket++)
        LS_TRY(update(s, bucket));
    return LS_OK;
}

/* Why this process wants to stop, 0: it does not. `ahead`: steps that it will have begun before it is asked again. One that
 * is alone finds out about its samples when it takes them: a step changes nothing before that. */
static int why_stop(struct ls_stepper *s, int ahead)
{
    int number = ls_interrupted();
    if (number == 0 && !s->starved && s->engine->comm && s->feed.ready)
        s->starved = !s->feed.ready(s->feed.context, ahead * s->replicas.n_slices);
    return number == 0 && s->starved ? LS_STOP_INPUT : number;
}

static int wants_to_stop(void *context)
{
    return why_stop(context, 1);
}

/* How many of the step's samples this process computes. */
static int64_t own_samples(const struct ls_stepper *s, int64_t samples)
{
    if (s->starved)
        return 0;
    int64_t slices = s->engine->tree->replicas * s->replicas.passes, own = 0;
    for (int i = 0; i < s->replicas.n_slices; i++)
        own += samples / slices + (s->replicas.order[i] < samples % slices);
    return own;
}

static enum ls_status expect_samples(uint64_t step, int64_t found, int64_t expected)
{
    if (found == expected)
        return LS_OK;
    return ls_fail(LS_FAILED, "step %llu: %lld samples came where %lld were expected", (unsigned long long)step,
                   (long long)found, (long long)expected);
}

/* How the step went for all, or with servers, where nobody waits for all, for this process. */
static enum ls_status agree(struct ls_stepper *s, int64_t samples, struct ls_totals *totals)
{
    bool served = s->sync.ops && s->sync.ops->serve;
    if (served)
        *totals = s->replicas.part_totals[0];
    else
        LS_TRY(ls_rank_reduce_step(&s->agree, &s->replicas, totals));
    return expect_samples(s->run.step, totals->samples, served ? s->sync.own : samples);
}

/* Leave out the samples of the steps that went on without this process. */
static enum ls_status catch_up(struct ls_stepper *s)
{
    const struct ls_slot *slot;
    if (!s->sync.ops || !s->sync.ops->serve || s->sync.next_step <= s->run.step || s->starved)
        return LS_OK;
    for (uint64_t left = (s->sync.next_step - s->run.step - 1) * (uint64_t)s->replicas.n_slices; left > 0; left--) {
        s->starved = s->feed.ready && !s->feed.ready(s->feed.context, 1);
        if (s->starved)
            break; /* the next push says so */
        LS_TRY(s->feed.next(s->feed.context, &slot));
    }
    return LS_OK;
}

/* --- a step behind ------------------------------------------------------------------------------------ */

static enum ls_status flush(struct ls_stepper *s, int ahead, struct ls_report *r)
{
    struct ls_pending *p = &s->pending;
    struct ls_totals own = {0}, totals;
    *r = (struct ls_report){0};
    if (!p->there)
        return LS_OK;
    p->there = false;
    own.stop = why_stop(s, ahead);
    LS_TRY(ls_pass_count(s, &s->engine->train, p->slot, p->valid, &own));
    s->replicas.part_totals[0] = own;
    LS_TRY(ls_rank_reduce_step(&s->agree, &s->replicas, &totals));
    s->stop = (int)totals.stop;
    LS_TRY(expect_samples((uint64_t)p->report.step - 1, totals.samples, p->samples));
    *r = p->report;
    ls_totals_report(&totals, r);
    s->heard = ls_now();
    r->seconds = s->heard - p->since;
    r->input_seconds = s->input_seconds;
    r->compute_seconds = r->seconds - r->input_seconds - r->wait_seconds;
    s->input_seconds = s->compute_seconds = 0;
    return LS_OK;
}

/* Nothing is enqueued then: the next two steps are, before one of them is heard of. */
enum ls_status ls_step_flush(struct ls_stepper *s, struct ls_report *r)
{
    return flush(s, 2, r);
}

void ls_step_drop(struct ls_stepper *s)
{
    struct ls_totals unheard = {0};
    if (s->pending.there)
        ls_pass_count(s, &s->engine->train, s->pending.slot, s->pending.valid, &unheard);
    s->pending.there = false;
    if (s->engine)
        ls_peers_close(s->engine, false);
}

/* The step is enqueued: report the one before it, which has just ended or will soon. */
static enum ls_status leave_pending(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, double start,
                                    struct ls_report *r)
{
    struct ls_pending now = {.there = true, .slot = s->turn, .samples = samples, .valid = s->run.valid, .report = *r};
    bool first = !s->pending.there;
    now.report.step = (int64_t)step + 1;
    now.report.lr = lr;
    now.report.wait_seconds = s->sync.waited;
    LS_TRY(flush(s, 1, r));
    now.since = first ? start : s->heard;
    s->pending = now;
    s->turn = 1 - s->turn;
    return LS_OK;
}

enum ls_status ls_step(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, struct ls_report *r)
{
    struct ls_totals totals;
    double start = ls_now();
    bool alone = s->sync.ops && s->sync.ops->alone;
    int64_t own = own_samples(s, samples);
    if (!s->pending.there)
        s->input_seconds = s->compute_seconds = 0;
    s->run.step = step;
    s->run.lr = (float)lr;
    s->run.grad_scale = 1.0f / (float)(alone && own > 0 ? own : samples);
    s->scarce = samples < (int64_t)s->engine->tree->replicas * s->replicas.passes;

    s->sync.lr = lr;
    s->sync.own = own;
    s->sync.samples = samples;
    ls_sync_begin(&s->sync, step);
    LS_TRY(ls_replicas_run(&s->replicas, ls_pass_run, s));
    LS_TRY(combine(s));
    if (s->lags)
        return leave_pending(s, step, samples, lr, start, r);
    if (s->replicas.n_parts > 0)
        s->replicas.part_totals[0].stop = wants_to_stop(s);
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

enum ls_status ls_step_collect(struct ls_stepper *s)
{
    LS_TRY(ls_sync_collect(&s->sync));
    return ls_host_copy_push(s->engine, s->sync.wrote);
}

enum ls_status ls_step_serve(struct ls_stepper *s, uint64_t *step)
{
    return ls_sync_serve(&s->sync, step);
}

/* The pass that is still under way, if any. */
static enum ls_status hear_evaluation(struct ls_stepper *s, int slot, struct ls_totals *totals)
{
    int64_t valid = s->evaluating;
    s->evaluating = 0;
    return valid > 0 ? ls_pass_count(s, &s->engine->eval, slot, valid, totals) : LS_OK;
}

enum ls_status ls_step_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals)
{
    struct ls_net *net = &s->engine->eval;
    const struct ls_backend *b = s->engine->backend;
    if (!slot || slot->valid == 0)
        return hear_evaluation(s, 1 - s->eval_turn, totals);
    s->run.replica = 0;
    LS_TRY(ls_pass_input(s, net, slot));
    LS_TRY(b->run(net->program, 0, net->end, &s->run));
    if (!b->queue)
        return ls_pass_count(s, net, 0, slot->valid, totals);
    LS_TRY(b->queue->ask(net->program, s->eval_turn));
    LS_TRY(hear_evaluation(s, 1 - s->eval_turn, totals));
    s->evaluating = slot->valid;
    s->eval_turn = 1 - s->eval_turn;
    return LS_OK;
}

void ls_totals_report(const struct ls_totals *totals, struct ls_report *r)
{
    double n = totals->samples > 0 ? (double)totals->samples : 1;
    r->samples = totals->samples;
    r->loss = totals->loss / n;
    r->top1 = (double)totals->top1 / n;
    r->top5 = (double)totals->top5 / n;
}

static enum ls_status settle_bucket(void *context, int bucket)
{
    struct ls_stepper *s = context;
    const struct ls_bucket *b = &s->engine->buckets[bucket];
    return ls_replicas_settle(&s->replicas, b->first, b->count);
}

/* Cards that sum among themselves need no strategy but its cuts. */
static enum ls_status open_peers(struct ls_stepper *s, const struct ls_options *o)
{
    const struct ls_sync_ops *ops = ls_sync_choose(o);
    LS_TRY(ls_engine_make_buckets(s->engine, o, ops));
    LS_TRY(ls_rank_reduce_init(&s->agree, s->engine->comm, s->engine->tree));
    return ls_peers_share(s->engine, ops, settle_bucket, s);
}

/* In fp16 a step is left out where a gradient overflows: all must see the same ones, as they are. */
static enum ls_status check_scaled(const struct ls_options *o, const struct ls_sync_ops *ops)
{
    if (ls_sync_shards(ops))
        return ls_fail(
            LS_USAGE,
            "--dtype fp16: with --sync %s no process sees all gradients, so none can tell when one overflows; "
            "use --dtype bf16, or --sync overlap, allreduce, gather or local",
            o->sync);
    const struct ls_codec *codec = ls_compress_find(o->compress);
    if (strcmp(o->compress, "none") != 0 && !(codec && codec->shows_overflow))
        return ls_fail(
            LS_USAGE,
            "--dtype fp16: its gradients are scaled up and may overflow, which --compress %s would hide or keep "
            "for ever; use --dtype bf16, or --compress bf16 or none",
            o->compress);
    return LS_OK;
}

/* The strategy, where there is somebody to agree with. */
static enum ls_status open_sync(struct ls_stepper *s, const struct ls_options *o)
{
    struct ls_engine *e = s->engine;
    if (e->peers)
        return open_peers(s, o);
    if (!e->comm)
        return e->n_grads > 0 ? ls_engine_make_buckets(e, o, NULL) : LS_OK;
    const struct ls_sync_ops *ops = ls_sync_choose(o);
    if (!ops)
        return ls_fail(LS_USAGE, "--sync %s: this program was built without it", o->sync);
    if (ops->stays && e->tree->replicas != e->tree->size)
        return ls_fail(LS_USAGE, "--sync %s needs as many replicas as workers: leave --replicas out, or say %d",
                       o->sync, e->tree->size);
    if (e->train.graph.act_dtype == LS_F16)
        LS_TRY(check_scaled(o, ops));
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
                               .look = look,
                               .context = s,
                               .signal = wants_to_stop};
    LS_TRY(ls_sync_open(&s->sync));
    return ls_rank_reduce_init(&s->agree, e->comm, e->tree);
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
    struct ls_replicas_memory memory = {.grads = engine->kept,
                                        .count = engine->n_grads,
                                        .sum = engine->grads,
                                        .side = engine->side,
                                        .backend = engine->backend,
                                        .program = engine->train.program};
    LS_TRY_GOTO(failed, ls_replicas_init(&s->replicas, engine->tree, rank, engine->passes, &memory));
    LS_TRY_GOTO(failed, open_sync(s, o));
    bool one_pass = engine->tree->replicas == engine->tree->size && engine->passes == 1; /* of every process */
    bool unseen = !engine->comm || engine->peers || s->sync.ops->stays; /* gradients: nobody waits for them here */
    s->lags = engine->backend->queue && unseen && one_pass;
    return LS_OK;
failed:
    ls_stepper_release(s);
    return st;
}

void ls_stepper_release(struct ls_stepper *s)
{
    ls_step_drop(s);
    ls_device_dataset_close(&s->train);
    ls_device_dataset_close(&s->eval);
    ls_sync_close(&s->sync);
    ls_rank_reduce_release(&s->agree);
    ls_replicas_release(&s->replicas);
    ls_free(s->loss);
    ls_free(s->rank);
    *s = (struct ls_stepper){0};
}
