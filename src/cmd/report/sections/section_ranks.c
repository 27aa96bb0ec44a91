/* What each rank did, who was waited for, and every card. */
#define _GNU_SOURCE
#include "cmd/report/sections/sections.h"

#include <math.h>

enum { MOST_BARS = 64, MOST_LINES = 16 };

static bool has_ranks(const struct ls_run_view *v)
{
    for (int i = 0; i < v->n_ranks; i++)
        if (v->ranks[i].is_there)
            return true;
    return false;
}

/* The rank that the others waited for longest, -1: none for a twentieth of their time. */
static int latest(const struct ls_run_view *v)
{
    int worst = -1;
    double seconds = 0;
    for (int i = 0; i < v->n_ranks; i++)
        if (v->ranks[i].held_up > 0 && (worst < 0 || v->ranks[i].held_up > v->ranks[worst].held_up))
            worst = i;
    for (int i = 0; i < v->n_ranks; i++)
        seconds += i == worst ? 0 : v->ranks[i].seconds;
    return worst >= 0 && v->ranks[worst].held_up >= 0.05 * seconds ? worst : -1;
}

static void rank_row(FILE *out, const struct ls_run_view *v, int i, bool is_late)
{
    const struct ls_rank_view *k = &v->ranks[i];
    double steps = (double)(k->steps > 0 ? k->steps : 1), all = k->seconds > 0 ? k->seconds / 100 : NAN;
    char a[LS_FIGURE_ROOM];
    fprintf(out, "<tr%s><th scope=\"row\">%d</th>", is_late ? " class=\"bad\"" : "", i);
    ls_page_cell_text(out, k->host);
    fprintf(out, "<td>%s</td>", ls_figure_time(k->seconds / steps, a));
    ls_page_cell(out, k->compute / all);
    ls_page_cell(out, k->input / all);
    ls_page_cell(out, k->exposed / all);
    ls_page_cell(out, k->late / all);
    ls_page_cell(out, k->update / all);
    ls_page_cell(out, k->hidden / all);
    fprintf(out, "<td>%s</td>", k->held_up > 0 ? ls_figure_time(k->held_up, a) : "–");
    ls_page_cell(out, k->calls / steps);
    fprintf(out, "<td>%s</td></tr>\n", ls_figure_bytes(k->bytes / steps, a));
}

static void straggler_table(FILE *out, const struct ls_run_view *v)
{
    static const char *const head[] = {"rank",
                                       "host",
                                       "a step",
                                       "compute %",
                                       "input %",
                                       "communication %",
                                       "late ranks %",
                                       "update %",
                                       "hidden communication %",
                                       "others waited",
                                       "collectives a step",
                                       "bytes a step"};
    int late = latest(v);
    fputs("<div class=\"scroll\"><table><thead><tr>", out);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        fprintf(out, "<th scope=\"col\"%s>%s</th>", i == 1 ? " class=\"t\"" : "", head[i]);
    fputs("</tr></thead><tbody>\n", out);
    for (int i = 0; i < v->n_ranks; i++)
        if (v->ranks[i].is_there)
            rank_row(out, v, i, i == late);
    fputs("</tbody></table></div>\n", out);
}

static void rank_bars(FILE *out, const struct ls_run_view *v)
{
    static const struct ls_part parts[] = {{"compute", "c0", NULL},
                                           {"input", "c4", NULL},
                                           {"communication", "c1", NULL},
                                           {"late ranks", "c3", NULL},
                                           {"update and rest", "c2", NULL}};
    char rooms[MOST_BARS][LS_FIGURE_ROOM];
    const char *names[MOST_BARS];
    double values[5 * MOST_BARS];
    int n = 0;
    for (int i = 0; i < v->n_ranks && n < MOST_BARS; i++) {
        const struct ls_rank_view *k = &v->ranks[i];
        if (!k->is_there || !(k->seconds > 0))
            continue;
        double row[] = {k->compute, k->input, k->exposed, k->late, k->update};
        for (int part = 0; part < 5; part++)
            values[5 * n + part] = 100 * row[part] / k->seconds;
        snprintf(rooms[n], sizeof rooms[n], "rank %d", i);
        names[n] = rooms[n];
        n++;
    }
    ls_plot_bars(out, "What each rank's time goes into", names, n, parts, 5, values, 100, "% of its time");
    ls_plot_legend(out, parts, 5);
}

/* --- cards ------------------------------------------------------------------------------------------------------- */

static bool has_cards(const struct ls_run_view *v)
{
    for (int i = 0; i < v->n_ranks; i++)
        if (v->ranks[i].gpu_weight > 0)
            return true;
    return v->gpu.buckets != NULL;
}

static void card_table(FILE *out, const struct ls_run_view *v)
{
    static const char *const head[] = {"rank", "host", "utilisation %", "memory", "power W", "clock MHz", "hottest °C"};
    char a[LS_FIGURE_ROOM];
    ls_page_table(out, head, 7);
    for (int i = 0; i < v->n_ranks; i++) {
        const struct ls_rank_view *k = &v->ranks[i];
        if (!(k->gpu_weight > 0))
            continue;
        fprintf(out, "<tr><th scope=\"row\">%d</th>", i);
        ls_page_cell_text(out, k->host);
        ls_page_cell(out, k->gpu_sum / k->gpu_weight);
        fprintf(out, "<td>%s</td>", ls_figure_bytes(k->gpu_memory, a));
        ls_page_cell(out, k->gpu_power / k->gpu_weight);
        ls_page_cell(out, k->gpu_clock / k->gpu_weight);
        ls_page_cell(out, k->gpu_temperature);
        fputs("</tr>\n", out);
    }
    ls_page_table_end(out);
}

static void card_lines(FILE *out, const struct ls_run_view *v, const char *note)
{
    struct ls_plot p = {
        .out = out, .title = "Utilisation of each card", .x_name = "step", .y_name = "% busy", .y1 = 100};
    char colours[MOST_LINES][LS_FIGURE_ROOM], names[MOST_LINES][LS_FIGURE_ROOM];
    struct ls_part parts[MOST_LINES];
    int n = 0;
    bool of_ranks = false;
    for (int i = 0; i < v->n_ranks; i++) {
        of_ranks |= v->ranks[i].gpu.buckets != NULL;
        p.x1 = fmax(p.x1, ls_series_end(&v->ranks[i].gpu));
    }
    p.x1 = 1.015 * fmax(p.x1, ls_series_end(&v->gpu)); /* room for the last dot */
    ls_page_figure(out, "Utilisation of each card", note, false);
    ls_plot_begin(&p);
    for (int i = 0; i < v->n_ranks && i < MOST_LINES; i++) {
        snprintf(names[n], sizeof names[n], "rank %d", i);
        ls_plot_curve(&p, &v->ranks[i].gpu, 200, ls_page_colour(i, colours[n]), -1, names[n], false, true);
        parts[n] = (struct ls_part){names[n], colours[n], NULL};
        n += v->ranks[i].gpu.buckets != NULL;
    }
    if (!of_ranks)
        ls_plot_curve(&p, &v->gpu, 300, "c0", -1, "rank 0", true, false);
    ls_plot_end(&p);
    if (of_ranks) {
        ls_plot_legend(out, parts, n);
        card_table(out, v);
    }
    ls_page_figure_end(out);
}

static void card_bars(FILE *out, const struct ls_run_view *v, const char *note)
{
    static const struct ls_part part = {"utilisation", "c2", NULL};
    char rooms[MOST_BARS][LS_FIGURE_ROOM];
    const char *names[MOST_BARS];
    double values[MOST_BARS];
    int n = 0;
    for (int i = 0; i < v->n_ranks && n < MOST_BARS; i++)
        if (v->ranks[i].gpu_weight > 0) {
            snprintf(rooms[n], sizeof rooms[n], "rank %d", i);
            names[n] = rooms[n];
            values[n++] = v->ranks[i].gpu_sum / v->ranks[i].gpu_weight;
        }
    if (n < 2)
        return;
    ls_page_figure(out, "Mean utilisation of each card", note, false);
    ls_plot_bars(out, "Mean utilisation of each card", names, n, &part, 1, values, 100, "% busy");
    card_table(out, v);
    ls_page_figure_end(out);
}

void ls_section_ranks(FILE *out, const struct ls_subject *s)
{
    bool any = false;
    for (int i = 0; i < s->n_runs; i++)
        any |= has_ranks(&s->runs[i]) || has_cards(&s->runs[i]);
    if (!any || s->n_runs > LS_FEW_RUNS)
        return;
    ls_page_section(out, "ranks", "Ranks and cards");
    fputs("<div class=\"grid\">\n", out);
    for (int i = 0; i < s->n_runs; i++) {
        const struct ls_run_view *v = &s->runs[i];
        const char *note = s->n_runs > 1 ? v->name : NULL;
        if (has_ranks(v)) {
            ls_page_figure(out, "What each rank's time goes into", note, false);
            rank_bars(out, v);
            ls_page_figure_end(out);
        }
        if (has_cards(v)) {
            card_lines(out, v, note);
            card_bars(out, v, note);
        }
        if (has_ranks(v)) {
            ls_page_figure(out, "Ranks, and who was waited for", note, true);
            straggler_table(out, v);
            ls_page_figure_end(out);
        }
    }
    fputs("</div>\n", out);
    ls_page_section_end(out);
}
