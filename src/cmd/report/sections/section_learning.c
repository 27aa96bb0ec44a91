/* Curves of loss, errors and learning rate: all runs in one plot, and each run by itself. */
#define _GNU_SOURCE
#include "cmd/report/sections/sections.h"

#include <math.h>
#include <string.h>

/* One quantity: its curves of training and of evaluation within a run. */
struct quantity {
    const char *title, *y_name, *note;
    size_t train, eval; /* offsets of curves; 0: none */
};

static const struct quantity quantities[] = {
    {"Loss", "loss", NULL, offsetof(struct ls_run_view, loss), offsetof(struct ls_run_view, eval_loss)},
    {"Top-1 error", "%", NULL, offsetof(struct ls_run_view, top1), offsetof(struct ls_run_view, eval_top1)},
    {"Top-5 error", "%", NULL, offsetof(struct ls_run_view, top5), offsetof(struct ls_run_view, eval_top5)},
    {"Learning rate", "rate", NULL, offsetof(struct ls_run_view, rate), 0},
};

static const struct ls_series *curve_at(const struct ls_run_view *v, size_t offset)
{
    return (const struct ls_series *)((const char *)v + offset);
}

/* A loss that is many times the first one diverges. It leaves the frame, so that the other curves can be read. */
static double highest(const struct ls_subject *s, const struct quantity *q, double high)
{
    double first = 0;
    for (int i = 0; i < s->n_runs && q->eval; i++) {
        struct ls_point points[LS_SERIES_BUCKETS];
        if (ls_series_points(curve_at(&s->runs[i], q->train), 0, points) > 0 && points[0].mean > first)
            first = points[0].mean;
    }
    return first > 0 ? fmin(high, 3 * first) : high;
}

/* What the positions of a run are multiplied by: runs of different batches are compared over samples, others over
 * steps. */
static double factor_of(const struct ls_subject *s, int run)
{
    double first = NAN, own = 1;
    bool differ = false;
    for (int i = 0; i < s->n_runs; i++) {
        const struct ls_run_totals *t = &s->runs[i].total;
        double batch = s->runs[i].n_steps > 1 && t->steps > 0 ? t->samples / (double)t->steps : 0;
        if (!(batch > 0)) /* unknown, as without lines of steps */
            return 1;
        first = isnan(first) ? batch : first;
        differ |= fabs(batch - first) > 0.05 * first;
        own = i == run ? batch : own;
    }
    return differ ? own : 1;
}

static bool all_diverged(const struct ls_subject *s)
{
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].diverged_step < 0)
            return false;
    return true;
}

/* The range of a quantity over runs; false if none has it. The rate of a diverged run may be far above the others: it
 * leaves the frame. */
static bool frame(const struct ls_subject *s, const struct quantity *q, struct ls_plot *p)
{
    double low = NAN, high = NAN;
    bool all = q->eval || all_diverged(s), over_samples = false;
    for (int i = 0; i < s->n_runs; i++) {
        if (!all && s->runs[i].diverged_step >= 0)
            continue;
        ls_plot_include(curve_at(&s->runs[i], q->train), &low, &high);
        if (q->eval)
            ls_plot_include(curve_at(&s->runs[i], q->eval), &low, &high);
        double factor = factor_of(s, i);
        over_samples |= factor != 1;
        p->x1 = fmax(p->x1, factor * ls_series_end(curve_at(&s->runs[i], q->train)));
        if (q->eval)
            p->x1 = fmax(p->x1, factor * ls_series_end(curve_at(&s->runs[i], q->eval)));
    }
    if (p->x1 <= 0)
        return false;
    p->x1 *= 1.015; /* room for the last dot */
    high = highest(s, q, high);
    p->log_y = low > 0 && high > 60 * low && strcmp(q->y_name, "%") != 0 && q->eval;
    p->y0 = p->log_y ? low : q->eval == 0 ? fmin(0, low) : low;
    p->y1 = high;
    p->x_name = over_samples ? "samples" : "step";
    p->y_name = q->y_name;
    p->title = q->title;
    return true;
}

static void draw(struct ls_plot *p, const struct ls_subject *s, const struct quantity *q, int i)
{
    const struct ls_run_view *v = &s->runs[i];
    bool alone = s->n_runs == 1;
    int most = 9000 / s->n_runs;
    char colour[LS_FIGURE_ROOM], train[LS_FIGURE_ROOM + 16], name[320];
    most = most > 300 ? 300 : most < 40 ? 40 : most;
    p->x_factor = factor_of(s, i);
    ls_page_colour(alone ? 0 : i, colour);
    snprintf(train, sizeof train, "%s%s", colour,
             q->eval && !alone         ? " train"
             : s->n_runs > LS_FEW_RUNS ? " many"
                                       : "");
    snprintf(name, sizeof name, "%s%straining", alone ? "" : v->name, alone ? "" : ", ");
    ls_plot_curve(p, curve_at(v, q->train), most, train, alone ? -1 : i, q->eval ? name : v->name, s->n_runs <= 3,
                  false);
    if (!q->eval)
        return;
    snprintf(name, sizeof name, "%s%svalidation", alone ? "" : v->name, alone ? "" : ", ");
    ls_plot_curve(p, curve_at(v, q->eval), most, alone ? "c1" : colour, alone ? -1 : i, name, false,
                  s->n_runs <= LS_GRID_RUNS);
}

/* --- tables ------------------------------------------------------------------------------------------------------ */

static void table_row(FILE *out, const struct ls_run_view *v, bool named, const struct ls_point *train,
                      const struct ls_point *eval)
{
    fputs("<tr>", out);
    if (named)
        ls_page_row_head(out, v->name);
    ls_page_cell(out, train ? train->x_last : eval->x);
    ls_page_cell(out, train ? train->mean : NAN);
    ls_page_cell(out, train ? train->min : NAN);
    ls_page_cell(out, train ? train->max : NAN);
    ls_page_cell(out, eval ? eval->mean : NAN);
    fputs("</tr>\n", out);
}

/* Some twenty rows a run: points of training with the evaluation that falls into each. */
static void table(FILE *out, const struct ls_subject *s, const struct quantity *q)
{
    static const char *const head[] = {"run", "step", "training, mean", "least", "most", "validation"};
    struct ls_point train[LS_SERIES_BUCKETS], eval[LS_SERIES_BUCKETS];
    bool named = s->n_runs > 1;
    int rows = s->n_runs > 20 ? 5 : s->n_runs > 4 ? 10 : 20;
    ls_page_table(out, head + !named, 6 - !named);
    for (int i = 0; i < s->n_runs; i++) {
        int n = ls_series_points(curve_at(&s->runs[i], q->train), rows, train);
        int of_eval = q->eval ? ls_series_points(curve_at(&s->runs[i], q->eval), rows, eval) : 0, k = 0;
        for (int j = 0; j < n; j++) {
            const struct ls_point *found = NULL;
            while (k < of_eval && eval[k].x <= train[j].x_last)
                found = &eval[k++];
            table_row(out, &s->runs[i], named, &train[j], found);
        }
        for (; k < of_eval; k++)
            table_row(out, &s->runs[i], named, NULL, &eval[k]);
    }
    ls_page_table_end(out);
}

/* --- figures ----------------------------------------------------------------------------------------------------- */

void ls_legend_of_runs(FILE *out, const struct ls_subject *s, bool has_eval)
{
    struct ls_part parts[LS_LEGEND_RUNS];
    char colours[LS_LEGEND_RUNS][LS_FIGURE_ROOM];
    if (s->n_runs == 1) {
        struct ls_part two[] = {{"training", "c0", NULL}, {"validation", "c1", NULL}};
        ls_plot_legend(out, two, has_eval ? 2 : 1);
        return;
    }
    int n = s->n_runs < LS_LEGEND_RUNS ? s->n_runs : 0;
    for (int i = 0; i < n; i++)
        parts[i] = (struct ls_part){s->runs[i].name, ls_page_colour(i, colours[i]), NULL};
    ls_plot_legend(out, parts, n);
}

static void overlay(FILE *out, const struct ls_subject *s, const struct quantity *q)
{
    struct ls_plot p = {.out = out};
    bool has_eval = false;
    if (!frame(s, q, &p))
        return;
    for (int i = 0; i < s->n_runs && q->eval; i++)
        has_eval |= curve_at(&s->runs[i], q->eval)->buckets != NULL;
    const char *note = !q->eval        ? NULL
                       : s->n_runs > 1 ? "thin: training; dots: validation"
                       : has_eval      ? "band: least and most of neighbouring steps"
                                       : NULL;
    ls_page_figure(out, q->title, note, false);
    ls_plot_begin(&p);
    for (int i = 0; i < s->n_runs; i++)
        draw(&p, s, q, i);
    ls_plot_end(&p);
    if (q->eval || s->n_runs > 1)
        ls_legend_of_runs(out, s, has_eval);
    table(out, s, q);
    ls_page_figure_end(out);
}

/* Each run by itself, on the axes of all. */
static void small_multiples(FILE *out, const struct ls_subject *s, const struct quantity *q)
{
    struct ls_plot all = {.out = out, .is_small = true};
    if (!frame(s, q, &all))
        return;
    fprintf(out, "<h3>%s, each run by itself</h3>\n<div class=\"grid dense\">\n", q->title);
    for (int i = 0; i < s->n_runs; i++) {
        struct ls_plot p = all;
        fprintf(out, "<figure data-run=\"%d\">\n<figcaption><strong>", i);
        ls_page_text(out, s->runs[i].name);
        fputs("</strong></figcaption>\n", out);
        ls_plot_begin(&p);
        draw(&p, s, q, i);
        ls_plot_end(&p);
        ls_page_figure_end(out);
    }
    fputs("</div>\n", out);
}

void ls_section_curves(FILE *out, const struct ls_subject *s)
{
    bool any = false, evals = false;
    for (int i = 0; i < s->n_runs; i++) {
        any |= s->runs[i].has_metrics;
        evals |= s->runs[i].n_evals > 0;
    }
    if (!any)
        return;
    ls_page_section(out, "curves", "Curves");
    fputs("<div class=\"grid\">\n", out);
    for (size_t k = 0; k < sizeof quantities / sizeof *quantities; k++)
        overlay(out, s, &quantities[k]);
    ls_figures_speed(out, s);
    fputs("</div>\n", out);
    if (s->n_runs > 1 && s->n_runs <= LS_GRID_RUNS)
        small_multiples(out, s, &quantities[evals ? 1 : 0]);
    ls_page_section_end(out);
}
