/* Rules about several runs, and about results of bench. */
#include "cmd/report/findings/findings.h"
#include "cmd/report/page.h"

#include <inttypes.h>
#include <math.h>

/* Repetitions scatter by more than this (coefficient of variation): the machine was not quiet. */
#define NOISY 0.05
/* Scaling below this efficiency is poor. */
#define POOR 0.7

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
