/* Evaluation: exact loss, top-1 and top-5 over every sample of a set once. */
#ifndef LS_TRAIN_EVALUATE_H
#define LS_TRAIN_EVALUATE_H

#include "report/console.h"
#include "exec/step.h"
#include "train/task.h"

/* Over the task's test set. Fills samples, loss, top1, top5 and the times of *r. LS_INTERRUPTED, with nothing
 * said, when a signal came in between (only where ls_interrupt_watch is on). */
enum ls_status ls_evaluate(struct ls_stepper *s, const struct ls_task *task, const struct ls_options *o,
                           struct ls_console *console, struct ls_report *r);

#endif
