/* bench --profile: the nodes of a step, and how near each is to what the machine can do. */
#define _GNU_SOURCE
#include "cmd/report/sections/sections.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_BARS = 24 };

static int slowest_first(const void *a, const void *b)
{
    const struct ls_bench_node *x = *(const struct ls_bench_node *const *)a,
                               *y = *(const struct ls_bench_node *const *)b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

/* The least milliseconds that this machine needs for a node; NaN: its peaks are not in the file. */
static double roof_of(const struct ls_bench_file *b, const struct ls_bench_node *k)
{
    if (!(b->peak_bytes > 0))
        return NAN;
    return 1e3 * fmax(k->bytes / b->peak_bytes, k->operations / b->peak_operations);
}

static void bars(FILE *out, const struct ls_bench_file *b, const struct ls_bench_node *const *nodes, double all)
{
    static const struct ls_part part = {"time", "c0", NULL};
    static const char *const head[] = {"layer", "operation",         "ms",           "share %", "Gop/s",
                                       "GB/s",  "operations a byte", "of roofline %"};
    char rooms[MOST_BARS][LS_FIGURE_ROOM];
    const char *names[MOST_BARS];
    double values[MOST_BARS], most = 1e-9;
    int n = b->n_nodes, shown = n < MOST_BARS ? n : MOST_BARS;
    for (int i = 0; i < shown; i++) {
        snprintf(rooms[i], sizeof rooms[i], "%.14s %.24s", nodes[i]->layer, nodes[i]->op);
        names[i] = rooms[i];
        values[i] = nodes[i]->ms;
        most = fmax(most, values[i]);
    }
    ls_page_figure(out, "Time of each layer",
                   n > shown ? "the 24 longest nodes of a step" : "the nodes of a step, the longest first", false);
    ls_plot_bars(out, "Time of each layer", names, shown, &part, 1, values, most, "ms");
    ls_page_table(out, head, b->peak_bytes > 0 ? 8 : 7);
    for (int i = 0; i < n; i++) {
        const struct ls_bench_node *k = nodes[i];
        fputs("<tr>", out);
        ls_page_row_head(out, k->layer);
        ls_page_cell_text(out, k->op);
        ls_page_cell(out, k->ms);
        ls_page_cell(out, 100 * k->ms / all);
        ls_page_cell(out, k->operations > 0 ? k->operations / k->ms / 1e6 : NAN);
        ls_page_cell(out, k->bytes / k->ms / 1e6);
        ls_page_cell(out, k->operations > 0 ? k->operations / k->bytes : NAN);
        if (b->peak_bytes > 0)
            ls_page_cell(out, 100 * roof_of(b, k) / k->ms);
        fputs("</tr>\n", out);
    }
    ls_page_table_end(out);
    ls_page_figure_end(out);
}

static bool is_computing(const struct ls_bench_node *k)
{
    return k->operations > 0 && k->bytes > 0 && k->ms > 0;
}

/* "measured: 12.3 GB/s and 45.6 Gop/s; the step reaches 78 % of its roofline" */
static void caption(const struct ls_bench_file *b, char *text, size_t room)
{
    double roof = 0, ms = 0;
    for (int i = 0; i < b->n_nodes; i++) {
        roof += roof_of(b, &b->nodes[i]);
        ms += b->nodes[i].ms;
    }
    if (b->peak_bytes > 0)
        snprintf(
            text, room,
            "dots: layers; dashed: the measured peaks of the machine, %.4g GB/s and %.4g Gop/s; the step reaches %.0f %% of "
            "its roofline",
            b->peak_bytes / 1e9, b->peak_operations / 1e9, ms > 0 ? 100 * roof / ms : 0);
    else
        snprintf(text, room,
                 "dots: layers; dashed: the most operations and bytes a second that any node of the step reaches");
}

/* The roof is what the machine reaches. Files of older versions do not say that: there it is what the best node of the step
 * reaches, as many operations, or as many bytes, a second. */
static void roofline(FILE *out, const struct ls_bench_file *b, const struct ls_bench_node *const *nodes)
{
    struct ls_plot p = {.out = out,
                        .title = "Roofline",
                        .x_name = "operations a byte",
                        .y_name = "Gop/s",
                        .x0 = INFINITY,
                        .y0 = INFINITY,
                        .log_x = true,
                        .log_y = true};
    double operations = b->peak_operations / 1e9, bytes = b->peak_bytes / 1e9;
    int shown = 0, n = b->n_nodes;
    bool known = bytes > 0;
    char text[256];
    for (int i = 0; i < n; i++) {
        const struct ls_bench_node *k = nodes[i];
        if (k->ms > 0 && !known)
            bytes = fmax(bytes, k->bytes / k->ms / 1e6);
        if (!is_computing(k))
            continue;
        double speed = k->operations / k->ms / 1e6, density = k->operations / k->bytes;
        if (!known)
            operations = fmax(operations, speed);
        p.x0 = fmin(p.x0, density);
        p.x1 = fmax(p.x1, density);
        p.y0 = fmin(p.y0, speed);
        p.y1 = fmax(p.y1, speed);
        shown++;
    }
    if (shown < 2 || !(bytes > 0))
        return;
    p.x0 /= 2;
    p.x1 *= 2;
    p.y0 /= 2;
    p.y1 = 1.6 * fmax(p.y1, fmin(operations, bytes * p.x1));
    double x[64], roof[64];
    for (int i = 0; i < 64; i++) {
        x[i] = p.x0 * pow(p.x1 / p.x0, i / 63.0);
        roof[i] = fmin(operations, bytes * x[i]);
    }
    caption(b, text, sizeof text);
    ls_page_figure(out, "Roofline", text, false);
    ls_plot_begin(&p);
    ls_plot_points(&p, x, roof, 64, "ideal", -1, NULL, false);
    for (int i = 0; i < n; i++) {
        char name[LS_FIGURE_ROOM];
        if (!is_computing(nodes[i]))
            continue;
        double at = nodes[i]->operations / nodes[i]->bytes, speed = nodes[i]->operations / nodes[i]->ms / 1e6;
        snprintf(name, sizeof name, "%.10s %.24s", nodes[i]->layer, nodes[i]->op);
        ls_plot_points(&p, &at, &speed, 1, "c0", -1, name, true);
    }
    ls_plot_end(&p);
    ls_page_figure_end(out);
}

void ls_section_profile(FILE *out, const struct ls_bench_file *b)
{
    double all = 0;
    const struct ls_bench_node **nodes = b->n_nodes > 0 ? ls_alloc((size_t)b->n_nodes, sizeof *nodes) : NULL;
    if (!nodes)
        return;
    for (int i = 0; i < b->n_nodes; i++) {
        nodes[i] = &b->nodes[i];
        all += b->nodes[i].ms;
    }
    qsort(nodes, (size_t)b->n_nodes, sizeof *nodes, slowest_first);
    fputs("<div class=\"grid\">\n", out);
    bars(out, b, nodes, all > 0 ? all : 1);
    roofline(out, b, nodes);
    fputs("</div>\n", out);
    ls_free(nodes);
}
