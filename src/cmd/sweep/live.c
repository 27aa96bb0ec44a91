/* What a sweep shows while it runs. A terminal has a table of trials that is drawn again and again; a pipe gets a line for
 * each trial that ends. */
#include "cmd/sweep/sweep.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "report/progress_bar.h"
#include "report/formats/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW 0.5 /* seconds */

static int count(const struct ls_sweep *s, enum ls_trial_state state)
{
    int n = 0;
    for (int i = 0; i < s->n_trials; i++)
        n += s->trials[i].state == state;
    return n;
}

/* Trials that need no more work. One that failed in an earlier start is tried again. */
static int count_finished(const struct ls_sweep *s)
{
    int n = 0;
    for (int i = 0; i < s->n_trials; i++) {
        enum ls_trial_state state = s->trials[i].state;
        n += !s->trials[i].is_waiting && state != LS_TRIAL_RUNNING && state != LS_TRIAL_PAUSED;
    }
    return n;
}

void ls_live_begin(struct ls_live *l, const struct ls_sweep *s)
{
    *l = (struct ls_live){.quiet = s->o.quiet, .start = ls_now()};
    l->on = s->o.progress && !s->o.quiet && isatty(STDOUT_FILENO);
    if (l->quiet)
        return;
    int kept = count_finished(s);
    ls_print("Sweep of %d trials in %s, %d at a time%s.", s->n_trials, s->folder, s->side_by_side,
             s->has_asha ? ", with successive halving" : "");
    if (kept > 0)
        ls_print("%d of them are finished already.", kept);
}

/* --- lines ------------------------------------------------------------------------------------------------------- */

static void figures(const struct ls_trial *t, char *text, size_t room)
{
    const struct ls_outcome *o = &t->outcome;
    double loss = ls_outcome_final_loss(o);
    size_t used = 0;
    text[0] = 0;
    if (!isnan(loss))
        used += (size_t)snprintf(text, room, ", loss %.4g", loss);
    if (!isnan(o->top1) && used < room)
        used += (size_t)snprintf(text + used, room - used, ", top1 %.2f%%", 100 * o->top1);
    if (used < room)
        snprintf(text + used, room - used, ", %.3g s", o->seconds);
}

static const char *shown_state(const struct ls_trial *t, char text[64])
{
    if (t->state == LS_TRIAL_DIVERGED)
        snprintf(text, 64, "diverged at step %" PRId64, t->outcome.steps);
    else if (t->state == LS_TRIAL_PAUSED)
        snprintf(text, 64, "paused after epoch %" PRId64, t->outcome.epochs);
    else
        snprintf(text, 64, "%s", ls_trial_state_name(t->state));
    return text;
}

void ls_live_event(struct ls_live *l, const struct ls_sweep *s, const struct ls_trial *t)
{
    char numbers[128], state[64];
    int over = count_finished(s);
    figures(t, numbers, sizeof numbers);
    if (l->quiet || l->on)
        return;
    if (t->state == LS_TRIAL_FAILED)
        ls_print("[%d/%d] %s: failed: %s", over, s->n_trials, t->name, t->error);
    else
        ls_print("[%d/%d] %s: %s%s", over, s->n_trials, t->name, shown_state(t, state), numbers);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* Trials that run, then the best, then the others. */
static int importance(const struct ls_trial *t)
{
    return t->state == LS_TRIAL_RUNNING ? 0 : t->state == LS_TRIAL_DONE ? 1 : t->state == LS_TRIAL_PAUSED ? 2 : 3;
}

/* Whether a is shown before b. */
static bool is_before(const struct ls_sweep *s, const struct ls_trial *a, const struct ls_trial *b)
{
    int order = importance(a) - importance(b);
    double x = ls_rank_value(s, &a->outcome), y = ls_rank_value(s, &b->outcome);
    if (order == 0 && a->state == LS_TRIAL_DONE && x != y && !isnan(x))
        return isnan(y) || x < y;
    return order ? order < 0 : a->number < b->number;
}

/* The n most important trials. */
static void choose(const struct ls_sweep *s, const struct ls_trial **shown, int n)
{
    int used = 0;
    for (int i = 0; i < s->n_trials; i++) {
        const struct ls_trial *t = &s->trials[i];
        int at = used;
        while (n < s->n_trials && at > 0 && is_before(s, t, shown[at - 1]))
            at--;
        if (at >= n)
            continue;
        int last = used < n ? used++ : n - 1;
        memmove(&shown[at + 1], &shown[at], sizeof *shown * (size_t)(last - at));
        shown[at] = t;
    }
}

static void put_progress(struct ls_table *table, const struct ls_sweep *s, const struct ls_trial *t)
{
    char room[32];
    int64_t steps = strtoll(ls_trial_value(s, t, ls_option_find("steps"), room), NULL, 10);
    int64_t epochs = strtoll(ls_trial_value(s, t, ls_option_find("epochs"), room), NULL, 10);
    if (t->state == LS_TRIAL_PLANNED)
        ls_table_cell(table, "%s", "");
    else if (steps > 0)
        ls_table_cell(table, "step %" PRId64 "/%" PRId64, t->outcome.steps, steps);
    else
        ls_table_cell(table, "epoch %" PRId64 "/%" PRId64, t->outcome.epochs, epochs);
}

static void put_number(struct ls_table *table, const char *format, double value)
{
    char text[32] = "";
    if (!isnan(value))
        snprintf(text, sizeof text, format[0] == 't' ? "%.2f%%" : format[0] == 's' ? "%.1f s" : "%.4g", value);
    ls_table_cell(table, "%s", text);
}

static void put_trial(struct ls_table *table, const struct ls_sweep *s, const struct ls_trial *t)
{
    char text[256];
    const struct ls_outcome *o = &t->outcome;
    bool begun = t->state != LS_TRIAL_PLANNED;
    ls_table_row(table);
    ls_table_cell(table, "%04d", t->number);
    ls_table_cell(table, "%s", ls_trial_describe(s, t, text, sizeof text));
    ls_table_cell(table, "%s", ls_trial_state_name(t->state));
    put_progress(table, s, t);
    put_number(table, "loss", begun ? ls_outcome_final_loss(o) : NAN);
    put_number(table, "top1", 100 * o->top1);
    put_number(table, "seconds", begun ? o->seconds : NAN);
}

static void put_summary(FILE *out, const struct ls_live *l, const struct ls_sweep *s)
{
    char time[32];
    const enum ls_trial_state states[] = {LS_TRIAL_RUNNING, LS_TRIAL_PAUSED, LS_TRIAL_STOPPED, LS_TRIAL_FAILED,
                                          LS_TRIAL_DIVERGED};
    ls_format_duration(ls_now() - l->start, time);
    fprintf(out, "%d of %d done", count(s, LS_TRIAL_DONE), s->n_trials);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (count(s, states[i]) > 0)
            fprintf(out, ", %d %s", count(s, states[i]), ls_trial_state_name(states[i]));
    fprintf(out, "; %s\n", time);
}

/* Prints at most `width` characters of each line, so that none takes two lines of the terminal. Returns the lines. */
static int print_cut(const char *text, int width)
{
    int lines = 0, column = 0;
    for (; *text; text++) {
        column += ((unsigned char)*text & 0xc0) != 0x80;
        if (*text == '\n') {
            column = 0;
            lines++;
        }
        if (column <= width)
            putchar(*text);
    }
    return lines;
}

static void erase(struct ls_live *l)
{
    if (l->lines > 0)
        printf("\033[%dA\r\033[J", l->lines);
    l->lines = 0;
}

void ls_live_draw(struct ls_live *l, const struct ls_sweep *s, bool now)
{
    static const char *const headings[] = {"trial", "options", "state", "progress", "loss", "top1", "time"};
    struct winsize size;
    struct ls_table table;
    char *text = NULL;
    size_t length;
    if (!l->on || (!now && ls_now() - l->drawn < REDRAW))
        return;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    int width = known ? size.ws_col : 80, height = known ? size.ws_row : 24;
    int n = height > 6 ? height - 4 : 2;
    n = n < s->n_trials ? n : s->n_trials;
    const struct ls_trial **shown = ls_alloc((size_t)n, sizeof *shown);
    FILE *out = shown ? open_memstream(&text, &length) : NULL;
    if (out) {
        choose(s, shown, n);
        ls_table_init(&table, "lllllrr", headings);
        for (int i = 0; i < n; i++)
            put_trial(&table, s, shown[i]);
        ls_table_print(&table, out);
        ls_table_release(&table);
        put_summary(out, l, s);
        fclose(out);
        erase(l);
        l->lines = print_cut(text, width - 1);
        fflush(stdout);
    }
    free(text);
    ls_free(shown);
    l->drawn = ls_now();
}

void ls_live_end(struct ls_live *l)
{
    if (l->on)
        erase(l);
    fflush(stdout);
}
