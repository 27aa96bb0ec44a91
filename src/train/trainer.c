#include "train/trainer.h"
#include "train/rank_check.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/evaluate.h"
#include "base/interrupt.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool epoch_over(const struct ls_trainer *t)
{
    return t->state.position >= t->epoch_samples;
}

static bool steps_left(const struct ls_trainer *t)
{
    return t->state.step < (uint64_t)t->total_steps;
}

static void say_position(const struct ls_trainer *t, enum ls_stage stage)
{
    if (t->engine.comm)
        ls_comm_position(t->engine.comm, t->state.step, 0, stage);
}

/* --- saving ------------------------------------------------------------------------------------------- */

static void name_good_checkpoint(const struct ls_trainer *t)
{
    if (t->checkpoint)
        ls_trainer_say(t, "The last good checkpoint is %s.", t->checkpoint);
    else
        ls_trainer_say(t, "No checkpoint was saved yet.");
}

/* Until the last checkpoint is good. */
static enum ls_status await_saved(struct ls_trainer *t)
{
    if (!t->writing)
        return LS_OK;
    t->writing = false;
    LS_TRY(ls_checkpoint_finish(&t->writer));
    char *folder = ls_format("%s/checkpoints/step-%08" PRIu64, t->run, t->writer.state.step);
    if (!folder)
        return LS_FAILED;
    ls_free(t->checkpoint);
    t->checkpoint = folder;
    ls_note("Saved %s.", folder);
    return LS_OK;
}

/* Begin to; known to be good once it is waited for. */
static enum ls_status begin_saving(struct ls_trainer *t)
{
    LS_TRY(await_saved(t));
    LS_TRY(ls_metrics_sync(&t->metrics)); /* the steps before the checkpoint: --resume keeps what stands there */
    LS_TRY(ls_checkpoint_begin(&t->writer, t->run, &t->engine, &t->card, t->lock, &t->state, t->o->keep));
    t->writing = true;
    return t->engine.backend->queue ? LS_OK : await_saved(t);
}

/* What came of it, and how long the run stood still for it. */
static enum ls_status saved_since(struct ls_trainer *t, double start, enum ls_status st)
{
    t->saving += ls_now() - start;
    if (st != LS_OK)
        name_good_checkpoint(t);
    return st;
}

/* The first `parts` of the values, among all processes (rank_check.h). */
static enum ls_status compare(struct ls_trainer *t, int parts)
{
    enum ls_status st = ls_trainer_all_know(t, ls_rank_check_values(&t->engine, t->state.step, parts));
    t->check_due = false;
    if (st == LS_OK || st == LS_PEER_LOST || !t->root)
        return st;
    await_saved(t);
    name_good_checkpoint(t);
    return st;
}

/* Rank 0 has the whole state, and all have the same. With --check-every 0 nobody compares. */
static enum ls_status collect(struct ls_trainer *t)
{
    LS_TRY(ls_step_collect(&t->stepper));
    t->state.verified = !t->engine.comm || t->o->check_every > 0;
    return t->o->check_every > 0 ? compare(t, LS_RANK_CHECK_PARTS) : LS_OK;
}

static enum ls_status save(struct ls_trainer *t)
{
    double start = ls_now();
    LS_TRY(collect(t));
    if (!t->root)
        return LS_OK;
    say_position(t, LS_STAGE_SAVE);
    return saved_since(t, start, begin_saving(t));
}

static enum ls_status finish_saving(struct ls_trainer *t)
{
    double start = ls_now();
    return saved_since(t, start, await_saved(t));
}

/* The run has failed; the checkpoint that a thread still writes is the one to go on from, and needs no card for that. */
static void keep_saving(struct ls_trainer *t)
{
    if (!t->writing)
        return;
    say_position(t, LS_STAGE_SAVE);
    finish_saving(t);
}

static bool save_due(const struct ls_trainer *t)
{
    int64_t every = t->o->checkpoint_every;
    return every > 0 && t->state.step % (uint64_t)every == 0;
}

/* --- evaluating --------------------------------------------------------------------------------------- */

/* *better: the best so far. */
static enum ls_status evaluate(struct ls_trainer *t, bool *better)
{
    struct ls_report r = {
        .step = (int64_t)t->state.step, .epoch = (int64_t)t->state.epoch, .epochs = t->o->steps > 0 ? 0 : t->o->epochs};
    LS_TRY(ls_step_collect(&t->stepper));
    say_position(t, LS_STAGE_EVALUATE);
    t->task.loader_threads = t->loader ? ls_loader_pace(t->loader).threads : 0;
    enum ls_status st = ls_evaluate(&t->stepper, &t->task, t->o, &t->console, &r);
    if (st != LS_OK)
        return st == LS_BAD_INPUT ? ls_trainer_all_know(t, st) : st;
    if (t->root)
        ls_console_eval(&t->console, &r);
    t->evaluating += r.seconds;
    t->last_eval = r;
    *better = r.top1 > t->state.best_top1;
    if (*better) {
        t->state.best_top1 = r.top1;
        t->state.best_step = t->state.step;
    }
    return LS_OK;
}

/* --- stepping ----------------------------------------------------------------------------------------- */

/* With servers nobody waits for all: they come together when an epoch is over, to save and to stop. */
static bool served(const struct ls_trainer *t)
{
    return t->stepper.sync.ops && t->stepper.sync.ops->serve;
}

/* All have the same loss, unless they are served: then it is this process's own, and the others hear of it. */
static enum ls_status diverged(struct ls_trainer *t, const struct ls_report *r)
{
    if (!t->root && !served(t))
        return ls_trainer_all_know(t, LS_DIVERGED);
    ls_console_end(&t->console);
    enum ls_status st = ls_fail(
        LS_DIVERGED, "step %" PRId64 ": the loss is %f: training diverged; try a lower --lr (now %g) or a --warmup",
        r->step, r->loss, r->lr);
    await_saved(t);
    name_good_checkpoint(t);
    return served(t) ? st : ls_trainer_all_know(t, st);
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
    return ls_metrics_write(&t->metrics, kind, &with);
}

static void go_to(struct ls_trainer *t, uint64_t step)
{
    struct ls_state *s = &t->state;
    s->position += ((int64_t)step - (int64_t)s->step) * t->o->batch;
    s->position = s->position < t->epoch_samples ? s->position : t->epoch_samples;
    s->step = step;
}

/* Instead of steps, on a rank that only serves. */
static enum ls_status serve(struct ls_trainer *t)
{
    uint64_t step = t->state.step;
    LS_TRY(ls_step_serve(&t->stepper, &step));
    go_to(t, step);
    return ls_step_collect(&t->stepper);
}

/* What a step came to is written down, shown and added up; step 0: there is nothing to tell. */
static enum ls_status tell_step(struct ls_trainer *t, const struct ls_report *r)
{
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

/* Reports may lag a step behind (step.h): hear of the last one, before the state is looked at or left. */
static enum ls_status catch_up(struct ls_trainer *t)
{
    struct ls_report r;
    LS_TRY(ls_step_flush(&t->stepper, &r));
    return tell_step(t, &r);
}

static enum ls_status train_step(struct ls_trainer *t)
{
    struct ls_state *s = &t->state;
    LS_TRY(ls_run_lock_held(t->lock, false));
    if (t->stepper.replicas.n_slices == 0)
        return serve(t);
    int64_t left = t->epoch_samples - s->position, samples = left < t->o->batch ? left : t->o->batch;
    struct ls_report r = {.epoch = (int64_t)s->epoch,
                          .epochs = t->o->steps > 0 ? 0 : t->o->epochs,
                          .step_in_epoch = s->position / t->o->batch + 1,
                          .steps_per_epoch = t->steps_per_epoch};
    LS_TRY(ls_step(&t->stepper, s->step, samples, ls_schedule_lr(&t->schedule, s->step), &r));
    LS_TRY(tell_step(t, &r));
    go_to(t, served(t) ? t->stepper.sync.next_step : s->step + 1);
    if (t->engine.comm && t->o->check_every > 0 && s->step % (uint64_t)t->o->check_every == 0)
        t->check_due = true;
    if (t->check_due && !t->stepper.sync.differ) {
        LS_TRY(catch_up(t));
        LS_TRY(compare(
            t, LS_RANK_CHECK_MOMENTUM)); /* without it: with --sync server each has that of its own parameters */
    }
    if (t->on_step)
        t->on_step(t->context, s->step);
    return LS_OK;
}

/* After an interrupted evaluation the epoch is still to be finished: the state is changed only once all is
 * done. */
static enum ls_status finish_epoch(struct ls_trainer *t)
{
    struct ls_state *s = &t->state;
    bool better = false;
    struct ls_report epoch = s->done;
    epoch.step = (int64_t)s->step;
    epoch.epoch = (int64_t)s->epoch;
    epoch.epochs = t->o->steps > 0 ? 0 : t->o->epochs;
    epoch.step_in_epoch = epoch.steps_per_epoch = t->steps_per_epoch;
    epoch.lr = ls_schedule_lr(&t->schedule, s->step - 1);
    if (served(t))
        LS_TRY(collect(t));
    if (t->root)
        ls_console_epoch(&t->console, &epoch);
    if (!t->advised && steps_left(t)) /* the end has it anyway */
        ls_trainer_advise(t, &epoch);
    if (t->task.test)
        LS_TRY(evaluate(t, &better));
    LS_TRY(write_metrics(t, LS_METRICS_EPOCH, &epoch));
    if (t->task.test)
        LS_TRY(write_metrics(t, LS_METRICS_EVAL, &t->last_eval));
    s->epoch++;
    s->position = 0;
    s->done = (struct ls_report){0};
    return better || t->o->checkpoint_every == 0 || save_due(t) || !steps_left(t) ? save(t) : LS_OK;
}

static enum ls_status advance(struct ls_trainer *t)
{
    if (!epoch_over(t))
        LS_TRY(train_step(t));
    if (epoch_over(t) || save_due(t) || !steps_left(t))
        LS_TRY(catch_up(t));
    if (epoch_over(t))
        return finish_epoch(t);
    return save_due(t) ? save(t) : LS_OK;
}

/* --- the end ------------------------------------------------------------------------------------------ */

/* --steps may end within an epoch; a run that is complete may be looked at again. */
static enum ls_status finish_run(struct ls_trainer *t)
{
    bool better = false, fresh = t->last_eval.samples == 0 || t->last_eval.step != (int64_t)t->state.step;
    bool mid_epoch = t->state.position > 0;
    if (t->task.test && fresh) {
        LS_TRY(evaluate(t, &better));
        if (mid_epoch)
            LS_TRY(write_metrics(t, LS_METRICS_EVAL, &t->last_eval));
    }
    if (mid_epoch)
        LS_TRY(save(t));
    return finish_saving(t);
}

/* Where the time went. */
static void say_time(const struct ls_trainer *t)
{
    double total = ls_now() - t->began, share = total > 0 ? 100 / total : 0;
    ls_trainer_say(t,
                   "Time: %.1f s; waiting for input %.1f%%, forward and backward %.1f%%, waiting for workers %.1f%%, "
                   "updates %.1f%%, evaluation %.1f%%, checkpoints %.1f%%.",
                   total, share * t->spent.input_seconds, share * t->spent.compute_seconds,
                   share * t->spent.wait_seconds, share * t->spent.update_seconds, share * t->evaluating,
                   share * t->saving);
}

static void say_gpu(struct ls_trainer *t)
{
    struct ls_gpu_state mean;
    char text[LS_GPU_TEXT];
    if (!ls_gpu_mean(&t->gpu, NULL, &mean))
        return;
    ls_gpu_text(&mean, text);
    ls_trainer_say(t, "GPU: %s.", text);
}

/* fp16: steps that changed nothing. */
static void say_skipped(const struct ls_trainer *t)
{
    const struct ls_backend_queue *queue = t->engine.backend->queue;
    struct ls_loss_scale now;
    if (!t->root || !queue || !queue->get_scale || queue->get_scale(t->engine.train.program, &now) != LS_OK ||
        now.skipped == 0)
        return;
    ls_trainer_say(t, "Loss scale: %d steps were left out because a gradient was not finite%s.", now.skipped,
                   now.scale > 0 ? "" : "; a lower --loss-scale, or none, would leave out fewer");
}

static void watch_gpu(struct ls_trainer *t)
{
    struct ls_backend_about about;
    if (!t->root || !t->engine.backend->queue)
        return;
    t->engine.backend->about(&about);
    ls_gpu_watch(&t->gpu, about.bus);
}

/* Who kept the others waiting. */
static void say_late(const struct ls_trainer *t)
{
    int size = t->engine.comm ? ls_comm_size(t->engine.comm) : 0;
    for (int rank = 0; rank < size; rank++) {
        struct ls_lateness l;
        ls_comm_lateness(t->engine.comm, rank, &l);
        if (l.times > 0)
            ls_trainer_say(t, "  rank %d (%s) came last to %" PRIu64 " sums and was waited for %.1f s.", rank,
                           ls_comm_host(t->engine.comm, rank), l.times, l.seconds);
    }
}

/* What became of gradients that nobody waited for. */
static void say_tallies(const struct ls_trainer *t)
{
    const struct ls_sync_tally *all = t->stepper.sync.tallies;
    int size = all ? ls_comm_size(t->engine.comm) : 0;
    struct ls_sync_tally sum = {0};
    for (int rank = 0; rank < size; rank++) {
        sum.pushed += all[rank].pushed;
        sum.behind_sum += all[rank].behind_sum;
        sum.behind_most = all[rank].behind_most > sum.behind_most ? all[rank].behind_most : sum.behind_most;
        sum.ahead_most = all[rank].ahead_most > sum.ahead_most ? all[rank].ahead_most : sum.ahead_most;
    }
    if (sum.pushed > 0 && t->stepper.sync.ops->alone)
        ls_trainer_say(t,
                       "Staleness: %.2f updates on average, %" PRId64 " at most, over %" PRId64
                       " gradients; the fastest worker was %" PRId64 " steps ahead at most (--staleness %" PRId64 ").",
                       (double)sum.behind_sum / (double)sum.pushed, sum.behind_most, sum.pushed, sum.ahead_most,
                       t->o->staleness);
    for (int rank = 0; rank < size; rank++)
        if (all[rank].dropped > 0)
            ls_trainer_say(t,
                           "  rank %d (%s) came too late with %" PRId64 " of %" PRId64
                           " gradients, which were dropped, and left out %" PRId64 " steps to catch up.",
                           rank, ls_comm_host(t->engine.comm, rank), all[rank].dropped, all[rank].pushed,
                           all[rank].skipped);
}

static void say_end(struct ls_trainer *t)
{
    const struct ls_report *r = &t->last_eval;
    if (t->task.test)
        ls_trainer_say(t, "Final evaluation: top-1 %.2f%%, top-5 %.2f%%, loss %.4f over %" PRId64 " samples.",
                       100 * r->top1, 100 * r->top5, r->loss, r->samples);
    if (t->task.test && t->state.best_step > 0)
        ls_trainer_say(t, "Best evaluation: top-1 %.2f%% after step %" PRIu64 ", in %s/checkpoints/best.",
                       100 * t->state.best_top1, t->state.best_step, t->run);
    say_time(t);
    ls_trainer_advise(t, &t->spent);
    say_gpu(t);
    say_skipped(t);
    say_late(t);
    say_tallies(t);
    ls_trainer_say(t, "Checkpoint: %s", t->checkpoint);
    ls_trainer_say(t, "Log: %s/log.txt, metrics: %s/metrics.jsonl", t->run, t->run);
}

static enum ls_status interrupted(struct ls_trainer *t, int number)
{
    ls_console_end(&t->console);
    LS_TRY(save(t));
    LS_TRY(finish_saving(t));
    ls_trainer_say(t, "Stopped by %s after step %" PRIu64 " of %" PRId64 "; saved %s.", strsignal(number),
                   t->state.step, t->total_steps, t->checkpoint);
    say_tallies(t);
    ls_trainer_say(t, "Go on with: lockstep train --resume --run %s", t->run);
    return LS_INTERRUPTED;
}

/* The run fails by what it cannot read. All processes are at the same step, which is saved before they end. */
static enum ls_status save_before_failure(struct ls_trainer *t, enum ls_status status)
{
    if (t->state.step > 0) {
        LS_TRY(save(t));
        LS_TRY(finish_saving(t));
        ls_trainer_say(t, "Saved %s, after step %" PRIu64 " of %" PRId64 ".", t->checkpoint, t->state.step,
                       t->total_steps);
    }
    ls_trainer_say(t, "When that is mended, go on with: lockstep train --resume --run %s", t->run);
    return status;
}

/* Alone, or all in the same evaluation or before the first step. */
static enum ls_status unreadable(struct ls_trainer *t, enum ls_status status)
{
    bool all_know = t->all_know;
    ls_console_end(&t->console);
    LS_TRY(catch_up(t));
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
    s->starved = s->feed.ready && !s->feed.ready(s->feed.context, (1 + s->lags) * s->replicas.n_slices);
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

/* The signal that all stop by after this step, or 0. */
static int told_to_stop(const struct ls_trainer *t)
{
    if (!t->engine.comm)
        return ls_interrupted();
    return served(t) ? t->stepper.sync.stop : t->stepper.stop;
}

static enum ls_status run_steps(struct ls_trainer *t)
{
    LS_TRY(check_first_samples(t));
    while (steps_left(t) || epoch_over(t)) {
        LS_TRY(advance(t));
        if (told_to_stop(t) && (steps_left(t) || epoch_over(t))) {
            LS_TRY(catch_up(t));
            return LS_INTERRUPTED;
        }
    }
    return finish_run(t);
}

enum ls_status ls_trainer_run(struct ls_trainer *t)
{
    if (t->finished)
        return LS_OK;
    ls_trainer_announce(t);
    t->began = ls_now();
    watch_gpu(t);
    if (t->root)
        ls_console_begin(&t->console, t->o, t->total_steps);
    t->console.epoch = t->state.done;
    t->console.epoch_steps = t->state.done.step_in_epoch;
    ls_interrupt_watch();
    enum ls_status st = run_steps(t);
    if (st == LS_INTERRUPTED && told_to_stop(t) == LS_STOP_INPUT)
        st = starved(t);
    else if (st == LS_INTERRUPTED)
        st = interrupted(t, told_to_stop(t));
    else if (st == LS_BAD_INPUT && (!t->engine.comm || t->all_know))
        st = unreadable(t, st);
    if (st == LS_OK || st == LS_INTERRUPTED)
        ls_peers_close(&t->engine, true);
    else
        keep_saving(t);
    if (st != LS_INTERRUPTED) /* another process may have been told first: this one's signal is still to come */
        ls_interrupt_release();
    ls_console_end(&t->console);
    if (st == LS_OK)
        say_end(t);
    ls_gpu_stop(&t->gpu);
    enum ls_status closed = ls_metrics_close(&t->metrics);
    return st != LS_OK ? st : closed;
}
