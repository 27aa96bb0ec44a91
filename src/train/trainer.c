#include "train/trainer.h"
#include "exec/device/peers.h"
#include "exec/pipeline/pipeline.h"
#include "train/ranks/rank_check.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/system/interrupt.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

bool ls_trainer_epoch_over(const struct ls_trainer *t)
{
    return t->state.position >= t->epoch_samples;
}

int64_t ls_trainer_epochs(const struct ls_trainer *t)
{
    return t->o->steps > 0 ? 0 : (int64_t)ceil(t->o->epochs);
}

bool ls_trainer_steps_left(const struct ls_trainer *t)
{
    return t->state.step < (uint64_t)t->total_steps;
}

/* --stop-after: the last epoch of this part of the run has ended. */
static bool part_over(const struct ls_trainer *t)
{
    uint64_t last = (uint64_t)t->o->stop_after;
    return last > 0 && t->state.epoch >= last && t->state.position == 0 && ls_trainer_steps_left(t);
}

/* Is there something left to do before the run ends? */
static bool goes_on(const struct ls_trainer *t)
{
    return (ls_trainer_steps_left(t) || ls_trainer_epoch_over(t) || ls_trainer_eval_left(t)) &&
           !ls_trainer_stops_early(t);
}

static bool save_due(const struct ls_trainer *t)
{
    int64_t every = t->o->checkpoint_every;
    return every > 0 && t->state.step % (uint64_t)every == 0;
}

static bool check_due(const struct ls_trainer *t)
{
    int64_t every = t->o->check_every;
    return t->engine.comm && every > 0 && t->state.step % (uint64_t)every == 0;
}

void ls_trainer_say_position(const struct ls_trainer *t, enum ls_stage stage)
{
    if (t->engine.comm)
        ls_comm_position(t->engine.comm, t->state.step, 0, stage);
}

/* --- stepping ----------------------------------------------------------------------------------------- */

/* All processes have the same loss. With servers the loss is this process's, and its failure is broadcast. */
static enum ls_status diverged(struct ls_trainer *t, const struct ls_report *r)
{
    bool servers = t->engine.strategy->servers;
    if (!t->root && !servers)
        return ls_trainer_all_know(t, LS_DIVERGED);
    ls_console_end(&t->console);
    enum ls_status st = ls_fail(
        LS_DIVERGED, "step %" PRId64 ": the loss is %f: training diverged; try a lower --lr (now %g) or a --warmup",
        r->step, r->loss, r->lr);
    ls_trainer_await_saved(t);
    ls_trainer_name_checkpoint(t);
    return servers ? st : ls_trainer_all_know(t, st);
}

static enum ls_status write_metrics(struct ls_trainer *t, enum ls_metrics_kind kind, const struct ls_report *r)
{
    struct ls_report with = *r;
    if (!t->root)
        return LS_OK;
    with.loader_threads = ls_trainer_watch_loader(t);
    with.on_gpu = kind == LS_METRICS_EPOCH ? ls_gpu_mean(&t->gpu, &t->gpu_before, &with.gpu) : false;
    if (!with.on_gpu)
        with.on_gpu = ls_gpu_last(&t->gpu, &with.gpu);
    if (kind == LS_METRICS_EPOCH)
        ls_gpu_sums(&t->gpu, &t->gpu_before);
    LS_TRY(ls_metrics_write(&t->metrics, kind, &with));
    return ls_observers_report(&t->observers, kind, &with);
}

static void go_to(struct ls_trainer *t, uint64_t step)
{
    struct ls_state *s = &t->state;
    s->position += ((int64_t)step - (int64_t)s->step) * t->o->batch;
    s->position = s->position < t->epoch_samples ? s->position : t->epoch_samples;
    s->step = step;
}

/* Write the report of a step down, show it and add it up; step 0: there is none. */
static enum ls_status take_report(struct ls_trainer *t, const struct ls_report *r)
{
    ls_ranks_add(t, r);
    if (r->step == 0)
        return LS_OK;
    LS_TRY(write_metrics(t, LS_METRICS_STEP, r));
    if (!isfinite(r->loss))
        return diverged(t, r);
    ls_report_add(&t->state.done, r);
    ls_report_add(&t->spent, r);
    if (t->root)
        ls_console_step(&t->console, r);
    return LS_OK;
}

/* Reports may be a step late (step.h): take the last one, before the state is read. */
static enum ls_status report_pending(struct ls_trainer *t)
{
    struct ls_report r = {0};
    LS_TRY(ls_step_flush(&t->stepper, &r));
    return take_report(t, &r);
}

/* Values are compared as soon as the strategy has all processes hold the same. Momenta are left out: where parameters are
 * sharded each process has those of its share. */
static enum ls_status compare_if_due(struct ls_trainer *t)
{
    t->check_due = t->check_due || check_due(t);
    if (!t->check_due || t->stepper.outcome.differ)
        return LS_OK;
    LS_TRY(report_pending(t));
    return ls_trainer_compare(t, LS_RANK_CHECK_OPTIMIZER);
}

static enum ls_status train_step(struct ls_trainer *t)
{
    struct ls_state *s = &t->state;
    int64_t left = t->epoch_samples - s->position, samples = left < t->o->batch ? left : t->o->batch;
    struct ls_report r = {.epoch = (int64_t)s->epoch,
                          .epochs = ls_trainer_epochs(t),
                          .step_in_epoch = s->position / t->o->batch + 1,
                          .steps_per_epoch = t->steps_per_epoch};
    LS_TRY(ls_run_lock_held(t->lock, false));
    s->end_due = false; /* of fewer --steps */
    LS_TRY(ls_tracing_before_step(t));
    LS_TRY(ls_step(&t->stepper, s->step, samples, ls_schedule_lr(&t->schedule, s->step), &r));
    LS_TRY(take_report(t, &r));
    go_to(t, t->stepper.outcome.next_step);
    LS_TRY(compare_if_due(t));
    if (t->on_step)
        t->on_step(t->context, s->step);
    return LS_OK;
}

/* After an interrupted evaluation the epoch is still to be finished: the state is changed only once all is
 * done. */
static enum ls_status finish_epoch(struct ls_trainer *t)
{
    struct ls_state *s = &t->state;
    bool better = false, evaluated = ls_trainer_eval_left(t) || (t->task.test && !ls_trainer_steps_left(t));
    struct ls_report epoch = s->done;
    epoch.step = (int64_t)s->step;
    epoch.epoch = (int64_t)s->epoch;
    epoch.epochs = ls_trainer_epochs(t);
    epoch.step_in_epoch = epoch.steps_per_epoch = t->steps_per_epoch;
    epoch.lr = ls_schedule_lr(&t->schedule, s->step - 1);
    if (t->engine.strategy->servers)
        LS_TRY(ls_trainer_collect(t));
    LS_TRY(ls_broken_gather(t));
    epoch.broken = s->done.broken;
    epoch.counts_broken = s->done.counts_broken;
    if (t->root)
        ls_console_epoch(&t->console, &epoch);
    if (!t->advised && ls_trainer_steps_left(t)) /* the end has it anyway */
        ls_trainer_advise(t, &epoch);
    if (ls_trainer_eval_left(t))
        LS_TRY(ls_trainer_evaluate_and_follow(t, &better));
    else if (evaluated)
        LS_TRY(ls_trainer_evaluate(t, &better));
    LS_TRY(write_metrics(t, LS_METRICS_EPOCH, &epoch));
    LS_TRY(ls_ranks_write(t));
    if (evaluated)
        LS_TRY(write_metrics(t, LS_METRICS_EVAL, &t->last_eval));
    LS_TRY(ls_trainer_observe_values(t));
    s->epoch++;
    s->position = 0;
    s->done = (struct ls_report){0};
    return better || t->o->checkpoint_every == 0 || save_due(t) || !goes_on(t) ? ls_trainer_save(t) : LS_OK;
}

/* --eval-every within an epoch. */
static enum ls_status evaluate_within(struct ls_trainer *t)
{
    bool better = false;
    LS_TRY(ls_trainer_evaluate_and_follow(t, &better));
    LS_TRY(write_metrics(t, LS_METRICS_EVAL, &t->last_eval));
    return better || save_due(t) ? ls_trainer_save(t) : LS_OK;
}

/* After an interrupted evaluation that is all that is left of its step. */
static enum ls_status advance(struct ls_trainer *t)
{
    if (!ls_trainer_epoch_over(t) && !ls_trainer_eval_left(t))
        LS_TRY(train_step(t));
    if (ls_trainer_epoch_over(t) || save_due(t) || !ls_trainer_steps_left(t) || ls_trainer_eval_left(t))
        LS_TRY(report_pending(t));
    if (ls_trainer_epoch_over(t))
        return finish_epoch(t);
    if (ls_trainer_eval_left(t))
        return evaluate_within(t);
    if (!save_due(t))
        return LS_OK;
    t->state.end_due = t->task.test && !ls_trainer_steps_left(t); /* finish_run evaluates behind this save */
    return ls_trainer_save(t);
}

/* --- the end ------------------------------------------------------------------------------------------ */

/* --steps may end within an epoch; a run that is complete may be evaluated again. */
static enum ls_status finish_run(struct ls_trainer *t)
{
    bool better = false, fresh = t->last_eval.samples == 0 || t->last_eval.step != (int64_t)t->state.step;
    bool mid_epoch = t->state.position > 0;
    if (t->task.test && fresh) {
        t->state.end_due = mid_epoch; /* what is saved until it is done says that it is not */
        LS_TRY(ls_trainer_evaluate(t, &better));
        t->state.end_due = false;
        if (mid_epoch)
            LS_TRY(write_metrics(t, LS_METRICS_EVAL, &t->last_eval));
    }
    if (mid_epoch) {
        LS_TRY(ls_trainer_observe_values(t));
        LS_TRY(ls_trainer_save_last(t));
    }
    LS_TRY(ls_broken_gather(t));
    if (t->engine.pipeline)
        LS_TRY(ls_pipeline_bubble(&t->engine, t->spent.seconds, t->spent.wait_seconds, t->busy, &t->bubble,
                                  &t->least_bubble));
    return ls_trainer_finish_saving(t);
}

/* number: of the signal; 0: --stop-after */
static enum ls_status interrupted(struct ls_trainer *t, int number)
{
    ls_console_end(&t->console);
    LS_TRY(ls_trainer_save_last(t));
    LS_TRY(ls_trainer_finish_saving(t));
    ls_trainer_say(t, "Stopped by %s after step %" PRIu64 " of %" PRId64 "; saved %s.",
                   number ? strsignal(number) : "--stop-after", t->state.step, t->total_steps, t->checkpoint);
    ls_ranks_say(t);
    ls_trainer_say_tallies(t);
    ls_trainer_say(t, "Go on with: lockstep train --resume --run %s", t->run);
    return LS_INTERRUPTED;
}

/* The run fails by what it cannot read. All processes are at the same step, which is saved before they end. */
static enum ls_status save_before_failure(struct ls_trainer *t, enum ls_status status)
{
    if (t->state.step > 0) {
        LS_TRY(ls_trainer_save_last(t));
        LS_TRY(ls_trainer_finish_saving(t));
        ls_trainer_say(t, "Saved %s, after step %" PRIu64 " of %" PRId64 ".", t->checkpoint, t->state.step,
                       t->total_steps);
    }
    ls_trainer_say(t, "When that is fixed, continue with: lockstep train --resume --run %s", t->run);
    return status;
}

/* Alone, or all in the same evaluation or before the first step. */
static enum ls_status unreadable(struct ls_trainer *t, enum ls_status status)
{
    bool all_know = t->all_know;
    ls_console_end(&t->console);
    LS_TRY(report_pending(t));
    status = save_before_failure(t, status);
    t->all_know = all_know;
    return status;
}

/* Why a starved process is: its loader says. */
static enum ls_status why_starved(struct ls_stepper *s)
{
    const struct ls_slot *slot;
    enum ls_status st = LS_OK;
    for (int i = 0; i < s->replicas.n_slices && s->starved && st == LS_OK; i++)
        st = s->feed.next(s->feed.context, &slot);
    return st;
}

/* The reason of any process, said once. */
static enum ls_status agree_why_starved(struct ls_trainer *t)
{
    if (!t->root)
        ls_log_mute(1);
    enum ls_status st = ls_rank_reduce_status(t->engine.comm, why_starved(&t->stepper));
    if (!t->root)
        st = ls_rank_reduce_unmute(st);
    return st;
}

/* Every step ends with the question whether all processes have samples for the next one; the first one has none before
 * it. */
static enum ls_status check_first_samples(struct ls_trainer *t)
{
    struct ls_stepper *s = &t->stepper;
    if (!t->engine.comm)
        return LS_OK;
    s->starved = s->feed.ready && !s->feed.ready(s->feed.context, (1 + s->report_delay) * s->replicas.n_slices);
    return ls_trainer_all_know(t, agree_why_starved(t));
}

/* All have stopped where one of them has no samples to go on with. */
static enum ls_status starved(struct ls_trainer *t)
{
    ls_console_end(&t->console);
    LS_TRY(ls_step_collect(&t->stepper));
    enum ls_status st = agree_why_starved(t);
    if (st == LS_PEER_LOST)
        return st;
    return ls_trainer_all_know(t, save_before_failure(t, st == LS_OK ? LS_FAILED : st));
}

/* Why all stop after this step: a signal, LS_STOP_INPUT or 0. A single process asks whenever it likes. */
static int told_to_stop(const struct ls_trainer *t)
{
    return t->engine.comm ? t->stepper.stop : ls_interrupted();
}

static enum ls_status run_steps(struct ls_trainer *t)
{
    LS_TRY(check_first_samples(t));
    LS_TRY(ls_tracing_before_run(t));
    while (goes_on(t)) {
        if (part_over(t))
            return LS_INTERRUPTED;
        LS_TRY(advance(t));
        if (told_to_stop(t) && goes_on(t)) {
            LS_TRY(report_pending(t));
            return LS_INTERRUPTED;
        }
    }
    return finish_run(t);
}

/* What is left to do when the steps have ended so: saved, where that is possible. */
static enum ls_status end_steps(struct ls_trainer *t, enum ls_status status)
{
    if (status == LS_INTERRUPTED)
        return told_to_stop(t) == LS_STOP_INPUT ? starved(t) : interrupted(t, told_to_stop(t));
    if (status == LS_BAD_INPUT && (!t->engine.comm || t->all_know))
        return unreadable(t, status);
    return status;
}

static void begin_run(struct ls_trainer *t)
{
    struct ls_backend_about about;
    ls_trainer_announce(t);
    t->began = ls_now();
    t->engine.backend->about(&about);
    if (t->root || t->stepper.replicas.n_slices > 0) /* a server computes nothing */
        ls_gpu_watch(&t->gpu, about.bus);
    if (t->root)
        ls_console_begin(&t->console, t->o, t->total_steps);
    t->console.epoch = t->state.done;
    t->console.epoch_steps = t->state.done.step_in_epoch;
    ls_interrupt_watch();
}

enum ls_status ls_trainer_run(struct ls_trainer *t)
{
    if (t->finished)
        return LS_OK;
    begin_run(t);
    enum ls_status st = ls_tracing_after_run(t, end_steps(t, run_steps(t)));
    if (st == LS_OK || st == LS_INTERRUPTED)
        ls_peers_close(&t->engine, true);
    else
        ls_trainer_keep_saving(t);
    if (st != LS_INTERRUPTED) /* the signal may reach this process later than the others */
        ls_interrupt_release();
    ls_console_end(&t->console);
    if (st == LS_OK)
        ls_trainer_summary(t);
    ls_gpu_stop(&t->gpu);
    enum ls_status closed = ls_metrics_close(&t->metrics), recorded = ls_observers_close(&t->observers, st);
    closed = closed != LS_OK ? closed : recorded;
    return st != LS_OK ? st : closed;
}
