#include "cmd/bench/progress.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/progress_bar.h"

#include <langinfo.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SHORT 10.0 /* seconds; a measurement that takes less needs no lines */
#define EVERY 60.0 /* seconds between lines */

enum ls_status ls_bench_progress_open(struct ls_bench_progress *p, const struct ls_options *o, int64_t configurations)
{
    *p = (struct ls_bench_progress){.o = o,
                                    .total = configurations,
                                    .runs = configurations * o->repeat,
                                    .start = ls_now(),
                                    .at = -1,
                                    .seconds = ls_alloc((size_t)configurations, sizeof *p->seconds),
                                    .left = ls_alloc((size_t)configurations, sizeof *p->left)};
    if (!p->seconds || !p->left)
        return LS_FAILED;
    for (int64_t i = 0; i < configurations; i++)
        p->left[i] = o->repeat;
    p->live = o->progress && !o->quiet && !o->json && isatty(STDOUT_FILENO);
    p->printed = p->start;
    return LS_OK;
}

/* A configuration whose time is not known takes the mean of the others. */
double ls_bench_progress_left(const struct ls_bench_progress *p, double now)
{
    double known = 0, of_known = 0, sum = 0;
    for (int64_t i = 0; i < p->total; i++) {
        known += p->seconds[i] > 0;
        of_known += p->seconds[i];
    }
    if (known == 0)
        return -1;
    for (int64_t i = 0; i < p->total; i++)
        sum += (double)p->left[i] * (p->seconds[i] > 0 ? p->seconds[i] : of_known / known);
    if (p->at >= 0 && p->left[p->at] > 0) {
        double each = p->seconds[p->at] > 0 ? p->seconds[p->at] : of_known / known, spent = now - p->begun;
        sum -= spent < each ? spent : each;
    }
    return sum > 0 ? sum : 0;
}

static void show_bar(const struct ls_bench_progress *p, double left)
{
    char time[32], text[48] = "", line[LS_BAR_ROOM];
    struct winsize size;
    struct ls_bar_style look = {.colour = p->o->color, .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
    look.width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    if (left >= 0) {
        ls_format_duration(left, time);
        snprintf(text, sizeof text, "%s left", time);
    }
    ls_progress_bar(&look, "bench", p->done, p->runs, (const char *const[]){text, p->label}, 2, line);
    ls_log_status_line(line);
}

/* One line when the time is known for the first time, then one a minute. */
static void print_line(struct ls_bench_progress *p, double now, double left)
{
    char time[32];
    if (p->o->quiet || left < 0)
        return;
    ls_format_duration(left, time);
    if (!p->estimated && left > SHORT)
        ls_progress("%lld configuration%s, %lld repetition%s: about %s", (long long)p->total, p->total == 1 ? "" : "s",
                    (long long)p->o->repeat, p->o->repeat == 1 ? "" : "s", time);
    else if (p->estimated && now - p->printed > EVERY)
        ls_progress("%lld of %lld repetitions are measured, %s left", (long long)p->done, (long long)p->runs, time);
    else if (p->estimated)
        return;
    p->estimated = true;
    p->printed = now;
}

void ls_bench_progress_draw(struct ls_bench_progress *p)
{
    double now = ls_now(), left = ls_bench_progress_left(p, now);
    if (p->live)
        show_bar(p, left);
    else
        print_line(p, now, left);
}

void ls_bench_progress_begin(struct ls_bench_progress *p, int64_t at, const char *label)
{
    p->at = at;
    p->begun = ls_now();
    snprintf(p->label, sizeof p->label, "%s", label);
}

void ls_bench_progress_end(struct ls_bench_progress *p, int64_t at, int64_t repetitions, bool failed)
{
    int64_t n = failed ? p->left[at] : repetitions;
    if (!failed)
        p->seconds[at] = (ls_now() - p->begun) / (double)repetitions;
    p->left[at] -= n;
    p->done += n;
    p->at = -1;
}

void ls_bench_progress_close(struct ls_bench_progress *p)
{
    if (p->live)
        ls_log_status_line(NULL);
    ls_free(p->seconds);
    ls_free(p->left);
    *p = (struct ls_bench_progress){0};
}
