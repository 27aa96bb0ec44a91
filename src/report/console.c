#include "report/console.h"

#include "base/system/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_SECONDS 0.1
#define SPEED_SECONDS 3.0    /* time constant of the speed in the progress bar */
#define LINE_MIN_SECONDS 1.0 /* between lines without --log-every */
#define LINE_MAX_SECONDS 10.0

void ls_console_begin(struct ls_console *c, const struct ls_options *o, int64_t total_steps)
{
    *c = (struct ls_console){.total_steps = total_steps, .log_every = o->log_every};
    c->format = ls_line_format_of(o->log_format);
    c->quiet = o->quiet || o->json;
    c->bar = o->progress && !c->quiet && isatty(STDOUT_FILENO);
    c->style.colour = o->color;
    c->style.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static void print_line(const struct ls_console *c, const char *line)
{
    if (!*line)
        return;
    if (c->quiet)
        ls_note("%s", line);
    else
        ls_print("%s", line);
}

/* --- the progress bar ------------------------------------------------------------------------------------ */

/* Limits drawing to once every REDRAW_SECONDS. */
static bool redraw(struct ls_console *c)
{
    struct winsize size;
    double now = ls_now();
    if (!c->bar || now - c->drawn < REDRAW_SECONDS)
        return false;
    c->drawn = now;
    c->style.width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    return true;
}

/* Formats the time left for the whole run, evaluations included: "1:07 left"; "" if it cannot be estimated. */
static void time_left(const struct ls_console *c, int64_t step, char text[48])
{
    char duration[32];
    text[0] = 0;
    if (c->total_steps <= 0 || step <= c->first_step)
        return;
    double each = (c->drawn - c->first_time) / (double)(step - c->first_step);
    ls_format_duration(each * (double)(c->total_steps - step), duration);
    snprintf(text, 48, "%s left", duration);
}

static void draw_step(struct ls_console *c, const struct ls_report *step)
{
    char label[64], loss[32], top1[32], speed[48], left[48], line[LS_BAR_ROOM];
    if (step->epochs > 0)
        snprintf(label, sizeof label, "epoch %" PRId64 "/%" PRId64, step->epoch + 1, step->epochs);
    else
        snprintf(label, sizeof label, "epoch %" PRId64, step->epoch + 1);
    snprintf(loss, sizeof loss, "loss %.3f", c->epoch.loss);
    snprintf(top1, sizeof top1, "top1 %.1f%%", 100 * c->epoch.top1);
    snprintf(speed, sizeof speed, "%.0f samples/s", c->seconds > 0 ? c->samples / c->seconds : 0);
    time_left(c, step->step, left);
    const char *fields[] = {loss, top1, left, speed};
    ls_progress_bar(&c->style, label, step->step_in_epoch, step->steps_per_epoch, fields, 4, line);
    ls_log_status_line(line);
}

void ls_console_progress(struct ls_console *c, const char *what, int64_t done, int64_t total)
{
    char line[LS_BAR_ROOM];
    if (!redraw(c))
        return;
    ls_progress_bar(&c->style, what, done, total, NULL, 0, line);
    ls_log_status_line(line);
}

void ls_console_end(struct ls_console *c)
{
    if (c->bar)
        ls_log_status_line(NULL);
    c->bar = false;
}

/* --- steps, epochs, evaluations --------------------------------------------------------------------------- */

/* Tests whether a line about steps is due. Without --log-every, cntk prints none within an epoch, thesis prints every ten
 * steps and at the end, plain prints at tenths of an epoch within the limits above. */
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
    return c->line.seconds >= LINE_MAX_SECONDS ||
           (step->step_in_epoch % tenth == 0 && c->line.seconds >= LINE_MIN_SECONDS);
}

static void print_step(struct ls_console *c, const struct ls_report *step)
{
    struct ls_line_steps s = {step, &c->line, &c->epoch, c->epoch_steps, c->line_first};
    char line[LS_LINE_ROOM];
    ls_line_step(c->format, &s, line);
    if (c->bar || c->quiet)
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
    print_line(c, line);
    c->epoch = c->line = (struct ls_report){0};
    c->epoch_steps = 0;
}

void ls_console_eval(struct ls_console *c, const struct ls_report *eval)
{
    char line[LS_LINE_ROOM];
    ls_line_eval(c->format, eval, ++c->evaluations, line);
    print_line(c, line);
}
