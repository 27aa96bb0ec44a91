/* Results of bench: scaling beside the ideal line, efficiency, scatter. */
#define _GNU_SOURCE
#include "cmd/report/sections/sections.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_ROWS = 40, MOST_LINES = 12 };

/* The rows of the label of row `first`, by workers. Returns their number; 0 if an earlier row has the label. */
static int rows_of(const struct ls_bench_file *b, int first, int rows[MOST_ROWS])
{
    int n = 0;
    for (int i = 0; i < b->n_rows && n < MOST_ROWS; i++) {
        if (strcmp(b->rows[i].label, b->rows[first].label) != 0)
            continue;
        if (i < first)
            return 0;
        int at = n++;
        for (; at > 0 && b->rows[rows[at - 1]].workers > b->rows[i].workers; at--)
            rows[at] = rows[at - 1];
        rows[at] = i;
    }
    return n;
}

static void table(FILE *out, const struct ls_bench_file *b)
{
    static const char *const head[] = {"setting",     "batch",    "threads",      "workers",
                                       "nodes",       "median",   "mean",         "deviation",
                                       "variation %", "speed-up", "efficiency %", "repetitions"};
    fputs("<div class=\"card\"><div class=\"scroll\"><table><thead><tr>", out);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        fprintf(out, "<th scope=\"col\"%s>%s</th>", i == 0 ? " class=\"t\"" : "", head[i]);
    fputs("</tr></thead><tbody>\n", out);
    int best = 0;
    for (int i = 1; i < b->n_rows; i++)
        best = b->rows[i].stats.median > b->rows[best].stats.median ? i : best;
    for (int i = 0; i < b->n_rows; i++) {
        const struct ls_measured *r = &b->rows[i];
        fprintf(out, "<tr%s>", i == best && b->n_rows > 1 ? " class=\"best\"" : "");
        ls_page_row_head(out, r->label);
        fprintf(out, "<td>%" PRId64 "</td><td>%" PRId64 "</td><td>%" PRId64 "</td><td>%" PRId64 "</td>", r->batch,
                r->threads, r->workers, r->nodes);
        ls_page_cell(out, r->stats.median);
        ls_page_cell(out, r->stats.mean);
        ls_page_cell(out, r->stats.deviation);
        ls_page_cell(out, 100 * r->stats.variation);
        ls_page_cell(out, r->speedup);
        ls_page_cell(out, 100 * r->efficiency);
        fputs("<td>", out);
        for (int k = 0; k < r->n_repetitions; k++) {
            char text[LS_FIGURE_ROOM];
            fprintf(out, "%s%s", k ? "; " : "", ls_figure(r->repetitions[k], text));
        }
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></div></div>\n", out);
}

/* The distinct numbers of workers. */
static int worker_counts(const struct ls_bench_file *b, double counts[MOST_ROWS])
{
    int n = 0;
    for (int i = 0; i < b->n_rows && n < MOST_ROWS; i++) {
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = counts[k] == (double)b->rows[i].workers;
        if (!known)
            counts[n++] = (double)b->rows[i].workers;
    }
    return n;
}

/* Is each worker on a node of its own? */
static bool is_over_nodes(const struct ls_bench_file *b)
{
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].nodes != b->rows[i].workers)
            return false;
    return true;
}

/* Samples per second, efficiency, or variation over workers, a line for each label. */
static void over_workers(FILE *out, const struct ls_bench_file *b, const char *title, const char *note,
                         const char *y_name, int which)
{
    struct ls_plot p = {
        .out = out, .title = title, .x_name = "workers", .y_name = y_name, .x0 = 1e9, .y0 = 0, .y1 = which ? 1 : 0};
    int rows[MOST_ROWS], lines = 0;
    double lowest = INFINITY;
    struct ls_part legend[MOST_LINES + 1];
    char colours[MOST_LINES][LS_FIGURE_ROOM];
    for (int i = 0; i < b->n_rows; i++) {
        const struct ls_measured *r = &b->rows[i];
        double y = which == 0 ? r->stats.median : which == 1 ? 100 * r->efficiency : 100 * r->stats.variation;
        p.x0 = fmin(p.x0, (double)r->workers);
        p.x1 = fmax(p.x1, (double)r->workers);
        p.y1 = isfinite(y) ? fmax(p.y1, y) : p.y1;
        if (which == 0 && r->efficiency > 0 && isfinite(y / r->efficiency))
            p.y1 = fmax(p.y1, y / r->efficiency); /* the ideal line stays within the frame */
        lowest = y > 0 ? fmin(lowest, y) : lowest;
    }
    if (p.x1 <= p.x0)
        return;
    if (which == 1)
        p.y1 = fmax(p.y1, 100);
    p.log_y = which == 0 && p.y1 > 20 * lowest; /* nets of different size, or many workers */
    if (p.log_y) {
        p.y0 = lowest / 1.3;
        p.y1 *= 1.3;
    }
    double ticks[MOST_ROWS];
    p.n_x_ticks = worker_counts(b, ticks);
    p.x_ticks = ticks;
    p.log_x = p.x0 > 0;
    p.x0 *= 0.93;
    p.x1 *= 1.07;
    p.x_name = is_over_nodes(b) ? "nodes" : p.x_name;
    ls_page_figure(out, title, note, false);
    ls_plot_begin(&p);
    for (int i = 0; i < b->n_rows && lines < MOST_LINES; i++) {
        double x[MOST_ROWS], y[MOST_ROWS], ideal[MOST_ROWS];
        int n = rows_of(b, i, rows);
        if (n < 2)
            continue;
        const struct ls_measured *first = &b->rows[rows[0]];
        for (int k = 0; k < n; k++) {
            const struct ls_measured *r = &b->rows[rows[k]];
            x[k] = (double)r->workers;
            y[k] = which == 0 ? r->stats.median : which == 1 ? 100 * r->efficiency : 100 * r->stats.variation;
            ideal[k] = which == 0 ? first->stats.median * x[k] / x[0] : 100;
        }
        ls_page_colour(lines, colours[lines]);
        if (which < 2)
            ls_plot_points(&p, x, ideal, n, "ideal", -1, lines == 0 ? "ideal" : NULL, false);
        ls_plot_points(&p, x, y, n, colours[lines], -1, first->label, true);
        legend[lines] = (struct ls_part){first->label, colours[lines], NULL};
        lines++;
    }
    ls_plot_end(&p);
    if (which < 2)
        legend[lines] = (struct ls_part){"dashed: ideal", "c7", NULL};
    ls_plot_legend(out, legend, lines + (which < 2));
    ls_page_figure_end(out);
}

/* Do model and batch tell all rows apart? */
static bool is_told_by_model(const struct ls_bench_file *b)
{
    for (int i = 0; i < b->n_rows; i++)
        for (int k = 0; k < i; k++)
            if (b->rows[i].batch == b->rows[k].batch && strcmp(b->rows[i].model, b->rows[k].model) == 0)
                return false;
    return true;
}

/* Where nothing scales: the median of each setting. */
static void medians(FILE *out, const struct ls_bench_file *b)
{
    static const struct ls_part part = {"median", "c0", NULL}, scatter = {"variation", "c4", NULL};
    const char *names[MOST_ROWS];
    double values[MOST_ROWS], variation[MOST_ROWS], most = 0, widest = 1;
    char rooms[MOST_ROWS][LS_FIGURE_ROOM];
    int n = b->n_rows < MOST_ROWS ? b->n_rows : MOST_ROWS;
    bool told = is_told_by_model(b);
    for (int i = 0; i < n; i++) {
        snprintf(rooms[i], sizeof rooms[i], "%.24s %" PRId64, told ? b->rows[i].model : b->rows[i].label,
                 b->rows[i].batch);
        names[i] = rooms[i];
        values[i] = b->rows[i].stats.median;
        variation[i] = 100 * b->rows[i].stats.variation;
        most = fmax(most, values[i]);
        widest = fmax(widest, variation[i]);
    }
    if (n < 2)
        return;
    ls_page_figure(out, "Speed of each setting",
                   told ? "model and batch; median of the repetitions" : "setting and batch; median of the repetitions",
                   false);
    ls_plot_bars(out, "Speed of each setting", names, n, &part, 1, values, most, "samples/s");
    ls_page_figure_end(out);
    ls_page_figure(out, "Scatter of the repetitions", "coefficient of variation", false);
    ls_plot_bars(out, "Scatter of the repetitions", names, n, &scatter, 1, variation, widest, "%");
    ls_page_figure_end(out);
}

static bool scales(const struct ls_bench_file *b)
{
    for (int i = 0; i < b->n_rows; i++)
        if (isfinite(b->rows[i].efficiency))
            return true;
    return false;
}

void ls_section_bench(FILE *out, const struct ls_subject *s)
{
    for (int i = 0; i < s->n_benches; i++) {
        const struct ls_bench_file *b = &s->benches[i];
        char id[LS_FIGURE_ROOM], title[512];
        snprintf(id, sizeof id, "bench-%d", i);
        snprintf(title, sizeof title, "Measured speed: %s", b->name);
        ls_page_section(out, id, title);
        if (b->machine) {
            fputs("<p>", out);
            ls_page_text(out, b->machine);
            fputs("</p>\n", out);
        }
        if (b->n_rows > 0) {
            table(out, b);
            fputs("<p></p><div class=\"grid\">\n", out);
            if (scales(b)) {
                over_workers(out, b, "Scaling", "median of the repetitions", "samples/s", 0);
                over_workers(out, b, "Efficiency", "speed-up divided by the number of workers", "%", 1);
                over_workers(out, b, "Scatter of the repetitions", "coefficient of variation", "%", 2);
            } else {
                medians(out, b);
            }
            fputs("</div>\n", out);
        }
        ls_section_profile(out, b);
        ls_page_section_end(out);
    }
}
