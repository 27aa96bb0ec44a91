/* The tables at the end of a sweep. */
#include "cmd/sweep/sweep.h"
#include "base/log.h"
#include "report/formats/table.h"

#include <inttypes.h>
#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 50, ERRORS = 5, COLUMNS = 7 /* options that have a column each */ };

static bool has_columns(const struct ls_sweep *s)
{
    return s->n_axes <= COLUMNS;
}

static int put_headings(const struct ls_sweep *s, const char **headings, int n, bool seeds)
{
    if (!has_columns(s))
        headings[n++] = "options";
    for (int a = 0; has_columns(s) && a < s->n_axes - !seeds; a++)
        headings[n++] = s->axes[a].option->name;
    return n;
}

static void put_values(struct ls_table *table, const struct ls_sweep *s, const struct ls_trial *t, bool seeds)
{
    char text[512];
    if (!has_columns(s))
        ls_table_cell(table, "%s", ls_trial_describe(s, t, text, sizeof text));
    for (int a = 0; has_columns(s) && a < s->n_axes - !seeds; a++)
        ls_table_cell(table, "%s", t->values[a]);
}

static void put_real(struct ls_table *table, const char *format, double value)
{
    char text[32] = "-";
    if (!isnan(value))
        snprintf(text, sizeof text, *format == '%' ? "%.2f%%" : *format == 's' ? "%.2f s" : "%.5g", value);
    ls_table_cell(table, "%s", text);
}

static const char *plus_minus(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? "±" : "+/-";
}

static void put_figure(struct ls_table *table, const char *format, const struct ls_group_figure *f, double scale)
{
    char text[64] = "-";
    const char *unit = *format == '%' ? "%" : *format == 's' ? " s" : "";
    if (!isnan(f->mean) && isnan(f->deviation))
        snprintf(text, sizeof text, "%.5g%s", scale * f->mean, unit);
    else if (!isnan(f->mean))
        snprintf(text, sizeof text, "%.5g %s %.2g%s", scale * f->mean, plus_minus(), scale * f->deviation, unit);
    ls_table_cell(table, "%s", text);
}

/* --- trials ------------------------------------------------------------------------------------------------------------ */

static void put_trial(struct ls_table *table, const struct ls_sweep *s, const struct ls_trial *t)
{
    const struct ls_outcome *o = &t->outcome;
    bool begun = t->state != LS_TRIAL_PLANNED && o->steps > 0;
    ls_table_row(table);
    ls_table_cell(table, "%d%s", t->rank, t->rank == 1 && t->state == LS_TRIAL_DONE ? " *" : "");
    ls_table_cell(table, "%04d", t->number);
    put_values(table, s, t, true);
    ls_table_cell(table, "%s", ls_trial_state_name(t->state));
    ls_table_cell(table, "%" PRId64, o->epochs);
    put_real(table, "", ls_outcome_final_loss(o));
    put_real(table, "%", 100 * o->top1);
    put_real(table, "", ls_outcome_loss_area(o));
    if (s->goals.has_target)
        put_real(table, "s", o->target_seconds);
    put_real(table, "s", begun ? o->seconds : NAN);
}

/* Adds the headings of results to the first n, and begins the table; own has room for the alignment of all columns. */
static void init_table(const struct ls_sweep *s, struct ls_table *table, const char **headings, int n,
                       const char *align, char own[LS_TABLE_COLUMNS + 2])
{
    headings[n++] = "final loss";
    headings[n++] = "top1";
    headings[n++] = "loss area";
    if (s->goals.has_target)
        headings[n++] = "to target";
    headings[n++] = "time";
    snprintf(own, LS_TABLE_COLUMNS + 2, "%.*s", n, align);
    ls_table_init(table, own, headings);
}

static enum ls_status print_trials(const struct ls_sweep *s, const struct ls_ranking *r)
{
    const char *headings[LS_TABLE_COLUMNS + 1] = {"rank", "trial"};
    static const char align[] = "llrrrrrrrrrrrrrrr";
    int n = put_headings(s, headings, 2, true);
    struct ls_table table;
    char own[LS_TABLE_COLUMNS + 2];
    headings[n++] = "state";
    headings[n++] = "epochs";
    init_table(s, &table, headings, n, align, own);
    for (int i = 0; i < s->n_trials && i < SHOWN; i++)
        put_trial(&table, s, r->order[i]);
    printf("\nTrials, ranked by %s:\n", ls_rank_by_name(s->rank_by));
    enum ls_status st = ls_table_print(&table, stdout);
    ls_table_release(&table);
    if (s->n_trials > SHOWN)
        printf("and %d more, in results.csv\n", s->n_trials - SHOWN);
    return st;
}

/* --- groups ------------------------------------------------------------------------------------------------------------ */

static enum ls_status print_groups(const struct ls_sweep *s, const struct ls_ranking *r)
{
    const char *headings[LS_TABLE_COLUMNS + 1] = {"rank"};
    static const char align[] = "lrrrrrrrrrrrrrrrr";
    char own[LS_TABLE_COLUMNS + 2];
    int n = put_headings(s, headings, 1, false);
    struct ls_table table;
    headings[n++] = "done";
    init_table(s, &table, headings, n, align, own);
    for (int i = 0; i < r->n_groups && i < SHOWN; i++) {
        const struct ls_group *g = &r->groups[i];
        ls_table_row(&table);
        ls_table_cell(&table, "%d%s", i + 1, i == 0 && g->done > 0 ? " *" : "");
        put_values(&table, s, g->first, false);
        ls_table_cell(&table, "%d/%d", g->done, g->trials);
        put_figure(&table, "", &g->loss, 1);
        put_figure(&table, "%", &g->top1, 100);
        put_figure(&table, "", &g->area, 1);
        if (s->goals.has_target)
            put_figure(&table, "s", &g->target, 1);
        put_figure(&table, "s", &g->seconds, 1);
    }
    printf("\nMean %s standard deviation over seeds:\n", plus_minus());
    enum ls_status st = ls_table_print(&table, stdout);
    ls_table_release(&table);
    return st;
}

/* --- the end ------------------------------------------------------------------------------------------------------------- */

static void print_failures(const struct ls_sweep *s)
{
    int failed = 0;
    for (int i = 0; i < s->n_trials; i++)
        if (s->trials[i].state == LS_TRIAL_FAILED && failed++ < ERRORS)
            ls_warn("trial %04d failed: %s; its output is in %s/logs/%s.txt", s->trials[i].number, s->trials[i].error,
                    s->folder, s->trials[i].name);
    if (failed > ERRORS)
        ls_warn("%d more trials failed; results.csv has their errors", failed - ERRORS);
}

static enum ls_status print_best(const struct ls_sweep *s, const struct ls_trial *best)
{
    struct ls_arena arena = {0};
    struct ls_options o = {0};
    char text[512];
    o.command_line = ls_trial_command(s, best, false, &arena);
    while (o.command_line && o.command_line[o.n_command_line])
        o.n_command_line++;
    printf("\nBest: trial %04d%s%s. To repeat it:\n  ", best->number, s->n_axes ? ", " : "",
           ls_trial_describe(s, best, text, sizeof text));
    ls_options_command(&o, stdout);
    putchar('\n');
    enum ls_status st = o.command_line ? LS_OK : LS_FAILED;
    ls_arena_release(&arena);
    return st;
}

enum ls_status ls_results_print(const struct ls_sweep *s, const struct ls_ranking *r)
{
    if (!s->o.quiet) {
        LS_TRY(print_trials(s, r));
        if (r->n_groups > 0)
            LS_TRY(print_groups(s, r));
        if (r->order[0]->state == LS_TRIAL_DONE)
            LS_TRY(print_best(s, r->order[0]));
        fflush(stdout);
        ls_print("Results: %s/results.csv and results.json", s->folder);
    }
    print_failures(s);
    return LS_OK;
}
