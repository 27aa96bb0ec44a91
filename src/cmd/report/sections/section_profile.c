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

static void bars(FILE *out, const struct ls_bench_node *const *nodes, int n, double all)
{
    static const struct ls_part part = {"time", "c0", NULL};
    static const char *const head[] = {"layer", "operation", "ms", "share %", "Gop/s", "GB/s", "operations a byte"};
    char rooms[MOST_BARS][LS_FIGURE_ROOM];
    const char *names[MOST_BARS];
    double values[MOST_BARS], most = 1e-9;
    int shown = n < MOST_BARS ? n : MOST_BARS;
    for (int i = 0; i < shown; i++) {
        snprintf(rooms[i], sizeof rooms[i], "%.14s %.24s", nodes[i]->layer, nodes[i]->op);
        names[i] = rooms[i];
        values[i] = nodes[i]->ms;
        most = fmax(most, values[i]);
    }
    ls_page_figure(out, "Time of each layer",
                   n > shown ? "the 24 longest nodes of a step" : "the nodes of a step, the longest first", false);
    ls_plot_bars(out, "Time of each layer", names, shown, &part, 1, values, most, "ms");
    ls_page_table(out, head, 7);
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
        fputs("</tr>\n", out);
    }
    ls_page_table_end(out);
    ls_page_figure_end(out);
}

static bool is_computing(const struct ls_bench_node *k)
{
    return k->operations > 0 && k->bytes > 0 && k->ms > 0;
}

/* The roof is what the best node of this step reaches: as many operations, or as many bytes, a second. */
static void roofline(FILE *out, const struct ls_bench_node *const *nodes, int n)
{
    struct ls_plot p = {.out = out,
                        .title = "Roofline",
                        .x_name = "operations a byte",
                        .y_name = "Gop/s",
                        .x0 = INFINITY,
                        .y0 = INFINITY,
                        .log_x = true,
                        .log_y = true};
    double operations = 0, bytes = 0;
    int shown = 0;
    for (int i = 0; i < n; i++) {
        const struct ls_bench_node *k = nodes[i];
        if (k->ms > 0)
            bytes = fmax(bytes, k->bytes / k->ms / 1e6);
        if (!is_computing(k))
            continue;
        double speed = k->operations / k->ms / 1e6, density = k->operations / k->bytes;
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
    p.y1 *= 1.6;
    double x[64], roof[64];
    for (int i = 0; i < 64; i++) {
        x[i] = p.x0 * pow(p.x1 / p.x0, i / 63.0);
        roof[i] = fmin(operations, bytes * x[i]);
    }
    ls_page_figure(out, "Roofline",
                   "dots: layers; dashed: the most operations and bytes a second that any node of the step reaches",
                   false);
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
    bars(out, nodes, b->n_nodes, all > 0 ? all : 1);
    roofline(out, nodes, b->n_nodes);
    fputs("</div>\n", out);
    ls_free(nodes);
}
