#include "cmd/watch/chart.h"
#include "cmd/watch/view.h"
#include "report/progress_bar.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE_BY_SIDE = 110, TALLEST = 16, RANK_ROWS = 16 };

enum ls_style ls_view_state_style(const struct ls_watched *w)
{
    switch (w->state) {
    case LS_RUN_RUNNING:
        return LS_GREEN;
    case LS_RUN_FINISHED:
        return LS_CYAN;
    case LS_RUN_STOPPED:
    case LS_RUN_UNKNOWN:
        return LS_YELLOW;
    case LS_RUN_FAILED:
    case LS_RUN_KILLED:
    case LS_RUN_SILENT:
        break;
    }
    return LS_RED;
}

/* A field of a line: its name and its value. It begins a new line where the present one has no room for it. */
static void put_field(struct ls_screen *s, const char *name, const char *value)
{
    if (s->column > 0 && ls_screen_columns(s) < ls_screen_width(name) + ls_screen_width(value) + 3)
        ls_screen_end(s);
    if (s->column > 0)
        ls_screen_put(s, LS_PLAIN, "  ");
    ls_screen_put(s, LS_DIM, "%s", name);
    ls_screen_put(s, LS_PLAIN, "%s%s", *name ? " " : "", value);
}

/* --- the head --------------------------------------------------------------------------------------------- */

static void put_head(const struct ls_watched *w, struct ls_screen *s)
{
    char seconds[32], text[64];
    double age = ls_watched_age(w);
    ls_screen_put(s, LS_BOLD, "%s", w->path);
    if (s->column + 2 + ls_screen_width(w->state_text) > s->width)
        ls_screen_end(s);
    ls_screen_put(s, ls_view_state_style(w), "%s%s", s->column ? "  " : "", w->state_text);
    ls_screen_end(s);
    if (*w->model)
        put_field(s, "model", w->model);
    if (*w->data)
        put_field(s, "data", w->data);
    if (w->state == LS_RUN_RUNNING && age > 10) {
        ls_format_duration(age, seconds);
        snprintf(text, sizeof text, "%s ago", seconds);
        put_field(s, "last step", text);
    }
    if (s->column > 0)
        ls_screen_end(s);
}

static void put_progress(const struct ls_watched *w, struct ls_screen *s)
{
    int cells = s->width < 60 ? 10 : s->width < 100 ? 24 : 40;
    char left[32], text[64];
    double part = w->total > 0 ? (double)w->at / (double)w->total : 0;
    if (w->at < 0) {
        ls_screen_put(s, LS_DIM, "%s", w->has_reader ? "no step is recorded yet" : "metrics.jsonl is not there yet");
        ls_screen_end(s);
        return;
    }
    if (w->total > 0) {
        int filled = (int)((part < 1 ? part : 1) * cells + 0.5);
        for (int i = 0; i < cells; i++)
            ls_screen_put(s, i < filled ? LS_CYAN : LS_DIM, "%s",
                          i < filled ? (s->utf8 ? "━" : "#")
                          : s->utf8  ? "─"
                                     : "-");
        snprintf(text, sizeof text, "%.1f%%", 100 * part);
        put_field(s, "", text);
    }
    snprintf(text, sizeof text, w->total > 0 ? "%" PRId64 "/%" PRId64 : "%" PRId64, w->at, w->total);
    put_field(s, "step", text);
    snprintf(text, sizeof text, "%" PRId64, w->step.epoch > w->eval.epoch ? w->step.epoch : w->eval.epoch);
    put_field(s, "epoch", text);
    if (w->state == LS_RUN_RUNNING && isfinite(ls_watched_left(w))) {
        ls_format_duration(ls_watched_left(w), left);
        put_field(s, "left", left);
    }
    ls_screen_end(s);
}

/* --- charts ----------------------------------------------------------------------------------------------- */

/* "loss" or "error" with the mean of the last steps and the last evaluation, at most `columns` wide. */
static void put_title(const struct ls_watched *w, bool error, int columns, struct ls_screen *s)
{
    char text[64];
    struct ls_recent sum;
    int limit = s->width, end = s->column + columns;
    ls_watched_recent(w, &sum);
    s->width = end < limit ? end : limit;
    ls_screen_put(s, LS_BOLD, "%s", error ? "error" : "loss");
    if (w->diverged && !error)
        ls_screen_put(s, LS_RED, "  not finite: diverged");
    else if (isfinite(error ? sum.top1 : sum.loss)) {
        snprintf(text, sizeof text, error ? "%.2f%%" : "%.4g", error ? 100 * (1 - sum.top1) : sum.loss);
        ls_screen_put(s, LS_CYAN, "  train %s", text);
    }
    if (w->eval.step >= 0) {
        snprintf(text, sizeof text, error ? "%.2f%%" : "%.4g", error ? 100 * (1 - w->eval.top1) : w->eval.loss);
        ls_screen_put(s, LS_YELLOW, "  %seval %s", s->utf8 ? "● " : "o ", text);
    }
    snprintf(text, sizeof text, "  best %.2f%% at step %" PRId64, 100 * (1 - w->best_top1), w->best_step);
    if (error && isfinite(w->best_top1) && ls_screen_width(text) <= ls_screen_columns(s))
        ls_screen_put(s, LS_DIM, "%s", text);
    while (s->column < end && ls_screen_columns(s) > 0)
        ls_screen_put(s, LS_PLAIN, " ");
    s->width = limit;
}

static void prepare(struct ls_chart *c, const struct ls_watched *w, bool error, int width, int height, bool utf8)
{
    *c = (struct ls_chart){.lines = {error ? &w->error : &w->loss},
                           .styles = {LS_CYAN},
                           .n_lines = 1,
                           .points = error ? &w->eval_error : &w->eval_loss,
                           .percent = error,
                           .width = width,
                           .height = height};
    ls_chart_draw(c, utf8);
}

/* Both charts, with `rows` lines for all. */
static void put_charts(const struct ls_watched *w, int rows, struct ls_screen *s)
{
    struct ls_chart loss, error;
    bool beside = s->width >= SIDE_BY_SIDE;
    int width = beside ? (s->width - 3) / 2 : s->width - 1, height = beside ? rows - 1 : rows / 2 - 1;
    if (height < 3)
        return;
    height = height < TALLEST ? height : TALLEST;
    prepare(&loss, w, false, width, height, s->utf8);
    prepare(&error, w, true, width, height, s->utf8);
    put_title(w, false, width, s);
    if (beside) {
        ls_screen_put(s, LS_PLAIN, "   ");
        put_title(w, true, width, s);
    }
    ls_screen_end(s);
    for (int row = 0; row < height; row++) {
        ls_chart_row(&loss, row, s);
        if (beside) {
            ls_screen_put(s, LS_PLAIN, "   ");
            ls_chart_row(&error, row, s);
        }
        ls_screen_end(s);
    }
    if (beside)
        return;
    put_title(w, true, width, s);
    ls_screen_end(s);
    for (int row = 0; row < height; row++) {
        ls_chart_row(&error, row, s);
        ls_screen_end(s);
    }
}

/* --- speed and time --------------------------------------------------------------------------------------- */

static void put_speed(const struct ls_watched *w, struct ls_screen *s)
{
    struct ls_recent sum;
    char text[64];
    ls_watched_recent(w, &sum);
    if (sum.seconds <= 0)
        return;
    snprintf(text, sizeof text, "%.0f samples/s", sum.samples / sum.seconds);
    put_field(s, "speed", text);
    double step = sum.seconds / sum.steps;
    snprintf(text, sizeof text, "%.3g %s", step < 1 ? 1e3 * step : step, step < 1 ? "ms" : "s");
    put_field(s, "a step", text);
    if (isfinite(w->step.lr)) {
        snprintf(text, sizeof text, "%.3g", w->step.lr);
        put_field(s, "rate", text);
    }
    if (isfinite(w->step.gpu_utilisation)) {
        snprintf(text, sizeof text, "%.0f%%, %.1f GiB, %.0f W", w->step.gpu_utilisation,
                 w->step.gpu_memory_bytes / 1073741824, w->step.gpu_power_w);
        put_field(s, "GPU", text);
    }
    ls_screen_end(s);
    const double parts[] = {sum.input, sum.compute, sum.wait, sum.update};
    static const char *const names[] = {"input", "compute", "wait", "update"};
    ls_screen_put(s, LS_DIM, "time");
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "%.0f%%", 100 * parts[i] / sum.seconds);
        put_field(s, names[i], text);
    }
    ls_screen_end(s);
}

/* --- ranks ------------------------------------------------------------------------------------------------ */

static int count_ranks(const struct ls_watched *w)
{
    int n = 0;
    for (int i = 0; i < w->n_ranks; i++)
        n += w->ranks[i].rank >= 0;
    return n;
}

static void put_share(struct ls_screen *s, double part, double of)
{
    if (of > 0 && isfinite(part))
        ls_screen_put(s, LS_PLAIN, " %7.1f%%", 100 * part / of);
    else
        ls_screen_put(s, LS_PLAIN, " %8s", "-");
}

/* One line a rank: shares of its last epoch, and whom it waited for. */
static void put_ranks(const struct ls_watched *w, struct ls_screen *s)
{
    int n = count_ranks(w), shown = 0;
    if (n == 0)
        return;
    ls_screen_put(s, LS_DIM, "rank  compute    input    comm.     late  waited for");
    ls_screen_end(s);
    for (int i = 0; i < w->n_ranks; i++) {
        const struct ls_record *r = &w->ranks[i];
        if (r->rank < 0)
            continue;
        if (ls_screen_rows(s) <= 1 || shown == RANK_ROWS) {
            ls_screen_put(s, LS_DIM, "and %d more", n - shown);
            ls_screen_end(s);
            return;
        }
        ls_screen_put(s, LS_PLAIN, "%4d", i);
        put_share(s, r->compute_seconds, r->seconds);
        put_share(s, r->input_seconds, r->seconds);
        put_share(s, r->exposed_seconds, r->seconds);
        put_share(s, r->late_seconds, r->seconds);
        if (r->waited_for >= 0)
            ls_screen_put(s, LS_PLAIN, "  rank %" PRId64 ", %.1f s", r->waited_for, r->waited_for_seconds);
        if (*r->host)
            ls_screen_put(s, LS_DIM, "  %s", r->host);
        ls_screen_end(s);
        shown++;
    }
}

/* --- all -------------------------------------------------------------------------------------------------- */

static void put_troubles(const struct ls_watched *w, struct ls_screen *s)
{
    if (*w->message) {
        ls_screen_put(s, strncmp(w->message, "error", 5) == 0 ? LS_RED : LS_YELLOW, "%s", w->message);
        ls_screen_end(s);
    }
    if (w->reader.tally.broken > 0) {
        ls_screen_put(s, LS_YELLOW,
                      "metrics.jsonl: %" PRId64 " of %" PRId64 " lines cannot be read, the first is line %" PRId64,
                      w->reader.tally.broken, w->reader.tally.lines, w->reader.tally.first_broken);
        ls_screen_end(s);
    }
}

void ls_view_run(const struct ls_watched *w, struct ls_screen *s)
{
    put_head(w, s);
    put_progress(w, s);
    put_troubles(w, s);
    int ranks = count_ranks(w), below = (s->width < 60 ? 4 : 2) + (ranks ? 1 + (ranks < 4 ? ranks : 4) : 0);
    if (w->step.step >= 0 || w->eval.step >= 0)
        put_charts(w, s->height ? ls_screen_rows(s) - below : 24, s);
    put_speed(w, s);
    put_ranks(w, s);
}
