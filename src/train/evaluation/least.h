/* --tta least:SHARE. All samples are evaluated in one view first. The share of them of which the model is least certain, where
 * the two highest logits are closest to each other, is then evaluated in all views; the others keep the first result.
 *
 *   LEAST-1  Which samples these are depends on the logits of the whole data set alone, equal ones in the order of the
 *            samples: not on batches, and not on how many processes evaluate. */
#ifndef LS_TRAIN_LEAST_H
#define LS_TRAIN_LEAST_H

#include "train/evaluation/confusion.h"
#include "exec/step.h"

struct ls_least {
    int64_t count, classes;   /* of the data set */
    struct ls_outcome *first; /* owned; results in one view of the samples of this process */
    int64_t n_first;
    float *logits;   /* owned; of one pass; then, for a confusion matrix, of all of first */
    float *margins;  /* owned; of each sample; INFINITY: another process has it */
    int64_t *chosen; /* owned; samples for all views, in order */
    int64_t n_chosen;
    int64_t batch;
    bool keeps_logits;
};

/* keeps_logits: ls_least_settle will be given a confusion matrix. Release it also after a failure. */
enum ls_status ls_least_open(struct ls_least *l, const struct ls_engine *e, int64_t count, bool keeps_logits);
/* Evaluates a slot in one view. */
enum ls_status ls_least_glance(struct ls_least *l, struct ls_stepper *s, const struct ls_slot *slot);
/* Chooses the least certain share; all processes call it. comm NULL: one process. */
enum ls_status ls_least_choose(struct ls_least *l, double share, struct ls_comm *comm);
/* Counts the first results of the samples of this process that were not chosen. confusion: NULL, or also there. */
void ls_least_settle(const struct ls_least *l, struct ls_totals *totals, struct ls_confusion *confusion);
void ls_least_release(struct ls_least *l);

#endif
