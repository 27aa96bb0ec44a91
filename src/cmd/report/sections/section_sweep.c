/* Several runs with different options: heat maps over two options, the areas under the loss curves. */
#define _GNU_SOURCE
#include "cmd/report/sections/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_RUNS = 4, MOST_CELLS = 4096, MOST_MAPS = 8, MOST_BARS = 24 };

/* --- the picture ------------------------------------------------------------------------------------------------- */

/* A figure with as many digits as a cell has room for. */
static const char *fitted(double value, double width, char text[LS_FIGURE_ROOM])
{
    if (width >= 52 || isnan(value))
        return ls_figure(value, text);
    snprintf(text, LS_FIGURE_ROOM, "%.*g", width >= 40 ? 3 : 2, value);
    return width >= 30 ? text : "";
}

static void heat_cell(FILE *out, const struct ls_heat *h, int row, int column, const double box[4], double low,
                      double high)
{
    int i = row * h->n_columns + column;
    double value = h->values[i], share = high > low ? (value - low) / (high - low) : 0;
    char text[LS_FIGURE_ROOM];
    bool lost = h->lost[i] && isnan(value);
    fprintf(out, "<rect %s x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
            isnan(value) ? "class=\"none\"" : "class=\"cell\"", box[0], box[1], box[2], box[3]);
    if (!isnan(value))
        fprintf(out, " fill-opacity=\"%.2f\"", 1 - 0.92 * share); /* dark is good */
    fputs("><title>", out);
    ls_page_print(out, "%s %s, %s %s: %s", h->y_name, h->rows[row], h->x_name, h->columns[column],
                  lost ? "diverged" : ls_figure(value, text));
    fprintf(out, "</title></rect><text class=\"mid%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
            !isnan(value) && share < 0.5 ? " on" : "", box[0] + box[2] / 2, box[1] + box[3] / 2 + 4,
            lost ? "✕" : fitted(value, box[2], text));
    if (value == low)
        fprintf(out, "<rect class=\"best\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", box[0] + 2,
                box[1] + 2, box[2] - 4, box[3] - 4);
}

void ls_plot_heat(FILE *out, const struct ls_heat *h)
{
    enum { LEFT = 84, TOP = 22, ROW = 34 };
    double low = NAN, high = NAN, wide = (double)(LS_PLOT_WIDTH - LEFT - 4) / h->n_columns;
    wide = fmin(wide, 120);
    int bottom = TOP + h->n_rows * ROW;
    for (int i = 0; i < h->n_rows * h->n_columns; i++) {
        low = fmin(low, h->values[i]);
        high = fmax(high, h->values[i]);
    }
    fprintf(out, "<svg class=\"plot heat\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", LS_PLOT_WIDTH,
            bottom + 36);
    ls_page_text(out, h->title);
    fputs("\">\n<text x=\"2\" y=\"12\">", out);
    ls_page_text(out, h->y_name);
    fputs("</text>\n", out);
    for (int row = 0; row < h->n_rows; row++) {
        fprintf(out, "<text class=\"ty\" x=\"%d\" y=\"%d\">", LEFT - 8, TOP + row * ROW + ROW / 2 + 4);
        ls_page_short(out, h->rows[row], 12);
        fputs("</text>\n", out);
        for (int column = 0; column < h->n_columns; column++)
            heat_cell(out, h, row, column, (double[]){LEFT + column * wide, TOP + row * ROW, wide, ROW}, low, high);
    }
    for (int column = 0; column < h->n_columns; column++) {
        fprintf(out, "<text class=\"mid\" x=\"%.1f\" y=\"%d\">", LEFT + (column + 0.5) * wide, bottom + 15);
        ls_page_short(out, h->columns[column], 12);
        fputs("</text>\n", out);
    }
    fprintf(out, "<text class=\"mid\" x=\"%.1f\" y=\"%d\">", LEFT + h->n_columns * wide / 2, bottom + 32);
    ls_page_text(out, h->x_name);
    fputs("</text></svg>\n", out);
}

static void heat_table(FILE *out, const struct ls_heat *h)
{
    fputs("<details><summary>Table</summary><div class=\"scroll\"><table><thead><tr><th scope=\"col\">", out);
    ls_page_print(out, "%s \\ %s", h->y_name, h->x_name);
    fputs("</th>", out);
    for (int i = 0; i < h->n_columns; i++) {
        fputs("<th scope=\"col\">", out);
        ls_page_text(out, h->columns[i]);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    for (int row = 0; row < h->n_rows; row++) {
        fputs("<tr>", out);
        ls_page_row_head(out, h->rows[row]);
        for (int i = 0; i < h->n_columns; i++)
            ls_page_cell(out, h->values[row * h->n_columns + i]);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div></details>\n", out);
}

/* --- which options ------------------------------------------------------------------------------------------------ */

/* The options of a sweep in the order in which they make the better axis: batch and rate first, the seed never. */
static int rank_of(const struct ls_varied *a)
{
    static const char *const first[] = {"lr", "batch", "workers", "model"};
    for (int i = 0; i < 4; i++)
        if (strcmp(a->name, first[i]) == 0)
            return i;
    return strcmp(a->name, "seed") == 0 ? 100 : 10;
}

static const struct ls_varied *pick(const struct ls_subject *s, const struct ls_varied *not1,
                                    const struct ls_varied *not2)
{
    const struct ls_varied *best = NULL;
    for (int i = 0; i < s->n_varied; i++) {
        const struct ls_varied *a = &s->varied[i];
        if (a == not1 || a == not2 || rank_of(a) == 100 || a->n_values > 64)
            continue;
        if (!best || rank_of(a) < rank_of(best))
            best = a;
    }
    return best;
}

static int index_of(const struct ls_varied *axis, const struct ls_run_view *v)
{
    const char *value = ls_varied_value(axis, v);
    for (int i = 0; i < axis->n_values; i++)
        if (axis->values[i] == value)
            return i;
    return -1;
}

typedef double quality(const struct ls_run_view *v);

static double final_loss(const struct ls_run_view *v)
{
    return v->diverged_step >= 0 ? NAN : v->final_loss;
}

static double best_error(const struct ls_run_view *v)
{
    return v->diverged_step >= 0 ? NAN : v->best_top1;
}

struct cells {
    double sums[MOST_CELLS], counts[MOST_CELLS];
    bool lost[MOST_CELLS];
};

/* One map: the mean over the runs of each cell. `third` chooses runs with one of its values; NULL: all. */
static enum ls_status heat_map(FILE *out, const struct ls_subject *s, const char *title, quality *of,
                               const struct ls_varied *x, const struct ls_varied *y, const struct ls_varied *third,
                               int value)
{
    static const char *const one[] = {"all runs"};
    int rows = y ? y->n_values : 1, cells = rows * x->n_values, any = 0;
    char note[256] = "mean over the runs of a cell; dark is good, the best is framed";
    if (cells > MOST_CELLS)
        return LS_OK;
    struct cells *c = ls_alloc(1, sizeof *c);
    if (!c)
        return LS_FAILED;
    for (int i = 0; i < s->n_runs; i++) {
        int column = index_of(x, &s->runs[i]), row = y ? index_of(y, &s->runs[i]) : 0;
        if (column < 0 || row < 0 || (third && index_of(third, &s->runs[i]) != value))
            continue;
        int cell = row * x->n_values + column;
        double q = of(&s->runs[i]);
        c->lost[cell] |= s->runs[i].diverged_step >= 0;
        c->sums[cell] += isfinite(q) ? q : 0;
        c->counts[cell] += isfinite(q);
        any += isfinite(q);
    }
    for (int i = 0; i < cells; i++)
        c->sums[i] = c->counts[i] > 0 ? c->sums[i] / c->counts[i] : NAN;
    if (third)
        snprintf(note, sizeof note, "%s %s; dark is good, the best is framed", third->name, third->values[value]);
    struct ls_heat h = {title,       x->name, y ? y->name : "", x->values, y ? y->values : one,
                        x->n_values, rows,    c->sums,          c->lost};
    if (any > 0) {
        ls_page_figure(out, title, note, false);
        ls_plot_heat(out, &h);
        heat_table(out, &h);
        ls_page_figure_end(out);
    }
    ls_free(c);
    return LS_OK;
}

static enum ls_status heat_maps(FILE *out, const struct ls_subject *s, const char *title, quality *of)
{
    const struct ls_varied *x = pick(s, NULL, NULL), *y = x ? pick(s, x, NULL) : NULL,
                           *third = y ? pick(s, x, y) : NULL;
    if (!x)
        return LS_OK;
    if (third && third->n_values > MOST_MAPS)
        third = NULL;
    for (int i = 0; i < (third ? third->n_values : 1); i++)
        LS_TRY(heat_map(out, s, title, of, x, y, third, i));
    return LS_OK;
}

/* --- areas ------------------------------------------------------------------------------------------------------- */

struct named {
    const char *name;
    double value;
};

static int by_value(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

static void area_bars(FILE *out, const struct named *list, int n)
{
    static const struct ls_part part = {"area", "c0", NULL};
    const char *names[MOST_BARS], *head[] = {"run", "area under the loss curve"};
    double values[MOST_BARS], most = 0;
    for (int i = 0; i < n && i < MOST_BARS; i++) {
        names[i] = list[i].name;
        values[i] = list[i].value;
        most = fmax(most, values[i]);
    }
    ls_page_figure(out, "Area under the loss curve of each run",
                   n > MOST_BARS ? "the 24 smallest; small is good" : "small is good", false);
    ls_plot_bars(out, "Area under the loss curve of each run", names, n < MOST_BARS ? n : MOST_BARS, &part, 1, values,
                 most > 0 ? most : 1, "loss");
    ls_page_table(out, head, 2);
    for (int i = 0; i < n; i++) {
        fputs("<tr>", out);
        ls_page_row_head(out, list[i].name);
        ls_page_cell(out, list[i].value);
        fputs("</tr>\n", out);
    }
    ls_page_table_end(out);
    ls_page_figure_end(out);
}

static enum ls_status areas(FILE *out, const struct ls_subject *s)
{
    struct named *list = ls_alloc((size_t)s->n_runs, sizeof *list);
    double *values = ls_alloc((size_t)s->n_runs, sizeof *values);
    enum ls_status st = list && values ? LS_OK : LS_FAILED;
    int n = 0;
    for (int i = 0; st == LS_OK && i < s->n_runs; i++) {
        double area = ls_run_area(&s->runs[i]);
        if (isfinite(area))
            list[n++] = (struct named){s->runs[i].name, area};
    }
    if (n > 0) {
        qsort(list, (size_t)n, sizeof *list, by_value);
        for (int i = 0; i < n; i++)
            values[i] = list[i].value;
        ls_page_figure(out, "Areas under the loss curves", "how many runs have which area; diverged runs are left out",
                       false);
        ls_plot_histogram(out, "Histogram of the areas under the loss curves", values, n,
                          "area divided by its width, loss");
        ls_page_figure_end(out);
        area_bars(out, list, n);
    }
    ls_free(list);
    ls_free(values);
    return st;
}

enum ls_status ls_section_sweep(FILE *out, const struct ls_subject *s)
{
    if (s->n_runs < 2 || (s->n_runs < LEAST_RUNS && !s->is_sweep))
        return LS_OK;
    ls_page_section(out, "sweep", "Options against results");
    fputs("<div class=\"grid\">\n", out);
    enum ls_status st = heat_maps(out, s, "Final loss", final_loss);
    if (st == LS_OK)
        st = heat_maps(out, s, "Best top-1 error in percent", best_error);
    if (st == LS_OK)
        st = areas(out, s);
    fputs("</div>\n", out);
    ls_page_section_end(out);
    return st;
}
