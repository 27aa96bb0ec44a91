/* Throughput, and what the time goes into. */
#define _GNU_SOURCE
#include "cmd/report/sections/sections.h"

#include <math.h>

static void throughput(FILE *out, const struct ls_subject *s)
{
    struct ls_plot p = {.out = out, .title = "Throughput", .x_name = "step", .y_name = "samples/s"};
    double low = NAN, high = NAN;
    static const char *const head[] = {"run", "samples/s", "slowest part", "fastest part"};
    for (int i = 0; i < s->n_runs; i++) {
        ls_plot_include(&s->runs[i].speed, &low, &high);
        p.x1 = fmax(p.x1, ls_series_end(&s->runs[i].speed));
    }
    if (isnan(high))
        return;
    p.y1 = high;
    ls_page_figure(out, "Throughput", s->n_runs <= 3 ? "band: slowest and fastest of neighbouring steps" : NULL, false);
    ls_plot_begin(&p);
    for (int i = 0; i < s->n_runs; i++) {
        char colour[LS_FIGURE_ROOM];
        ls_plot_curve(&p, &s->runs[i].speed, s->n_runs > LS_FEW_RUNS ? 60 : 200, ls_page_colour(i, colour),
                      s->n_runs > 1 ? i : -1, s->runs[i].name, s->n_runs <= 3, false);
    }
    ls_plot_end(&p);
    if (s->n_runs > 1)
        ls_legend_of_runs(out, s, false);
    ls_page_table(out, head, 4);
    for (int i = 0; i < s->n_runs; i++) {
        double least = NAN, most = NAN;
        ls_series_range(&s->runs[i].speed, false, &least, &most);
        fputs("<tr>", out);
        ls_page_row_head(out, s->runs[i].name);
        ls_page_cell(out, ls_run_speed(&s->runs[i]));
        ls_page_cell(out, least);
        ls_page_cell(out, most);
        fputs("</tr>\n", out);
    }
    ls_page_table_end(out);
    ls_page_figure_end(out);
}

static void parts_of(const struct ls_run_view *v, struct ls_part parts[4])
{
    parts[0] = (struct ls_part){"compute", "c0", &v->compute};
    parts[1] = (struct ls_part){"input", "c4", &v->input};
    parts[2] = (struct ls_part){"waiting for workers", "c1", &v->wait};
    parts[3] = (struct ls_part){"update and rest", "c2", &v->update};
}

static void shares_table(FILE *out, const struct ls_subject *s, int from, int to)
{
    static const char *const head[] = {"run", "compute %", "input %", "waiting %", "update %", "seconds"};
    ls_page_table(out, head, 6);
    for (int i = from; i < to; i++) {
        const struct ls_run_totals *t = &s->runs[i].total;
        fputs("<tr>", out);
        ls_page_row_head(out, s->runs[i].name);
        ls_page_cell(out, 100 * t->compute / t->seconds);
        ls_page_cell(out, 100 * t->input / t->seconds);
        ls_page_cell(out, 100 * t->wait / t->seconds);
        ls_page_cell(out, 100 * t->update / t->seconds);
        ls_page_cell(out, t->seconds);
        fputs("</tr>\n", out);
    }
    ls_page_table_end(out);
}

/* Shares of a run over its steps. */
static void shares_over_steps(FILE *out, const struct ls_subject *s, int i)
{
    const struct ls_run_view *v = &s->runs[i];
    struct ls_part parts[4];
    struct ls_plot p = {
        .out = out, .title = "Where the time goes", .x_name = "step", .y_name = "% of the time", .y1 = 100};
    p.x1 = ls_series_end(&v->compute);
    if (p.x1 <= 0)
        return;
    parts_of(v, parts);
    ls_page_figure(out, "Where the time goes", s->n_runs > 1 ? v->name : "of rank 0", false);
    ls_plot_begin(&p);
    ls_plot_stack(&p, parts, 4);
    ls_plot_end(&p);
    ls_plot_legend(out, parts, 4);
    shares_table(out, s, i, i + 1);
    ls_page_figure_end(out);
}

/* Shares of all runs as bars, at most as many as can be read. */
static void shares_of_runs(FILE *out, const struct ls_subject *s)
{
    enum { MOST = 40 };
    const char *names[MOST];
    double values[4 * MOST];
    struct ls_part parts[4];
    int n = 0;
    for (int i = 0; i < s->n_runs && n < MOST; i++) {
        const struct ls_run_totals *t = &s->runs[i].total;
        if (!(t->seconds > 0))
            continue;
        double all = t->seconds / 100;
        double row[] = {t->compute / all, t->input / all, t->wait / all, t->update / all};
        for (int k = 0; k < 4; k++)
            values[4 * n + k] = row[k];
        names[n++] = s->runs[i].name;
    }
    if (n == 0)
        return;
    parts_of(&s->runs[0], parts);
    ls_page_figure(out, "Where the time goes", "shares of the training time, each run without its first step", false);
    ls_plot_bars(out, "Shares of the training time", names, n, parts, 4, values, 100, "%");
    ls_plot_legend(out, parts, 4);
    shares_table(out, s, 0, s->n_runs);
    ls_page_figure_end(out);
}

/* With --sync cutoff: how many gradients steps waited for. */
static void cutoff(FILE *out, const struct ls_subject *s, int i)
{
    const struct ls_run_view *v = &s->runs[i];
    struct ls_plot p = {.out = out, .title = "Gradients of a step", .x_name = "step", .y_name = "gradients"};
    static const char *const head[] = {"run", "fewest", "most"};
    char colour[LS_FIGURE_ROOM];
    double least = NAN, most = NAN;
    ls_series_range(&v->cutoff_k, true, &least, &most);
    if (isnan(most))
        return;
    p.x1 = ls_series_end(&v->cutoff_k);
    p.y1 = most;
    ls_page_figure(out, "Gradients of a step", s->n_runs > 1 ? v->name : "those that --sync cutoff waited for", false);
    ls_plot_begin(&p);
    ls_plot_curve(&p, &v->cutoff_k, 200, ls_page_colour(i, colour), -1, v->name, true, false);
    ls_plot_end(&p);
    ls_page_table(out, head, 3);
    fputs("<tr>", out);
    ls_page_row_head(out, v->name);
    ls_page_cell(out, least);
    ls_page_cell(out, most);
    fputs("</tr>\n", out);
    ls_page_table_end(out);
    ls_page_figure_end(out);
}

void ls_figures_speed(FILE *out, const struct ls_subject *s)
{
    throughput(out, s);
    if (s->n_runs > 1)
        shares_of_runs(out, s);
    for (int i = 0; i < s->n_runs && s->n_runs <= LS_COLUMNS && !s->is_sweep; i++)
        shares_over_steps(out, s, i);
    for (int i = 0; i < s->n_runs && s->n_runs <= LS_COLUMNS && !s->is_sweep; i++)
        cutoff(out, s, i);
}
