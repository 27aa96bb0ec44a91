#include "cmd/watch/chart.h"
#include "cmd/watch/view.h"
#include "report/progress_bar.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHART_ROWS = 12, LEAST_CHART = 5, TABLE = 52 }; /* TABLE: columns behind the name */

static const enum ls_style styles[] = {LS_CYAN, LS_YELLOW, LS_GREEN, LS_MAGENTA, LS_BLUE, LS_RED};

static enum ls_style style_of(int run)
{
    return styles[run % (int)(sizeof styles / sizeof *styles)];
}

/* The letter of a run in table and chart; runs behind the last letter have none. */
static char letter_of(int run)
{
    return (char)(run < LS_CHART_LINES ? 'a' + run : ' ');
}

static const char *state_word(const struct ls_watched *w)
{
    static const char *const words[] = {"running", "finished", "stopped", "failed", "killed", "silent", "-"};
    return w->diverged && w->state != LS_RUN_RUNNING ? "diverged" : words[w->state];
}

/* Appends a number of at most `width` columns; a value that is not known is "-". */
static void put_number(struct ls_screen *s, int width, int digits, double value, const char *unit)
{
    char text[32] = "-";
    if (isfinite(value))
        snprintf(text, sizeof text, "%.*f%s", digits, value, unit);
    ls_screen_put(s, LS_PLAIN, " %*s", width, text);
}

/* The last part of a path fits where the path does not. */
static void put_name(struct ls_screen *s, const char *path, int width)
{
    int length = ls_screen_width(path), limit = s->width, end = s->column + width;
    const char *name = path;
    for (const char *slash; length > width && (slash = strchr(name, '/')) && slash[1]; length = ls_screen_width(name))
        name = slash + 1;
    s->width = end < limit ? end : limit;
    ls_screen_put(s, LS_PLAIN, "%s", name);
    while (s->column < s->width)
        ls_screen_put(s, LS_PLAIN, " ");
    s->width = limit;
}

static void put_row(const struct ls_watched *w, int number, int name, struct ls_screen *s)
{
    struct ls_recent sum;
    char text[48], left[32] = "-";
    ls_watched_recent(w, &sum);
    ls_screen_put(s, style_of(number), "%c ", letter_of(number));
    put_name(s, w->path, name);
    ls_screen_put(s, ls_view_state_style(w), " %-8s", state_word(w));
    snprintf(text, sizeof text, "%.0f%%", 100 * (double)w->at / (double)w->total);
    ls_screen_put(s, LS_PLAIN, " %4s", w->total > 0 && w->at >= 0 ? text : "-");
    put_number(s, 8, 4, sum.loss, "");
    put_number(s, 9, 2, 100 * w->best_top1, "%");
    put_number(s, 9, 0, sum.seconds > 0 ? sum.samples / sum.seconds : NAN, "");
    if (w->state == LS_RUN_RUNNING && isfinite(ls_watched_left(w)))
        ls_format_duration(ls_watched_left(w), left);
    ls_screen_put(s, LS_PLAIN, " %8s", left);
    ls_screen_end(s);
}

static void put_chart(const struct ls_watched *runs, int n, int rows, struct ls_screen *s)
{
    struct ls_chart c = {.width = s->width - 1, .height = rows};
    c.n_lines = n < LS_CHART_LINES ? n : LS_CHART_LINES;
    for (int i = 0; i < c.n_lines; i++) {
        c.lines[i] = &runs[i].loss;
        c.styles[i] = style_of(i);
        c.letters[i] = (char)(s->colour && s->utf8 ? 0 : letter_of(i));
    }
    ls_chart_draw(&c, s->utf8);
    ls_screen_put(s, LS_BOLD, "loss");
    if (n > c.n_lines)
        ls_screen_put(s, LS_DIM, "  of the first %d runs", c.n_lines);
    ls_screen_end(s);
    for (int row = 0; row < c.height; row++) {
        ls_chart_row(&c, row, s);
        ls_screen_end(s);
    }
}

void ls_view_runs(const struct ls_watched *runs, int n, struct ls_screen *s)
{
    int longest = 3, running = 0;
    for (int i = 0; i < n; i++) {
        int width = ls_screen_width(runs[i].path);
        longest = width > longest ? width : longest;
        running += runs[i].state == LS_RUN_RUNNING;
    }
    int room = s->width - 2 - TABLE, name = longest < room ? longest : room > 12 ? room : 12;
    ls_screen_put(s, LS_BOLD, "%d runs", n);
    ls_screen_put(s, LS_PLAIN, ", %d running", running);
    ls_screen_end(s);
    ls_screen_put(s, LS_DIM, "  %-*s state    done     loss best top1 samples/s     left", name, "run");
    ls_screen_end(s);
    int all = s->height ? ls_screen_rows(s) : n + 1 + CHART_ROWS;
    int chart = all - n - 1 >= LEAST_CHART ? all - n - 1 : LEAST_CHART, most = all - chart - 1;
    chart = chart < CHART_ROWS ? chart : CHART_ROWS;
    for (int i = 0; i < n; i++) {
        if (i + 1 >= most && i + 1 < n) {
            ls_screen_put(s, LS_DIM, "  and %d more", n - i);
            ls_screen_end(s);
            break;
        }
        put_row(&runs[i], i, name, s);
    }
    put_chart(runs, n, chart, s);
}
