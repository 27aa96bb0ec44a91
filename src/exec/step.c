/* A training step: begin, run every pass, finish, report. */
#include "exec/step.h"
#include "base/system/clock.h"
#include "base/system/interrupt.h"
#include "base/log.h"

static const struct ls_backend_queue *queue_of(const struct ls_stepper *s)
{
    return s->engine->backend->queue;
}

static void say_position(const struct ls_stepper *s, int bucket, enum ls_stage stage)
{
    if (s->engine->comm)
        ls_comm_position(s->engine->comm, s->run.step, bucket, stage);
}

/* Seconds that this process has waited for communication; a strategy may wait within a pass. */
static double waited_so_far(const struct ls_stepper *s)
{
    return s->engine->comm ? ls_comm_waited(s->engine->comm) : 0;
}

/* --- a pass --------------------------------------------------------------------------------------------------- */

/* Point a net's inputs at the slot. */
static enum ls_status set_input(struct ls_stepper *s, struct ls_net *net, const struct ls_slot *slot)
{
    const struct ls_backend *b = s->engine->backend;
    s->run.valid = slot->valid;
    if (slot->form == LS_FORM_PLANES)
        LS_TRY(b->input(net->program, net->graph.input, slot->images));
    else
        LS_TRY(b->queue->crops(net->program, slot->crops, slot->pixels));
    return b->input(net->program, net->graph.label, slot->labels);
}

/* The feed's next slot, or NULL when this process is starved: then it computes nothing until all stop. */
static enum ls_status next_slot(struct ls_stepper *s, const struct ls_slot **slot)
{
    double start = ls_now();
    *slot = NULL;
    if (s->starved)
        return LS_OK;
    say_position(s, 0, LS_STAGE_INPUT);
    LS_TRY(s->feed.next(s->feed.context, slot));
    s->input_seconds += ls_now() - start;
    ls_step_record(s, ls_trace_on(s->track) ? start : 0, LS_SLICE_INPUT, "input", 0);
    if (!*slot)
        return ls_fail(LS_FAILED, "step %llu: the data ended too early", (unsigned long long)s->run.step);
    s->replaced += (*slot)->broken;
    say_position(s, 0, LS_STAGE_COMPUTE);
    return LS_OK;
}

/* A pass without samples has run already, and its gradients are zero. */
static enum ls_status load_batch(struct ls_stepper *s, int replica, int pass)
{
    const struct ls_slot *slot;
    LS_TRY(next_slot(s, &slot));
    s->run.valid = slot ? slot->valid : 0;
    s->run.replica = (uint32_t)(replica * s->replicas.passes + pass);
    s->run.stat_weight = (float)s->run.valid * s->run.grad_scale;
    s->at = s->run.valid > 0 ? 0 : s->engine->train.end;
    return s->run.valid > 0 ? set_input(s, &s->engine->train, slot) : ls_replicas_clear(&s->replicas);
}

/* Run the nodes of the pass before `end` that have not run. */
static enum ls_status run_to(struct ls_stepper *s, int end)
{
    int first = s->at;
    if (end <= first)
        return LS_OK;
    s->at = end;
    return ls_step_run_nodes(s, first, end);
}

static enum ls_status ask_results(struct ls_stepper *s)
{
    return queue_of(s)->ask(s->engine->train.program, s->turn);
}

/* Waits for a pass. */
static enum ls_status take_results(struct ls_stepper *s, const struct ls_net *net, int slot, int64_t valid,
                                   struct ls_totals *totals)
{
    const float *loss;
    const int32_t *rank;
    double start = ls_now();
    LS_TRY(queue_of(s)->results(net->program, slot, &loss, &rank));
    ls_totals_count(totals, loss, rank, valid);
    s->compute_seconds += ls_now() - start;
    ls_step_record(s, ls_trace_on(s->track) ? start : 0, LS_SLICE_WAIT, "results", -1);
    return LS_OK;
}

/* --- the last pass -------------------------------------------------------------------------------------------- */

/* Do strategies see gradients in other memory than passes leave them in? */
static bool fetches(const struct ls_engine *e)
{
    return e->grads != e->kept;
}

/* Buckets that come to the host together: one, unless there are more of them than marks. */
static int buckets_a_mark(const struct ls_engine *e)
{
    return (e->n_buckets + LS_QUEUE_MARKS - 1) / LS_QUEUE_MARKS;
}

enum ls_status ls_step_settle(void *stepper, int bucket)
{
    struct ls_stepper *s = stepper;
    const struct ls_bucket *b = &s->engine->buckets[bucket];
    return ls_replicas_settle(&s->replicas, b->first, b->count);
}

static enum ls_status fetch_bucket(struct ls_stepper *s, int bucket)
{
    const struct ls_engine *e = s->engine;
    int each = buckets_a_mark(e), mark = bucket / each;
    if (!fetches(e) || ((bucket + 1) % each != 0 && bucket + 1 < e->n_buckets))
        return LS_OK;
    size_t first = e->buckets[mark * each].first, end = e->buckets[bucket].first + e->buckets[bucket].count;
    return queue_of(s)->fetch(e->train.program, mark, e->grads + first, e->kept + first, end - first);
}

/* Hand the buckets before `end` over to the strategy, each when it has arrived. */
static enum ls_status hand_over(struct ls_stepper *s, int end)
{
    const struct ls_engine *e = s->engine;
    int each = buckets_a_mark(e);
    for (; s->handed < end; s->handed++) {
        if (fetches(e) && s->handed % each == 0)
            LS_TRY(queue_of(s)->arrived(e->train.program, s->handed / each));
        say_position(s, s->handed, LS_STAGE_COMPUTE);
        LS_TRY(ls_sync_ready(&s->sync, s->handed, s->at));
    }
    return LS_OK;
}

/* Where run only enqueues, buckets arrive when all is enqueued. The pass then reads nothing any more that an update enqueued
 * from now on would change: for SYNC-2 it is over. */
enum ls_status ls_step_by_buckets(struct ls_stepper *s)
{
    const struct ls_engine *e = s->engine;
    bool at_once = queue_of(s)->delay == 0;
    s->handed = 0;
    for (int bucket = 0; bucket < e->n_buckets; bucket++) {
        LS_TRY(run_to(s, e->buckets[bucket].ready + 1));
        LS_TRY(ls_step_settle(s, bucket));
        LS_TRY(fetch_bucket(s, bucket));
        LS_TRY(hand_over(s, at_once ? bucket + 1 : 0));
    }
    LS_TRY(run_to(s, e->train.end));
    LS_TRY(ask_results(s));
    return hand_over(s, e->n_buckets);
}

/* The devices run the pass, sum, and update. A rank may be without samples where a step has fewer than passes. */
enum ls_status ls_step_on_device(struct ls_stepper *s)
{
    const struct ls_engine *e = s->engine;
    bool scarce = s->sync.samples < (int64_t)e->tree->replicas * s->replicas.passes;
    double begin = ls_trace_begin(s->track);
    LS_TRY(e->backend->peers->step(e->train.program, &s->run, scarce));
    ls_step_record(s, begin, LS_SLICE_ENQUEUE, "enqueue pass, sums and updates", e->train.graph.n_nodes);
    return ask_results(s);
}

/* A pass whose gradients another pass of this process will be added to. */
static enum ls_status run_whole(struct ls_stepper *s)
{
    LS_TRY(run_to(s, s->engine->train.end));
    return ask_results(s);
}

static enum ls_status run_pass(void *stepper, int replica, int pass, bool last)
{
    struct ls_stepper *s = stepper;
    double begin = ls_trace_begin(s->track);
    LS_TRY(load_batch(s, replica, pass));
    double start = ls_now(), waited = waited_so_far(s);
    LS_TRY(last ? s->last_pass(s) : run_whole(s));
    s->compute_seconds += ls_now() - start - (waited_so_far(s) - waited);
    ls_step_record(s, begin, LS_SLICE_PASS, "pass", s->run.replica);
    struct ls_totals *totals = &s->pending[s->n_pending].totals;
    return last ? LS_OK : take_results(s, &s->engine->train, s->turn, s->run.valid, totals);
}

/* --- reports -------------------------------------------------------------------------------------------------- */

/* Why this process wants to stop, 0: it does not. `ahead`: steps that it will have begun before it is asked again. A process
 * that is alone needs no warning: it stops when it cannot take its samples (EXEC-6). */
static int why_stop(struct ls_stepper *s, int ahead)
{
    int number = ls_interrupted();
    if (number == 0 && !s->starved && s->engine->comm && s->feed.ready) {
        double start = ls_now();
        s->starved = !s->feed.ready(s->feed.context, ahead * s->replicas.n_slices);
        s->input_seconds += ls_now() - start;
    }
    return number == 0 && s->starved ? LS_STOP_INPUT : number;
}

int ls_step_wants_to_stop(void *stepper)
{
    return why_stop(stepper, 1);
}

static enum ls_status expect_samples(const struct ls_pending *p)
{
    if (p->totals.samples == p->reported)
        return LS_OK;
    return ls_fail(LS_FAILED, "step %lld: %lld samples came where %lld were expected", (long long)p->report.step - 1,
                   (long long)p->totals.samples, (long long)p->reported);
}

/* Seconds since the last report, or the step's; from now on those of the next. */
static void take_times(struct ls_stepper *s, double since, struct ls_report *r)
{
    double now = ls_now();
    r->seconds = now - since;
    r->input_seconds = s->input_seconds;
    r->compute_seconds = s->compute_seconds;
    ls_step_usage_take(&s->usage, s->engine->comm, r);
    r->update_seconds = r->seconds - r->input_seconds - r->compute_seconds - r->wait_seconds;
    s->input_seconds = s->compute_seconds = 0;
    for (int i = 0; i < s->n_pending; i++)
        s->pending[i].since = now;
}

static enum ls_status report_oldest(struct ls_stepper *s, struct ls_report *r)
{
    struct ls_pending p = s->pending[0];
    s->pending[0] = s->pending[1];
    s->n_pending--;
    p.totals.stop = why_stop(s, 1 + s->report_delay - s->n_pending);
    LS_TRY(take_results(s, &s->engine->train, p.slot, p.valid, &p.totals));
    s->own = p.totals;
    double begin = ls_trace_begin(s->track);
    LS_TRY(ls_sync_totals(&s->sync, &p.totals));
    ls_step_record(s, s->engine->comm ? begin : 0, LS_SLICE_WAIT, "totals", -1);
    s->stop = (int)p.totals.stop;
    LS_TRY(expect_samples(&p));
    *r = p.report;
    ls_totals_report(&p.totals, r);
    r->samples = p.report.samples;
    take_times(s, p.since, r);
    return LS_OK;
}

enum ls_status ls_step_flush(struct ls_stepper *s, struct ls_report *r)
{
    while (s->n_pending > 0)
        LS_TRY(report_oldest(s, r));
    return LS_OK;
}

void ls_step_drop(struct ls_stepper *s)
{
    struct ls_totals unused = {0};
    for (int i = 0; i < s->n_pending; i++)
        take_results(s, &s->engine->train, s->pending[i].slot, s->pending[i].valid, &unused);
    s->n_pending = 0;
    if (s->engine)
        ls_peers_close(s->engine, false);
}

/* --- the step ------------------------------------------------------------------------------------------------- */

/* How many of the step's samples this process computes. */
static int64_t own_samples(const struct ls_stepper *s, int64_t samples)
{
    int64_t slices = s->engine->tree->replicas * s->replicas.passes, own = 0;
    for (int i = 0; !s->starved && i < s->replicas.n_slices; i++)
        own += samples / slices + (s->replicas.order[i] < samples % slices);
    return own;
}

static void begin(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, const struct ls_report *r)
{
    int64_t own = own_samples(s, samples), meant = s->sync.ops->local_mean && own > 0 ? own : samples;
    if (s->n_pending == 0) {
        s->input_seconds = s->compute_seconds = 0;
        ls_step_usage_skip(&s->usage, s->engine->comm);
    }
    s->pending[s->n_pending] = (struct ls_pending){.slot = s->turn, .since = ls_now(), .report = *r};
    s->run.step = step;
    s->run.lr = (float)lr;
    s->run.grad_scale = 1.0f / (float)meant;
    ls_sync_begin(&s->sync, step, lr, own, samples);
}

/* Leave out the samples of the steps that went on without this process. */
static enum ls_status skip_steps(struct ls_stepper *s)
{
    const struct ls_slot *slot;
    uint64_t next = s->outcome.next_step, here = s->run.step;
    uint64_t left = next > here ? (next - here - 1) * (uint64_t)s->replicas.n_slices : 0;
    double start = ls_now();
    for (; left > 0 && !s->starved; left--) {
        s->starved = s->feed.ready && !s->feed.ready(s->feed.context, 1); /* the next push says so */
        if (!s->starved)
            LS_TRY(s->feed.next(s->feed.context, &slot));
    }
    s->input_seconds += ls_now() - start;
    return LS_OK;
}

/* Gradients of all processes combined, parameters updated. */
static enum ls_status finish(struct ls_stepper *s)
{
    struct ls_pending *now = &s->pending[s->n_pending];
    LS_TRY(ls_sync_finish(&s->sync, &s->outcome));
    LS_TRY(ls_host_copy_push(s->engine, s->sync.wrote));
    now->valid = s->run.valid;
    now->reported = s->outcome.reported;
    now->report.step = (int64_t)s->sync.step + 1;
    now->report.lr = s->sync.lr;
    now->report.samples = s->outcome.samples;
    now->report.gradients = s->outcome.gradients;
    now->report.staleness = (double)s->outcome.staleness;
    s->n_pending++;
    s->turn = 1 - s->turn;
    return skip_steps(s);
}

/* On a rank that computes nothing. */
static enum ls_status serve(struct ls_stepper *s, uint64_t step, struct ls_report *r)
{
    double start = ls_now();
    *r = (struct ls_report){0};
    ls_step_usage_skip(&s->usage, s->engine->comm);
    LS_TRY(ls_sync_serve(&s->sync, step, &s->outcome));
    LS_TRY(ls_step_collect(s));
    take_times(s, start, r);
    return LS_OK;
}

enum ls_status ls_step(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, struct ls_report *r)
{
    if (s->replicas.n_slices == 0)
        return serve(s, step, r);
    ls_trace_step(s->trace, step + 1);
    double since = ls_trace_begin(s->track);
    begin(s, step, samples, lr, r);
    LS_TRY(ls_replicas_run(&s->replicas, run_pass, s));
    LS_TRY(finish(s));
    *r = (struct ls_report){0};
    if (s->n_pending > s->report_delay)
        LS_TRY(report_oldest(s, r));
    ls_step_record(s, since, LS_SLICE_STEP, "step", (int64_t)step + 1);
    return LS_OK;
}

enum ls_status ls_step_collect(struct ls_stepper *s)
{
    LS_TRY(ls_sync_collect(&s->sync, &s->stop));
    return ls_host_copy_push(s->engine, s->sync.wrote);
}

/* --- evaluation ----------------------------------------------------------------------------------------------- */

static enum ls_status enqueue_evaluation(struct ls_stepper *s, const struct ls_slot *slot)
{
    struct ls_net *net = &s->engine->eval;
    double begin = ls_trace_begin(s->track);
    s->run.replica = 0;
    LS_TRY(set_input(s, net, slot));
    LS_TRY(s->engine->backend->run(net->program, 0, net->end, &s->run));
    LS_TRY(queue_of(s)->ask(net->program, s->eval_turn));
    ls_step_record(s, begin, LS_SLICE_PASS, "pass", 0);
    s->eval_valid[s->eval_turn] = slot->valid;
    s->eval_turn = 1 - s->eval_turn;
    s->eval_pending++;
    return LS_OK;
}

enum ls_status ls_step_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals)
{
    bool some = slot && slot->valid > 0;
    if (some)
        LS_TRY(enqueue_evaluation(s, slot));
    while (s->eval_pending > (some ? queue_of(s)->delay : 0)) {
        int oldest = s->eval_pending == 2 ? s->eval_turn : 1 - s->eval_turn;
        s->eval_pending--;
        LS_TRY(take_results(s, &s->engine->eval, oldest, s->eval_valid[oldest], totals));
    }
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
