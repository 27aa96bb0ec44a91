/* Progress on the console. A terminal shows a progress bar with loss, accuracy, samples/s and time left. Otherwise lines are
 * printed every --log-every steps in the format of --log-format (report/log_lines.h). log.txt always gets the lines. Nothing
 * here allocates. One thread at a time may use a console. */
#ifndef LS_REPORT_CONSOLE_H
#define LS_REPORT_CONSOLE_H

#include "config/options.h"
#include "report/log_lines.h"
#include "report/progress_bar.h"
#include "report/report.h"
#include <stdbool.h>

struct ls_console {
    enum ls_line_format format;
    bool bar, quiet;
    struct ls_bar_style style; /* of the progress bar */
    int64_t log_every;         /* steps between lines; 0: automatic */
    int64_t total_steps;       /* of the whole run; 0: unknown */
    int64_t evaluations;       /* number of evaluations so far */
    struct ls_report epoch;    /* sum over the steps of the epoch so far */
    int64_t epoch_steps;       /* number of these steps */
    struct ls_report line;     /* sum over the steps since the last line */
    int64_t line_first;        /* step_in_epoch of the first of these steps */
    double drawn;              /* ls_now() when the bar was last drawn; 0: never */
    double first_time;         /* time and number of the first reported step: the time left is estimated */
    int64_t first_step;        /* from the steps after it, because the first step is slow */
    double samples, seconds;   /* exponentially weighted sums over the last few seconds */
};

/* total_steps: the step at which training ends; 0: unknown. The bar is shown if standard output is a terminal and none of
 * --quiet, --json and --no-progress is given. With --quiet or --json only log.txt is written. */
void ls_console_begin(struct ls_console *c, const struct ls_options *o, int64_t total_steps);
/* Call after each step with the report of that step. Cheap enough for thousands of steps a second. */
void ls_console_step(struct ls_console *c, const struct ls_report *step);
/* Call after each epoch with the sums of the epoch. */
void ls_console_epoch(struct ls_console *c, const struct ls_report *epoch);
/* Call after an evaluation; seconds, samples and step_in_epoch (batches) are those of the evaluation. */
void ls_console_eval(struct ls_console *c, const struct ls_report *eval);
/* Shows other work that may take longer than two seconds ("evaluating", "measuring kernels") in the bar only. */
void ls_console_progress(struct ls_console *c, const char *what, int64_t done, int64_t total);
/* Removes the bar. May be called twice, and after an error. */
void ls_console_end(struct ls_console *c);

#endif
