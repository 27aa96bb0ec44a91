/* Findings, and what was run on what. */
#define _GNU_SOURCE
#include "cmd/report/sections/sections.h"

#include <math.h>
#include <string.h>

double ls_run_speed(const struct ls_run_view *v)
{
    return v->total.seconds > 0 ? v->total.samples / v->total.seconds : NAN;
}

double ls_run_area(const struct ls_run_view *v)
{
    return v->width > 0 && v->diverged_step < 0 ? v->area / v->width : NAN;
}

void ls_section_findings(FILE *out, const struct ls_remarks *r)
{
    static const char *const classes[] = {"limit", "bad", "warn", "good", "note"};
    static const char *const tags[] = {"limit", "problem", "notice", "result", "note"};
    if (r->n == 0)
        return;
    ls_page_section(out, "findings", "Findings");
    fputs("<ul class=\"findings\">\n", out);
    for (int i = 0; i < r->n; i++) {
        const struct ls_remark *x = &r->list[i];
        fprintf(out, "<li class=\"%s\"><span class=\"tag\">%s", classes[x->kind], tags[x->kind]);
        if (x->run) {
            fputs(" · ", out);
            ls_page_text(out, x->run);
        }
        fputs("</span><strong>", out);
        ls_page_text(out, x->text);
        fputs("</strong>", out);
        if (x->figures) {
            fputs("<p>", out);
            ls_page_text(out, x->figures);
            fputs("</p>", out);
        }
        if (x->advice) {
            fputs("<p class=\"do\">What to change: ", out);
            ls_page_text(out, x->advice);
            fputs("</p>", out);
        }
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
    ls_page_section_end(out);
}

/* --- one column a run --------------------------------------------------------------------------------------------- */

static void run_heads(FILE *out, const struct ls_subject *s)
{
    char colour[LS_FIGURE_ROOM];
    for (int i = 0; i < s->n_runs; i++) {
        fprintf(out, "<th scope=\"col\" class=\"t %s\">%s", ls_page_colour(i, colour), s->n_runs > 1 ? "<i></i>" : "");
        ls_page_text(out, s->runs[i].name);
        fputs("</th>", out);
    }
}

/* What all runs have in common. */
static void common_row(FILE *out, const struct ls_subject *s, const char *name)
{
    const char *value = ls_run_fact(&s->runs[0], name);
    for (int i = 1; i < s->n_runs && value; i++) {
        const char *other = ls_run_fact(&s->runs[i], name);
        if (!other || strcmp(value, other) != 0)
            value = NULL;
    }
    if (!value)
        return;
    fputs("<tr>", out);
    ls_page_row_head(out, name);
    fputs("<td class=\"t long\">", out);
    ls_page_text(out, value);
    fputs("</td></tr>\n", out);
}

static void common_facts(FILE *out, const struct ls_subject *s)
{
    static const char *const names[] = {"model",     "data",     "augment", "batch",  "length", "rate",
                                        "optimizer", "hardware", "machine", "folder", "memory"};
    fputs("<div class=\"card\"><div class=\"scroll\"><table><thead><tr><th scope=\"col\"></th><th scope=\"col\" "
          "class=\"t\">the same for all runs</th></tr></thead><tbody>\n",
          out);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        common_row(out, s, names[i]);
    fputs("</tbody></table></div></div>\n", out);
}

static void fact_row(FILE *out, const struct ls_subject *s, const char *name)
{
    bool any = false;
    for (int i = 0; i < s->n_runs; i++)
        any |= ls_run_fact(&s->runs[i], name) != NULL;
    if (!any)
        return;
    fputs("<tr>", out);
    ls_page_row_head(out, name);
    for (int i = 0; i < s->n_runs; i++) {
        const char *value = ls_run_fact(&s->runs[i], name);
        fputs("<td class=\"t long\">", out);
        ls_page_text(out, value ? value : "–");
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static void result_row(FILE *out, const struct ls_subject *s)
{
    char a[LS_FIGURE_ROOM], b[LS_FIGURE_ROOM], c[LS_FIGURE_ROOM];
    fputs("<tr><th scope=\"row\">result</th>", out);
    for (int i = 0; i < s->n_runs; i++) {
        const struct ls_run_view *v = &s->runs[i];
        fputs("<td class=\"t long\">", out);
        ls_page_print(out, "%s; %s steps in %s, %s samples/s", ls_run_state(v), ls_figure((double)v->last_step, a),
                      ls_figure_time(ls_run_wall(v), b), ls_figure(ls_run_speed(v), c));
        if (v->resumed > 0)
            ls_page_print(out, "; resumed %d time%s", v->resumed, v->resumed == 1 ? "" : "s");
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static void facts_table(FILE *out, const struct ls_subject *s)
{
    static const char *const first[] = {"command", "model",     "data",     "batch",
                                        "rate",    "optimizer", "hardware", "machine"};
    static const char *const more[] = {"started", "ended",    "augment", "length",  "processes",
                                       "workers", "pipeline", "memory",  "identity"};
    fputs("<div class=\"card\"><div class=\"scroll\"><table><thead><tr><th scope=\"col\"></th>", out);
    run_heads(out, s);
    fputs("</tr></thead><tbody>\n", out);
    result_row(out, s);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        fact_row(out, s, first[i]);
    fputs("</tbody></table></div>\n<details><summary>More from log.txt</summary><div class=\"scroll\"><table><tbody>\n",
          out);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        fact_row(out, s, more[i]);
    fputs("</tbody></table></div></details>\n", out);
    for (int i = 0; i < s->n_runs; i++) {
        const struct ls_run_view *v = &s->runs[i];
        if (v->config.n == 0)
            continue;
        fputs("<details><summary>Every option", out);
        if (s->n_runs > 1) {
            fputs(" of ", out);
            ls_page_text(out, v->name);
        }
        fputs("</summary><div class=\"scroll\"><table><tbody>\n", out);
        for (int k = 0; k < v->config.n; k++) {
            fputs("<tr>", out);
            ls_page_row_head(out, v->config.list[k].name);
            ls_page_cell_text(out, v->config.list[k].value);
            fputs("</tr>\n", out);
        }
        fputs("</tbody></table></div></details>\n", out);
    }
    fputs("</div>\n", out);
}

/* --- one row a run ----------------------------------------------------------------------------------------------- */

static int best_run(const struct ls_subject *s)
{
    int best = -1;
    for (int i = 0; i < s->n_runs; i++) {
        const struct ls_run_view *v = &s->runs[i];
        double value = isnan(v->best_top1) ? v->final_loss : v->best_top1;
        const struct ls_run_view *b = best >= 0 ? &s->runs[best] : NULL;
        if (isfinite(value) && v->diverged_step < 0 &&
            (!b || value < (isnan(b->best_top1) ? b->final_loss : b->best_top1)))
            best = i;
    }
    return best;
}

static void compare_row(FILE *out, const struct ls_subject *s, int i, bool best)
{
    const struct ls_run_view *v = &s->runs[i];
    char text[LS_FIGURE_ROOM];
    fprintf(out, "<tr%s><th scope=\"row\" class=\"%s\"><i></i>",
            v->diverged_step >= 0 ? " class=\"bad\""
            : best                ? " class=\"best\""
                                  : "",
            ls_page_colour(i, text));
    ls_page_text(out, v->name);
    fputs("</th>", out);
    for (int k = 0; k < s->n_varied; k++)
        ls_page_cell_text(out, ls_varied_value(&s->varied[k], v));
    ls_page_cell(out, v->diverged_step >= 0 ? NAN : v->final_loss);
    ls_page_cell(out, ls_run_area(v));
    ls_page_cell(out, v->best_top1);
    ls_page_cell(out, v->last_top5);
    ls_page_cell(out, ls_run_speed(v));
    ls_page_cell(out, (double)v->last_step);
    fprintf(out, "<td>%s</td>", ls_figure_time(ls_run_wall(v), text));
    ls_page_cell_text(out, v->diverged_step >= 0 ? "diverged" : ls_run_state(v));
    fputs("</tr>\n", out);
}

static void compare_table(FILE *out, const struct ls_subject *s)
{
    static const char *const head[] = {
        "final loss", "loss area", "best top-1 error %", "top-5 error %", "samples/s", "steps", "time", "state"};
    int best = best_run(s);
    fputs("<div class=\"card\"><div class=\"scroll\"><table><thead><tr><th scope=\"col\">run</th>", out);
    for (int k = 0; k < s->n_varied; k++) {
        fputs("<th scope=\"col\" class=\"t\">", out);
        ls_page_text(out, s->varied[k].name);
        fputs("</th>", out);
    }
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        fprintf(out, "<th scope=\"col\">%s</th>", head[i]);
    fputs("</tr></thead><tbody>\n", out);
    for (int i = 0; i < s->n_runs; i++)
        compare_row(out, s, i, i == best);
    fputs("</tbody></table></div></div>\n", out);
}

static void chooser(FILE *out, const struct ls_subject *s)
{
    char colour[LS_FIGURE_ROOM];
    fputs("<form class=\"chooser\" aria-label=\"Runs to show\">", out);
    for (int i = 0; i < s->n_runs; i++) {
        fprintf(out, "<label class=\"%s\"><input type=\"checkbox\" value=\"%d\" checked>", ls_page_colour(i, colour),
                i);
        ls_page_text(out, s->runs[i].name);
        fputs("</label>", out);
    }
    fputs(
        "<button type=\"button\" value=\"all\">all</button><button type=\"button\" value=\"none\">none</button></form>\n",
        out);
}

void ls_section_facts(FILE *out, const struct ls_subject *s)
{
    if (s->n_runs == 0)
        return;
    if (s->n_runs > 1) {
        ls_page_section(out, "runs", s->is_sweep ? "The trials" : "The runs");
        compare_table(out, s);
        ls_page_section_end(out);
    }
    ls_page_section(out, "what", "What was run");
    if (s->n_runs <= LS_COLUMNS && !s->is_sweep)
        facts_table(out, s);
    else
        common_facts(out, s);
    ls_page_section_end(out);
    if (s->n_runs > 1)
        chooser(out, s);
}
