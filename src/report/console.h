/* Progress for people. On a terminal one live line (bar, loss, accuracy, samples/s, time left); otherwise
 * plain lines every --log-every steps, in the format of --log-format (report/lines.h). log.txt holds the
 * lines either way. Nothing here allocates. */
#ifndef LS_REPORT_CONSOLE_H
#define LS_REPORT_CONSOLE_H

#include "config/options.h"
#include "report/lines.h"
#include "report/live.h"
#include "report/report.h"
#include <stdbool.h>

struct ls_console {
    enum ls_line_format format;
    bool live, quiet;
    struct ls_live look;     /* of the live line */
    int64_t log_every;       /* steps between lines, 0: chosen */
    int64_t total_steps;     /* of the whole run, 0: not known */
    int64_t evaluations;     /* so far */
    struct ls_report epoch;  /* sum of the epoch's steps so far */
    int64_t epoch_steps;     /* steps in it */
    struct ls_report line;   /* sum since the last line */
    int64_t line_first;      /* step_in_epoch of its first step */
    double drawn;            /* when the live line was drawn last, ls_now; 0: never */
    double first_time;       /* when the first step was reported, and which it was: the time left is */
    int64_t first_step;      /* reckoned from there, as the first step is slow */
    double samples, seconds; /* of the last few seconds, fading */
};

/* total_steps: the step number at which training ends, 0: not known. The line is live when standard output is
 * a terminal and neither --quiet, --json nor --no-progress is given; with --quiet or --json only log.txt is
 * written. */
void ls_console_begin(struct ls_console *c, const struct ls_options *o, int64_t total_steps);
/* After each step; the report is that of the one step. Cheap enough for thousands of steps a second. */
void ls_console_step(struct ls_console *c, const struct ls_report *step);
/* After each epoch, with the epoch's sums. */
void ls_console_epoch(struct ls_console *c, const struct ls_report *epoch);
/* After an evaluation; seconds, samples and step_in_epoch (batches) are its own. */
void ls_console_eval(struct ls_console *c, const struct ls_report *eval);
/* Anything else that may take longer than two seconds ("evaluating", "measuring kernels"): live line only. */
void ls_console_progress(struct ls_console *c, const char *what, int64_t done, int64_t total);
/* Take the live line away. Safe to call twice, and after an error. */
void ls_console_end(struct ls_console *c);

#endif
