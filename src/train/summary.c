/* What a run says at its end: accuracy, where the time went, and which ranks were late. */
#include "base/system/clock.h"
#include "train/trainer.h"
#include "exec/pipeline/pipeline.h"

#include <inttypes.h>

/* The epoch, from 1, that ended with a step or contains it. */
static uint64_t epoch_of(const struct ls_trainer *t, uint64_t step)
{
    uint64_t each = (uint64_t)t->steps_per_epoch;
    return (step + each - 1) / each;
}

/* The highest accuracies of all evaluations of the run, its earlier jobs included. */
static void say_best(const struct ls_trainer *t)
{
    const struct ls_state *s = &t->state;
    if (!t->task.test || s->best_step == 0)
        return;
    ls_trainer_say(t,
                   "Best evaluation: top-1 %.2f%% after step %" PRIu64 " (epoch %" PRIu64
                   "), in %s/checkpoints/best; best top-5 %.2f%% in epoch %" PRIu64 ".",
                   100 * s->best_top1, s->best_step, epoch_of(t, s->best_step), t->run, 100 * s->best_top5,
                   epoch_of(t, s->best_top5_step));
}

/* Means over the steps of this job. The first step is slow: it touches all memory for the first time. */
static void say_steps(const struct ls_trainer *t)
{
    const struct ls_report *r = &t->spent;
    int64_t steps = t->ranks.totals[0].steps;
    if (steps < 1)
        return;
    double rest = steps > 1 ? (r->seconds - t->ranks.first) / (double)(steps - 1) : r->seconds;
    ls_trainer_say(t, "Steps: %" PRId64 "; average loss %.4f, top-1 %.2f%%, top-5 %.2f%%; %.6g s per iteration%s.",
                   steps, r->loss, 100 * r->top1, 100 * r->top5, rest, steps > 1 ? " without the first" : "");
}

/* Of all jobs that trained this run, one after the other. */
static void say_jobs(const struct ls_trainer *t)
{
    char all[32];
    if (t->state.jobs < 2)
        return;
    ls_format_duration(t->seconds_before + ls_now() - t->began, all);
    ls_trainer_say(t, "In all: %" PRIu64 " steps by %" PRId64 " jobs in %s.", t->state.step, t->state.jobs, all);
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
    struct ls_loss_scale now;
    if (!t->root || t->engine.backend->queue->get_scale(t->engine.train.program, &now) != LS_OK || now.skipped == 0)
        return;
    ls_trainer_say(t, "Loss scale: %d steps were left out because a gradient was not finite%s.", now.skipped,
                   now.scale > 0 ? "" : "; a lower --loss-scale, or none, would leave out fewer");
}

/* The ranks that others waited for. */
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

/* How many gradients the steps of this job counted: "8 in 61.0%, 7 in 30.0%, 6 in 9.0%". */
static void say_cutoff(const struct ls_trainer *t, const struct ls_sync_tally *server)
{
    int workers = ls_comm_size(t->engine.comm) - ls_sync_servers(t->o, ls_comm_size(t->engine.comm));
    int64_t steps = 0;
    char text[256] = "";
    size_t used = 0;
    double sum = 0;
    for (int i = 0; i < LS_TALLY_WITHOUT; i++)
        steps += server->without[i];
    for (int i = 0; steps > 0 && i < LS_TALLY_WITHOUT && used < sizeof text; i++) {
        double share = (double)server->without[i] / (double)steps;
        sum += share * (workers - i);
        if (server->without[i] > 0)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d%s in %.1f%%", used ? ", " : "", workers - i,
                                     i == LS_TALLY_WITHOUT - 1 ? " or fewer" : "", 100 * share);
    }
    if (steps > 0)
        ls_trainer_say(t, "Cut-off: %.2f of %d gradients on average over %" PRId64 " steps; %s of the steps.", sum,
                       workers, steps, text);
}

void ls_trainer_say_tallies(const struct ls_trainer *t)
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
    if (sum.pushed > 0 && t->engine.strategy->local_mean)
        ls_trainer_say(t,
                       "Staleness: %.2f updates on average, %" PRId64 " at most, over %" PRId64
                       " gradients; the fastest worker was %" PRId64 " steps ahead at most (--staleness %" PRId64 ").",
                       (double)sum.behind_sum / (double)sum.pushed, sum.behind_most, sum.pushed, sum.ahead_most,
                       t->o->staleness);
    if (size > 0 && t->o->cutoff_k <= LS_FLOOR_AUTO)
        say_cutoff(t, &all[size - 1]);
    for (int rank = 0; rank < size; rank++)
        if (all[rank].dropped > 0)
            ls_trainer_say(t,
                           "  rank %d (%s) came too late with %" PRId64 " of %" PRId64
                           " gradients, which were dropped, and left out %" PRId64 " steps to catch up.",
                           rank, ls_comm_host(t->engine.comm, rank), all[rank].dropped, all[rank].pushed,
                           all[rank].skipped);
}

/* How long the stages of a pipeline had nothing to do. */
static void say_bubble(const struct ls_trainer *t)
{
    char text[LS_MOST_STAGES * 8] = "";
    size_t used = 0;
    if (!t->engine.pipeline)
        return;
    for (int i = 0; i < t->engine.pipeline->stages; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.1f%%", i ? ", " : "", 100 * t->busy[i]);
    ls_trainer_say(t, "Pipeline: idle %.1f%% of the time, %.1f%% with stages of equal work; stages were busy %s.",
                   100 * t->bubble, 100 * t->least_bubble, text);
}

void ls_trainer_summary(struct ls_trainer *t)
{
    const struct ls_report *r = &t->last_eval;
    if (t->task.test)
        ls_trainer_say(t, "Final evaluation: top-1 %.2f%%, top-5 %.2f%%, loss %.4f over %" PRId64 " samples.",
                       100 * r->top1, 100 * r->top5, r->loss, r->samples);
    say_best(t);
    say_steps(t);
    say_time(t);
    say_jobs(t);
    say_bubble(t);
    ls_trainer_advise(t, &t->spent);
    say_gpu(t);
    say_skipped(t);
    ls_broken_say(t);
    say_late(t);
    ls_ranks_say(t);
    ls_trainer_say_tallies(t);
    ls_trainer_say(t, "Checkpoint: %s", t->checkpoint);
    ls_trainer_say(t, "Log: %s/log.txt, metrics: %s/metrics.jsonl", t->run, t->run);
}
