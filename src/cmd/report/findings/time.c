/* The rules that say what limits a run. Of the causes that reach their threshold the one with the largest share of the
 * time is named; if none does, computing is the limit. */
#include "cmd/report/findings/findings.h"
#include "cmd/report/page.h"
#include "cmd/report/time_shares.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Shares of the training time from which a cause counts. */
#define INPUT_SHARE 0.15  /* waiting for input */
#define LATE_SHARE 0.10   /* waiting for one late rank, by the others */
#define WAIT_SHARE 0.15   /* waiting for communication, or for ranks that are late in turn */
#define UPDATE_SHARE 0.25 /* updates, which a step pays whatever its batch is */
/* A rank is the late one if it is waited for longer than the next one, by this part of all waiting for late ranks. */
#define CULPRIT_PART 0.5
/* A rank is slow in a part of a step if it takes this many times the median of the other ranks. */
#define SLOWER 1.15
/* A link is slow below 1 Gbit/s, if a collective takes longer than a round trip explains. */
#define SLOW_LINK 125e6
#define SHORT_CALL 1e-3
/* Communication is not hidden if less than this part of it is behind computing. */
#define HIDDEN_PART 0.1
/* A step with fewer operations than this for each byte of weights that it moves is limited by memory: the batch is too
 * small. Forward and backward take 6 operations for a multiply-add; gradient, weight and momentum make 20 bytes a
 * parameter. */
#define OPERATIONS_PER_BYTE 10.0
#define OPERATIONS_PER_MULTIPLY_ADD 6.0
#define BYTES_PER_PARAMETER 20.0
/* A batch that waits shorter than this for its input, in seconds, waits for the scheduler and not for data. */
#define HAND_OVER 0.02
/* Without the size of the model: fewer samples than this a rank and step. */
#define FEW_SAMPLES 4.0
/* A card below this utilisation, in percent, has nothing to do for much of the time. */
#define IDLE_CARD 60.0

/* --- the causes -------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over the ranks but one of a member of struct ls_rank_view, per step. */
static double median_of_others(const struct ls_run_view *v, int but, size_t member)
{
    double list[LS_RUN_RANKS];
    int n = 0;
    for (int i = 0; i < v->n_ranks; i++)
        if (i != but && v->ranks[i].is_there && v->ranks[i].steps > 0)
            list[n++] = *(const double *)((const char *)&v->ranks[i] + member) / (double)v->ranks[i].steps;
    if (n == 0)
        return NAN;
    qsort(list, (size_t)n, sizeof *list, ascending);
    return 0.5 * (list[(n - 1) / 2] + list[n / 2]);
}

/* Says why a rank is late: the part of a step in which it is slower than the others. */
static void explain_culprit(const struct ls_time_shares *t, struct ls_remarks *r)
{
    const struct ls_rank_view *k = &t->run->ranks[t->culprit];
    double steps = (double)(k->steps > 0 ? k->steps : 1), input = k->input / steps, compute = k->compute / steps;
    double input_of = median_of_others(t->run, t->culprit, offsetof(struct ls_rank_view, input));
    double compute_of = median_of_others(t->run, t->culprit, offsetof(struct ls_rank_view, compute));
    char a[LS_FIGURE_ROOM], b[LS_FIGURE_ROOM];
    if (input - input_of > compute - compute_of && input > SLOWER * input_of) {
        ls_remark_figures(r, "It waits %s a step for its input, the others %s.", ls_figure_time(input, a),
                          ls_figure_time(input_of, b));
        ls_remark_advise(r, "Give rank %d its data from a faster place, or more --loader-threads.", t->culprit);
    } else if (compute > SLOWER * compute_of) {
        ls_remark_figures(r, "It computes %s a step, the others %s: %.2f times as long.", ls_figure_time(compute, a),
                          ls_figure_time(compute_of, b), compute / compute_of);
        ls_remark_advise(
            r,
            "Look at host %s: other programs, fewer cores or a lower clock; `lockstep doctor` on it checks "
            "these. --sync cutoff --cutoff-k auto goes on without late ranks.",
            *k->host ? k->host : "of that rank");
    } else {
        ls_remark_figures(r,
                          "Its input and its computing take as long as those of the others (%s and %s a step): it is "
                          "held up between steps.",
                          ls_figure_time(input, a), ls_figure_time(compute, b));
        ls_remark_advise(r, "Look for other programs on host %s, and for checkpoints or logs on slow storage.",
                         *k->host ? k->host : "of that rank");
    }
}

static void say_late(const struct ls_time_shares *t, const char *run, struct ls_remarks *r)
{
    const struct ls_rank_view *k = &t->run->ranks[t->culprit];
    char share[LS_FIGURE_ROOM];
    ls_remark(r, LS_REMARK_LIMIT, run,
              "A late rank limits this run: the others wait %s of their time for rank %d%s%s%s.",
              ls_figure_share(t->culprit_share, share), t->culprit, *k->host ? " (" : "", k->host, *k->host ? ")" : "");
    explain_culprit(t, r);
}

static void say_input(const struct ls_time_shares *t, const char *run, struct ls_remarks *r)
{
    char share[LS_FIGURE_ROOM], now[LS_FIGURE_ROOM], could[LS_FIGURE_ROOM];
    double speed = t->run->total.seconds > 0 ? t->run->total.samples / t->run->total.seconds : NAN;
    const char *threads = ls_run_option(t->run, "loader-threads");
    bool few = threads && strcmp(threads, "0") != 0;
    ls_remark(r, LS_REMARK_LIMIT, run, "Input limits this run: it waits %s of its time for samples.",
              ls_figure_share(t->input, share));
    ls_remark_figures(r, "%s samples/s are trained; %s would be if input took no time.", ls_figure(speed, now),
                      ls_figure(speed / (1 - fmin(t->input, 0.999)), could));
    if (few)
        ls_remark_advise(
            r,
            "Leave out --loader-threads %s, so that the number is chosen by measuring. Put the data on faster "
            "storage, or store images no larger than --input needs.",
            threads);
    else
        ls_remark_advise(
            r, "Put the data on faster storage, store images no larger than --input needs, or give the run more "
               "cores.");
}

/* The batch with which a step is worth its weights. */
static double enough(const struct ls_run_view *v)
{
    double least =
        OPERATIONS_PER_BYTE * BYTES_PER_PARAMETER * v->parameters / (OPERATIONS_PER_MULTIPLY_ADD * v->multiply_adds);
    return isfinite(least) ? exp2(ceil(log2(fmax(least, 1)))) : NAN;
}

static bool is_small(const struct ls_time_shares *t)
{
    double least = enough(t->run);
    return t->batch > 0 && (isnan(least) ? t->batch < FEW_SAMPLES : t->batch < least / 2 || t->batch < FEW_SAMPLES);
}

static void advise_batch(const struct ls_time_shares *t, struct ls_remarks *r)
{
    double least = enough(t->run), ranks = t->ranks;
    double batch = exp2(ceil(log2(fmax(isnan(least) ? 32 : least, 4 * t->batch)))) * ranks;
    ls_remark_advise(r, "Raise --batch to %.0f or more; --lr-per-256 adapts the learning rate to it.", batch);
}

static void say_small_batch(const struct ls_time_shares *t, const char *run, struct ls_remarks *r)
{
    double least = enough(t->run), update = t->update;
    char a[LS_FIGURE_ROOM], b[LS_FIGURE_ROOM];
    ls_remark(r, LS_REMARK_LIMIT, run, "The batch is too small: a step works on %s sample%s%s.", ls_figure(t->batch, a),
              t->batch > 1 ? "s" : "", t->ranks > 1 ? " a worker" : "");
    if (update >= UPDATE_SHARE)
        ls_remark_figures(r, "Updates, which cost the same with any batch, take %s of the time.",
                          ls_figure_share(update, a));
    else if (isfinite(least))
        ls_remark_figures(
            r,
            "Each step reads and writes all %s parameters; from about %s samples a worker on, computing takes "
            "longer than that.",
            ls_figure(t->run->parameters, a), ls_figure(least, b));
    advise_batch(t, r);
}

static void say_link(const struct ls_time_shares *t, const char *run, struct ls_remarks *r)
{
    char share[LS_FIGURE_ROOM], speed[LS_FIGURE_ROOM], each[LS_FIGURE_ROOM];
    ls_remark(r, LS_REMARK_LIMIT, run, "A slow link limits this run: it waits %s of its time for communication.",
              ls_figure_share(t->exposed, share));
    ls_remark_figures(r, "Gradients travel at %s/s, %s a collective; 1 Gbit/s would be 125 MB/s.",
                      ls_figure_bytes(t->bytes_per_s, speed), ls_figure_time(t->seconds_a_call, each));
    ls_remark_advise(
        r, "Use the faster network if the hosts have one (`lockstep doctor` measures every pair), send less with "
           "--compress fp16 or 1bit, less often with --sync local, or raise --batch.");
}

/* Other strategies than overlap communicate when computing has ended. */
static bool say_not_hidden(const struct ls_time_shares *t, const char *run, struct ls_remarks *r)
{
    const char *sync = ls_run_option(t->run, "sync");
    char share[LS_FIGURE_ROOM], hidden[LS_FIGURE_ROOM];
    if (!sync || strcmp(sync, "overlap") == 0 || t->late > t->exposed || is_small(t) ||
        t->hidden > HIDDEN_PART * (t->exposed + t->hidden))
        return false;
    ls_remark(r, LS_REMARK_LIMIT, run,
              "Communication limits this run: it waits %s of its time, and --sync %s hides none of it.",
              ls_figure_share(t->exposed, share), sync);
    ls_remark_figures(r, "Communication behind computing takes %s of the time.", ls_figure_share(t->hidden, hidden));
    ls_remark_advise(
        r, "--sync overlap sends gradients while backward computes; a larger --batch communicates less often.");
    return true;
}

static void say_communication(const struct ls_time_shares *t, const char *run, struct ls_remarks *r)
{
    char share[LS_FIGURE_ROOM], speed[LS_FIGURE_ROOM], each[LS_FIGURE_ROOM];
    double waits = t->exposed + t->late;
    if (t->has_ranks && t->bytes_per_s < SLOW_LINK && t->seconds_a_call > SHORT_CALL && t->exposed >= t->late) {
        say_link(t, run, r);
        return;
    }
    if (!t->has_ranks) {
        double all = t->run->total.wait, late = t->run->late_seconds;
        if (t->run->late_rank >= 0 && late >= CULPRIT_PART * all) {
            ls_remark(r, LS_REMARK_LIMIT, run, "A late rank limits this run: rank %d was waited for %.1f s.",
                      t->run->late_rank, late);
            ls_remark_figures(r, "Waiting for other workers takes %s of the time.", ls_figure_share(waits, share));
            ls_remark_advise(
                r, "Look at the host of that rank: other programs, fewer cores, slow storage; `lockstep doctor` "
                   "checks these.");
            return;
        }
        ls_remark(r, LS_REMARK_LIMIT, run, "Communication limits this run: it waits %s of its time for other workers.",
                  ls_figure_share(waits, share));
        ls_remark_figures(r, "metrics.jsonl has no lines of ranks, which would tell late ranks from a slow network.");
        ls_remark_advise(
            r, "Raise --batch, or compress gradients with --compress; `lockstep doctor` measures the network.");
        return;
    }
    if (say_not_hidden(t, run, r))
        return;
    if (t->late > t->exposed && !is_small(t)) {
        ls_remark(r, LS_REMARK_LIMIT, run,
                  "Uneven ranks limit this run: they wait %s of their time for each other, in turn.",
                  ls_figure_share(t->late, share));
        ls_remark_figures(r, "No rank is the late one: each holds up the others now and then.");
        ls_remark_advise(
            r, "Look for other programs on the hosts and for more threads than cores (`lockstep doctor`); a larger "
               "--batch evens out steps.");
        return;
    }
    ls_remark(r, LS_REMARK_LIMIT, run,
              "The batch is too small: %s samples a worker do not hide communication, which takes %s of the time.",
              ls_figure(t->batch, speed), ls_figure_share(waits, share));
    if (isfinite(t->bytes_per_s))
        ls_remark_figures(r, "The network is not the cause: %s/s, %s a collective.",
                          ls_figure_bytes(t->bytes_per_s, speed), ls_figure_time(t->seconds_a_call, each));
    advise_batch(t, r);
}

/* What a pipeline waits for is the other stages. */
static void say_pipeline(const struct ls_time_shares *t, const char *run, struct ls_remarks *r)
{
    char share[LS_FIGURE_ROOM];
    const char *idle = ls_run_fact(t->run, "idle");
    ls_remark(r, LS_REMARK_LIMIT, run, "Idle stages limit this run: they wait %s of their time for each other.",
              ls_figure_share(t->exposed + t->late, share));
    ls_remark_figures(r, "Pipeline: %s%s", idle ? idle : ls_run_fact(t->run, "pipeline"), idle ? "" : ".");
    ls_remark_advise(
        r, "More passes a step (--replicas, --accumulate) leave less time idle. Processes that share cores wait for "
           "their turns, too. `lockstep plan --parallel auto` compares the layouts.");
}

static void say_compute(const struct ls_time_shares *t, const char *run, struct ls_remarks *r)
{
    char share[LS_FIGURE_ROOM], speed[LS_FIGURE_ROOM];
    ls_remark(r, LS_REMARK_LIMIT, run, "Computing limits this run: forward and backward take %s of its time.",
              ls_figure_share(t->compute, share));
    ls_remark_figures(r, "%s samples/s. Input, communication and updates are not in the way.",
                      ls_figure(t->run->total.samples / t->run->total.seconds, speed));
    ls_remark_advise(
        r,
        "To go faster, use more workers or cards, or --dtype bf16 where the hardware has it; `lockstep bench --profile` "
        "shows each layer's time.");
}

static double utilisation(const struct ls_run_view *v)
{
    double sum = 0, weight = 0, low, high;
    for (int i = 0; i < v->n_ranks; i++) {
        sum += v->ranks[i].gpu_sum;
        weight += v->ranks[i].gpu_weight;
    }
    if (weight > 0)
        return sum / weight;
    return ls_series_range(&v->gpu, false, &low, &high) ? 0.5 * (low + high) : NAN;
}

/* Names the cause with the largest share of those that reach their thresholds. */
void ls_findings_time(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    struct ls_time_shares t = ls_time_shares_of(v, CULPRIT_PART);
    if (!(t.seconds > 0))
        return;
    bool staged = ls_run_fact(v, "pipeline") != NULL;
    double late = t.culprit >= 0 && t.culprit_share >= LATE_SHARE && !staged ? t.culprit_share : 0;
    /* With a tiny batch, steps are so short that handing a batch over between threads, or a few steps in which the loader
     * has no core, make a large share: the batch is the cause. */
    bool hiccups =
        is_small(&t) && v->n_steps > 0 &&
        (ls_run_typical_input(v) < INPUT_SHARE || t.input * v->total.seconds < HAND_OVER * (double)v->total.steps);
    double input = t.input >= INPUT_SHARE && !hiccups ? t.input : 0;
    double waits = t.exposed + (late > 0 ? 0 : t.late), update = t.update >= UPDATE_SHARE ? t.update : 0;
    waits = waits >= WAIT_SHARE ? waits : 0;
    double most = fmax(fmax(late, input), fmax(waits, update));
    double busy = utilisation(v);
    if (most > 0 && most == late)
        say_late(&t, run, r);
    else if (most > 0 && most == input)
        say_input(&t, run, r);
    else if (most > 0 && most == waits && staged)
        say_pipeline(&t, run, r);
    else if (most > 0 && most == waits)
        say_communication(&t, run, r);
    else if (most > 0 || is_small(&t) || busy < IDLE_CARD)
        say_small_batch(&t, run, r);
    else
        say_compute(&t, run, r);
    if (busy < IDLE_CARD)
        ls_remark(r, LS_REMARK_WARNING, run, "The cards are busy for %.0f %% of the time only.", busy);
}
