/* A training step: begin, run every pass, finish, report. */
#include "exec/stepper.h"
#include "exec/device/host_copy.h"
#include "exec/device/peers.h"
#include "exec/pipeline/pipeline.h"
#include "exec/shards/params.h"
#include "exec/split/split.h"
#include "base/system/clock.h"
#include "base/system/interrupt.h"
#include "base/log.h"

/* --- reports -------------------------------------------------------------------------------------------------- */

/* Why this process wants to stop, 0: it does not. `ahead`: steps that it will have begun before this is called again. A process
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
    r->wait_seconds += s->device_wait_seconds;
    r->update_seconds = r->seconds - r->input_seconds - r->compute_seconds - r->wait_seconds;
    s->input_seconds = s->compute_seconds = s->device_wait_seconds = 0;
    for (int i = 0; i < s->n_pending; i++)
        s->pending[i].since = now;
}

static enum ls_status report_oldest(struct ls_stepper *s, struct ls_report *r)
{
    struct ls_pending p = s->pending[0];
    s->pending[0] = s->pending[1];
    s->n_pending--;
    p.totals.stop = why_stop(s, 1 + s->report_delay - s->n_pending);
    LS_TRY(ls_step_take_results(s, &s->engine->train, p.slot, p.valid, &p.totals));
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
        ls_step_take_results(s, &s->engine->train, s->pending[i].slot, s->pending[i].valid, &unused);
    s->n_pending = 0;
    if (s->engine)
        ls_peers_close(s->engine, false);
    if (s->engine && s->engine->pipeline)
        ls_wires_close(s->engine);
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

/* Skips the samples of the steps that went on without this process. */
static enum ls_status skip_steps(struct ls_stepper *s)
{
    const struct ls_slot *slot;
    uint64_t next = s->outcome.next_step, here = s->run.step;
    uint64_t left = next > here ? (next - here - 1) * (uint64_t)s->replicas.n_slices : 0;
    double start = ls_now();
    for (; left > 0 && !s->starved; left--) {
        s->starved = s->feed.ready && !s->feed.ready(s->feed.context, 1); /* the next push reports it */
        if (!s->starved)
            LS_TRY(s->feed.next(s->feed.context, &slot));
    }
    s->input_seconds += ls_now() - start;
    return LS_OK;
}

/* Combines the gradients of all processes and updates the parameters. */
static enum ls_status finish(struct ls_stepper *s)
{
    struct ls_pending *now = &s->pending[s->n_pending];
    s->compute_seconds += ls_stragglers_sleep(&s->stragglers, s->run.step);
    LS_TRY(ls_sync_finish(&s->sync, &s->outcome));
    LS_TRY(ls_host_copy_push(s->engine, s->sync.wrote));
    now->valid = s->run.valid;
    now->reported = s->outcome.reported;
    now->report.step = (int64_t)s->sync.step + 1;
    now->report.lr = s->sync.lr;
    now->report.samples = s->outcome.samples;
    now->report.gradients = s->outcome.gradients;
    now->report.staleness = (double)s->outcome.staleness;
    now->report.closed = s->outcome.closed_with > 0;
    now->report.cutoff_k = (double)s->outcome.closed_with;
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
    if (s->engine->split)
        LS_TRY(ls_split_begin(s->engine->split, samples, &s->run));
    if (s->engine->params)
        LS_TRY(ls_params_begin(s->engine, s->replicas.n_slices));
    LS_TRY(ls_replicas_run(&s->replicas, s->run_pass, s));
    LS_TRY(finish(s));
    *r = (struct ls_report){0};
    if (s->n_pending > s->report_delay)
        LS_TRY(report_oldest(s, r));
    ls_step_record(s, since, LS_SLICE_STEP, "step", (int64_t)step + 1);
    return LS_OK;
}

enum ls_status ls_step_collect(struct ls_stepper *s)
{
    LS_TRY(ls_host_copy_wait(s->engine));
    LS_TRY(ls_sync_collect(&s->sync, &s->stop));
    return ls_host_copy_push(s->engine, s->sync.wrote);
}

void ls_totals_report(const struct ls_totals *totals, struct ls_report *r)
{
    double n = totals->samples > 0 ? (double)totals->samples : 1;
    r->samples = totals->samples;
    r->loss = totals->loss / n;
    r->top1 = (double)totals->top1 / n;
    r->top5 = (double)totals->top5 / n;
}
