/* The lines of --log-format, without a newline:
 *
 *  plain   epoch 1/5  step 93/938  loss 0.4312  top1 87.12%  lr 0.05  12345 samples/s
 *          epoch 1/5: loss 0.2113, top1 93.41%, 4.2 s at 14252 samples/s (input 1%)
 *          evaluation: loss 0.0412, top1 98.71%, top5 100.00%, 10000 samples in 0.35 s
 *  cntk     Minibatch[1-10]: loss = 2.302585 * 640, metric = 90.00% * 640;
 *          Finished Epoch[1 of 300]: [Training] loss = 2.103217 * 50000, metric = 78.00% * 50000 12.345s (4050.2 samples/s);
 *          Finished Evaluation [1]: Minibatch[1-40]: metric = 0.59% * 10000;
 *  thesis  Epoch: [0][10/5005]\tTime 0.581 (0.633)\tData 0.273 (0.283)\tLoss 6.9010 (6.9523)\tAcc@1 0.391 (0.142)\tAcc@5 ...
 *           * Acc@1 75.030 Acc@5 92.410
 *
 * In plain lines, input is the share of time spent waiting for the loader. In cntk lines, metric is the error rate. In thesis
 * lines, each value is that of the last step, followed by the mean over the epoch so far; epochs count from 0. */
#ifndef LS_REPORT_LOG_LINES_H
#define LS_REPORT_LOG_LINES_H

#include "report/report.h"
#include <stddef.h>

#define LS_LINE_ROOM 512

/* clang-format off */
enum ls_line_format {
#define X(name, NAME) LS_LINE_##NAME,
#include "config/lists/line_formats.def"
};
/* clang-format on */

/* Returns the format for a value of --log-format; plain if it is unknown. */
enum ls_line_format ls_line_format_of(const char *name);

/* The input of a line about steps. */
struct ls_line_steps {
    const struct ls_report *step;  /* the last step */
    const struct ls_report *line;  /* sum of the steps since the last line */
    const struct ls_report *epoch; /* sum of the steps of the epoch so far */
    int64_t epoch_steps;           /* number of these steps */
    int64_t first;                 /* step_in_epoch of the first step after the last line */
};
void ls_line_step(enum ls_line_format format, const struct ls_line_steps *s, char text[LS_LINE_ROOM]);
/* Sets text to "" if the format has no such line. */
void ls_line_epoch(enum ls_line_format format, const struct ls_report *epoch, char text[LS_LINE_ROOM]);
/* number: counts evaluations from 1. */
void ls_line_eval(enum ls_line_format format, const struct ls_report *eval, int64_t number, char text[LS_LINE_ROOM]);

#endif
