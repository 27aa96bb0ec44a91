/* Rules about learning, damaged files, several runs and results of bench. */
#include "cmd/report/findings.h"
#include "cmd/report/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A loss above this share of ln(classes), that of guessing, at the end: nothing was learned. */
#define GUESSING 0.97
/* An evaluation is worse than the best by this many points of error: training went on for too long. */
#define WORSE_POINTS 1.0
/* Validation error above training error by this many points. */
#define GAP_POINTS 10.0
/* The second half of a run is slower than the first by this factor. */
#define SLOWED 0.8
#define WORTH_SECONDS 30 /* in a shorter run that is noise */
/* Repetitions scatter by more than this (coefficient of variation): the machine was not quiet. */
#define NOISY 0.05
/* Scaling below this efficiency is poor. */
#define POOR 0.7

/* --- learning ---------------------------------------------------------------------------------------------------- */

static void say_divergence(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    const char *rate = ls_run_option(v, "lr");
    ls_remark(r, LS_REMARK_BAD, run, "Training diverged: the loss is not finite from step %" PRId64 " on.",
              v->diverged_step);
    if (rate)
        ls_remark_figures(r, "--lr is %s. The plots mark the gap.", rate);
    ls_remark_advise(r, "Lower --lr, or begin with --warmup gradual:5; with --dtype fp16 leave --loss-scale out.");
}

static void say_result(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    char a[LS_FIGURE_ROOM], b[LS_FIGURE_ROOM], c[LS_FIGURE_ROOM];
    if (isnan(v->best_top1))
        return;
    ls_remark(r, LS_REMARK_GOOD, run,
              "Top-1 error %.2f %% at the last evaluation, %.2f %% at the best, after step %" PRId64 ".", v->last_top1,
              v->best_top1, v->best_step);
    ls_remark_figures(r, "Top-5 error %s %%, loss %s, in %s.", ls_figure(v->last_top5, a), ls_figure(v->final_loss, b),
                      ls_figure_time(ls_run_wall(v), c));
}

static void say_overfitting(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    double train = ls_series_tail(&v->top1);
    if (v->last_top1 > v->best_top1 + WORSE_POINTS)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "The last evaluation is worse than the best by %.1f points: the checkpoint `best` is the one to use.",
                  v->last_top1 - v->best_top1);
    if (v->last_top1 > train + GAP_POINTS) {
        ls_remark(r, LS_REMARK_WARNING, run,
                  "The network overfits: %.1f %% error on training data, %.1f %% on validation data.", train,
                  v->last_top1);
        ls_remark_advise(
            r, "More augmentation (--augment), more --weight-decay, --label-smoothing 0.1, or a smaller model.");
    }
}

/* Compares the speed of the two halves of a run. */
static void say_slowing(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    struct ls_point points[LS_SERIES_BUCKETS];
    char a[LS_FIGURE_ROOM], b[LS_FIGURE_ROOM];
    int n = ls_series_points(&v->speed, 64, points);
    double halves[2] = {0};
    for (int i = 0; i < n / 2 * 2 && n >= 16; i++)
        halves[i >= n / 2] += 1 / points[i].mean;
    for (int k = 0; k < 2; k++) /* the harmonic mean, because a half is as long in steps as the other */
        halves[k] = n / 2 / halves[k];
    if (n < 16 || v->total.seconds < WORTH_SECONDS || !(halves[1] < SLOWED * halves[0]))
        return;
    ls_remark(r, LS_REMARK_WARNING, run, "The run slowed down: %s samples/s in its first half, %s in its second.",
              ls_figure(halves[0], a), ls_figure(halves[1], b));
    ls_remark_advise(r, "Look for other programs on the machine, heat (a lower clock), or storage that filled up.");
}

void ls_findings_learning(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    const char *loss = ls_run_option(v, "loss");
    double last = ls_series_tail(&v->loss);
    bool xent = !loss || strcmp(loss, "xent") == 0;
    if (v->diverged_step >= 0)
        say_divergence(v, run, r);
    else if (xent && v->n_epochs > 0 && v->classes > 1 && last > GUESSING * log(v->classes)) {
        ls_remark(r, LS_REMARK_BAD, run,
                  "The network learned nothing: its loss, %.3f, is that of guessing among %.0f classes (%.3f).", last,
                  v->classes, log(v->classes));
        ls_remark_advise(r, "Lower --lr, add --warmup gradual:5, or check the labels with `lockstep data`.");
    }
    if (!run) /* a table compares several runs */
        say_result(v, run, r);
    if (v->diverged_step < 0)
        say_overfitting(v, run, r);
    say_slowing(v, run, r);
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static void say_state(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    if (v->is_running)
        ls_remark(r, LS_REMARK_NOTE, run, "This run is still running; the page shows it up to step %" PRId64 ".",
                  v->last_step);
    else if (v->has_log && v->exit_code == -1) {
        ls_remark(r, LS_REMARK_WARNING, run, "This run ended without a word: it was killed, or the machine failed.");
        ls_remark_advise(r, "lockstep train --run %s --resume", v->path);
    } else if (v->exit_code == 75)
        ls_remark(r, LS_REMARK_NOTE, run, "This run was stopped after saving, at step %" PRId64 "; --resume goes on.",
                  v->last_step);
    else if (v->exit_code > 0 && v->exit_code != 5)
        ls_remark(r, LS_REMARK_BAD, run, "This run failed with exit code %d; the end of log.txt says why.",
                  v->exit_code);
}

void ls_findings_files(const struct ls_run_view *v, const char *run, struct ls_remarks *r)
{
    const struct ls_metrics_tally *t = &v->tally;
    say_state(v, run, r);
    if (!v->has_config)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "config.yaml is missing or cannot be read: the options of this run are unknown.");
    if (!v->has_log)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "log.txt is missing: model, hardware and the end of this run are unknown.");
    if (!v->has_metrics)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "metrics.jsonl is missing or has no metrics yet: there is nothing to plot.");
    if (t->broken > 0)
        ls_remark(r, LS_REMARK_WARNING, run,
                  "metrics.jsonl is damaged: %" PRId64 " of %" PRId64 " lines are left out, line %" PRId64 " first.",
                  t->broken, t->lines, t->first_broken);
    if (t->is_cut && !v->is_running)
        ls_remark(r, LS_REMARK_NOTE, run, "The last line of metrics.jsonl is incomplete and left out.");
    if (t->other > 0)
        ls_remark(r, LS_REMARK_NOTE, run,
                  "%" PRId64 " lines of metrics.jsonl are of a kind that this version does not know.", t->other);
    if (v->old_lines > 0)
        ls_remark(r, LS_REMARK_NOTE, run,
                  "%" PRId64 " lines of metrics.jsonl are from an older version: they have no time of day.",
                  v->old_lines);
    if (v->has_metrics && v->n_steps == 0)
        ls_remark(r, LS_REMARK_NOTE, run, "metrics.jsonl has no lines of steps: curves have one point an epoch.");
    if (v->has_metrics && v->n_evals == 0 && v->diverged_step < 0)
        ls_remark(r, LS_REMARK_NOTE, run, "This run was not evaluated: there are no validation curves.");
}

/* --- several runs ------------------------------------------------------------------------------------------------ */

static double speed_of(const struct ls_run_view *v)
{
    return v->total.seconds > 0 ? v->total.samples / v->total.seconds : NAN;
}

void ls_findings_compare(const struct ls_subject *s, struct ls_remarks *r)
{
    const struct ls_run_view *best = NULL, *lowest = NULL, *fastest = NULL;
    int diverged = 0;
    for (int i = 0; i < s->n_runs; i++) {
        const struct ls_run_view *v = &s->runs[i];
        diverged += v->diverged_step >= 0;
        if (isfinite(v->best_top1) && (!best || v->best_top1 < best->best_top1))
            best = v;
        if (isfinite(v->final_loss) && v->diverged_step < 0 && (!lowest || v->final_loss < lowest->final_loss))
            lowest = v;
        if (isfinite(speed_of(v)) && v->diverged_step < 0 && (!fastest || speed_of(v) > speed_of(fastest)))
            fastest = v;
    }
    char a[LS_FIGURE_ROOM];
    if (best)
        ls_remark(r, LS_REMARK_GOOD, NULL, "The best of %d runs is %s: top-1 error %.2f %%.", s->n_runs, best->name,
                  best->best_top1);
    if (best && lowest && lowest != best)
        ls_remark_figures(r, "The lowest final loss has %s: %s.", lowest->name, ls_figure(lowest->final_loss, a));
    if (!best && lowest)
        ls_remark(r, LS_REMARK_GOOD, NULL, "The lowest final loss of %d runs has %s: %s.", s->n_runs, lowest->name,
                  ls_figure(lowest->final_loss, a));
    if (fastest)
        ls_remark(r, LS_REMARK_NOTE, NULL, "The fastest run is %s: %s samples/s.", fastest->name,
                  ls_figure(speed_of(fastest), a));
    if (diverged > 0)
        ls_remark(r, LS_REMARK_BAD, NULL, "%d of %d runs diverged.", diverged, s->n_runs);
}

/* --- bench ------------------------------------------------------------------------------------------------------- */

void ls_findings_bench(const struct ls_bench_file *b, struct ls_remarks *r)
{
    const struct ls_measured *fastest = NULL, *widest = NULL, *noisiest = NULL;
    for (int i = 0; i < b->n_rows; i++) {
        const struct ls_measured *row = &b->rows[i];
        if (!fastest || row->stats.median > fastest->stats.median)
            fastest = row;
        if (isfinite(row->efficiency) && (!widest || row->workers > widest->workers))
            widest = row;
        if (row->stats.n > 1 && (!noisiest || row->stats.variation > noisiest->stats.variation))
            noisiest = row;
    }
    if (widest && widest->workers > 1) {
        ls_remark(r, widest->efficiency < POOR ? LS_REMARK_WARNING : LS_REMARK_GOOD, b->name,
                  "%s scales to %" PRId64 " workers with %.0f %% efficiency: %.2f times as fast.", widest->label,
                  widest->workers, 100 * widest->efficiency, widest->speedup);
        if (widest->efficiency < POOR)
            ls_remark_advise(r, "`lockstep bench --profile --workers %" PRId64 "` shows what the workers wait for.",
                             widest->workers);
    }
    char a[LS_FIGURE_ROOM];
    if (fastest)
        ls_remark(r, LS_REMARK_NOTE, b->name,
                  "The fastest setting is %s%s%s, batch %" PRId64 ", %" PRId64 " worker%s: %s samples/s.",
                  fastest->model, *fastest->setting ? ", " : "", fastest->setting, fastest->batch, fastest->workers,
                  fastest->workers == 1 ? "" : "s", ls_figure(fastest->stats.median, a));
    if (noisiest && noisiest->stats.variation > NOISY) {
        ls_remark(r, LS_REMARK_WARNING, b->name, "The repetitions scatter: coefficient of variation %.1f %% (%s).",
                  100 * noisiest->stats.variation, noisiest->label);
        ls_remark_advise(r, "Measure on a machine without other programs, with more --repeat or --steps.");
    }
}
