/* Evaluation: exact loss, top-1 and top-5 over a set, with every sample counted once. */
#ifndef LS_TRAIN_EVALUATE_H
#define LS_TRAIN_EVALUATE_H

#include "report/console.h"
#include "exec/step.h"
#include "train/evaluation/confusion.h"
#include "train/task.h"

/* Evaluates the task's test set. Fills samples, loss, top1, top5 and the times of *r. Returns LS_INTERRUPTED without
 * a message when a signal arrives meanwhile (only where ls_interrupt_watch is on). confusion: NULL, or a zeroed struct that
 * is filled on every rank; the caller releases it, also on failure. */
enum ls_status ls_evaluate(struct ls_stepper *s, const struct ls_task *task, const struct ls_options *o,
                           struct ls_console *console, struct ls_report *r, struct ls_confusion *confusion);

#endif
