#include "report/console.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_SECONDS 0.1
#define SPEED_SECONDS 3.0 /* the speed on the live line is that of about so long */
#define LINE_LEAST 1.0    /* seconds between lines where --log-every leaves the choice */
#define LINE_MOST 10.0

void ls_console_begin(struct ls_console *c, const struct ls_options *o, int64_t total_steps)
{
    *c = (struct ls_console){.total_steps = total_steps, .log_every = o->log_every};
    c->format = ls_line_format_of(o->log_format);
    c->quiet = o->quiet || o->json;
    c->live = o->progress && !c->quiet && isatty(STDOUT_FILENO);
    c->look.colour = o->color;
    c->look.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static void say(const struct ls_console *c, const char *line)
{
    if (!*line)
        return;
    if (c->quiet)
        ls_note("%s", line);
    else
        ls_print("%s", line);
}

/* --- the live line
 * ------------------------------------------------------------------------------------------ */

/* Time to draw again? Asked a thousand times a second, answered yes ten times. */
static bool redraw(struct ls_console *c)
{
    struct winsize size;
    double now = ls_now();
    if (!c->live || now - c->drawn < REDRAW_SECONDS)
        return false;
    c->drawn = now;
    c->look.width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    return true;
}

/* "1:07 left" of the whole run, evaluations included; "" when there is nothing to go by. */
static void time_left(const struct ls_console *c, int64_t step, char text[48])
{
    char duration[32];
    text[0] = 0;
    if (c->total_steps <= 0 || step <= c->first_step)
        return;
    double each = (c->drawn - c->first_time) / (double)(step - c->first_step);
    ls_live_duration(each * (double)(c->total_steps - step), duration);
    snprintf(text, 48, "%s left", duration);
}

static void draw_step(struct ls_console *c, const struct ls_report *step)
{
    char label[64], loss[32], top1[32], speed[48], left[48], line[LS_LIVE_ROOM];
    if (step->epochs > 0)
        snprintf(label, sizeof label, "epoch %" PRId64 "/%" PRId64, step->epoch + 1, step->epochs);
    else
        snprintf(label, sizeof label, "epoch %" PRId64, step->epoch + 1);
    snprintf(loss, sizeof loss, "loss %.3f", c->epoch.loss);
    snprintf(top1, sizeof top1, "top1 %.1f%%", 100 * c->epoch.top1);
    snprintf(speed, sizeof speed, "%.0f samples/s", c->seconds > 0 ? c->samples / c->seconds : 0);
    time_left(c, step->step, left);
    const char *fields[] = {loss, top1, left, speed};
    ls_live_line(&c->look, label, step->step_in_epoch, step->steps_per_epoch, fields, 4, line);
    ls_log_status_line(line);
}

void ls_console_progress(struct ls_console *c, const char *what, int64_t done, int64_t total)
{
    char line[LS_LIVE_ROOM];
    if (!redraw(c))
        return;
    ls_live_line(&c->look, what, done, total, NULL, 0, line);
    ls_log_status_line(line);
}

void ls_console_end(struct ls_console *c)
{
    if (c->live)
        ls_log_status_line(NULL);
    c->live = false;
}

/* --- steps, epochs, evaluations
 * ----------------------------------------------------------------------------- */

/* Is a line about steps due? CNTK is silent within an epoch unless told otherwise, the thesis speaks every
 * ten steps and at the end, plain lines come at tenths of an epoch, not too often and not too seldom. */
static bool line_due(const struct ls_console *c, const struct ls_report *step)
{
    if (c->log_every > 0)
        return (c->format == LS_LINE_PLAIN ? step->step : step->step_in_epoch) % c->log_every == 0;
    switch (c->format) {
    case LS_LINE_CNTK:
        return false;
    case LS_LINE_THESIS:
        return step->step_in_epoch % 10 == 0 || step->step_in_epoch == step->steps_per_epoch;
    case LS_LINE_PLAIN:
        break;
    }
    int64_t tenth = step->steps_per_epoch / 10 > 0 ? step->steps_per_epoch / 10 : 1;
    return c->line.seconds >= LINE_MOST || (step->step_in_epoch % tenth == 0 && c->line.seconds >= LINE_LEAST);
}

static void print_step(struct ls_console *c, const struct ls_report *step)
{
    struct ls_line_steps s = {step, &c->line, &c->epoch, c->epoch_steps, c->line_first};
    char line[LS_LINE_ROOM];
    ls_line_step(c->format, &s, line);
    if (c->live || c->quiet)
        ls_note("%s", line);
    else
        ls_print("%s", line);
    c->line = (struct ls_report){0};
}

void ls_console_step(struct ls_console *c, const struct ls_report *step)
{
    if (c->first_time == 0) {
        c->first_time = ls_now();
        c->first_step = step->step;
    }
    if (c->line.samples == 0)
        c->line_first = step->step_in_epoch;
    ls_report_add(&c->epoch, step);
    ls_report_add(&c->line, step);
    c->epoch_steps++;
    double fade = exp(-step->seconds / SPEED_SECONDS);
    c->samples = fade * c->samples + (double)step->samples;
    c->seconds = fade * c->seconds + step->seconds;
    if (line_due(c, step))
        print_step(c, step);
    if (redraw(c))
        draw_step(c, step);
}

void ls_console_epoch(struct ls_console *c, const struct ls_report *epoch)
{
    char line[LS_LINE_ROOM];
    ls_line_epoch(c->format, epoch, line);
    say(c, line);
    c->epoch = c->line = (struct ls_report){0};
    c->epoch_steps = 0;
}

void ls_console_eval(struct ls_console *c, const struct ls_report *eval)
{
    char line[LS_LINE_ROOM];
    ls_line_eval(c->format, eval, ++c->evaluations, line);
    say(c, line);
}
