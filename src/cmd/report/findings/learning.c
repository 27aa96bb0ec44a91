/* Rules about how a run learned. */
#include "cmd/report/findings/findings.h"
#include "cmd/report/page.h"

#include <inttypes.h>
#include <math.h>
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
