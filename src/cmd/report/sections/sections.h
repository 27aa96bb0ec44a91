/* The sections of the page, in order. Each writes nothing where there is nothing to show. */
#ifndef LS_CMD_REPORT_SECTIONS_H
#define LS_CMD_REPORT_SECTIONS_H

#include "cmd/report/findings/findings.h"
#include "cmd/report/page.h"
#include "cmd/report/plot.h"

/* More runs than this are compared in tables and bars; pictures of single runs would be too many. */
enum { LS_COLUMNS = 4, LS_FEW_RUNS = 8, LS_LEGEND_RUNS = 12, LS_GRID_RUNS = 24 };

void ls_section_findings(FILE *out, const struct ls_remarks *r);
void ls_section_facts(FILE *out, const struct ls_subject *s);
void ls_section_curves(FILE *out, const struct ls_subject *s);
/* The colours of runs, or those of training and validation where there is one run; none if runs are too many. */
void ls_legend_of_runs(FILE *out, const struct ls_subject *s, bool has_eval);
/* The figures of speed, within the section of curves. */
void ls_figures_speed(FILE *out, const struct ls_subject *s);
void ls_section_ranks(FILE *out, const struct ls_subject *s);
enum ls_status ls_section_sweep(FILE *out, const struct ls_subject *s);
void ls_section_confusion(FILE *out, const struct ls_subject *s);
void ls_section_bench(FILE *out, const struct ls_subject *s);
void ls_section_profile(FILE *out, const struct ls_bench_file *b);

/* A heat map of a value over two options; values[row * columns + column], NaN: none. Low is good. lost marks diverged
 * ones. */
struct ls_heat {
    const char *title, *x_name, *y_name;
    const char *const *columns, *const *rows;
    int n_columns, n_rows;
    const double *values;
    const bool *lost;
};
void ls_plot_heat(FILE *out, const struct ls_heat *h);

/* The mean samples a second without the first step; NaN: unknown. */
double ls_run_speed(const struct ls_run_view *v);
/* The area under the curve of the training loss over samples, divided by its width, so that runs of any batch and
 * length compare. NaN: no loss, or diverged. */
double ls_run_area(const struct ls_run_view *v);

#endif
