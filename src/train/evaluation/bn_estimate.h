/* Estimates of BN's running statistics (--bn-samples). The running statistics are exponential averages over past steps and
 * past weights. An estimate takes their place before an evaluation: for each BN layer that trains, the mean of the batch means
 * and of the unbiased batch variances over the first samples of the training order, with the present weights. The batches are
 * those of one pass, and go through the training program, as in PyTorch's update_bn. Without --bn-samples these do nothing. */
#ifndef LS_TRAIN_BN_ESTIMATE_H
#define LS_TRAIN_BN_ESTIMATE_H

#include "report/console.h"
#include "exec/engine.h"
#include "train/task.h"

/* How many samples an estimate takes: --bn-samples in whole batches, at least one batch. */
int64_t ls_bn_estimate_samples(const struct ls_task *task, const struct ls_options *o);
/* LS_USAGE if the model or the strategy does not allow it. */
enum ls_status ls_bn_estimate_check(const struct ls_engine *e, const struct ls_options *o);
/* The processes share the batches, and add them in the order of the data: all get the bits of one process. They hold the same
 * weights before. form: how images come to the training program of this process. *bad is the first BN layer with a statistic that is not finite, NULL: there is none; with one, or after a
 * failure, nothing is changed. Every process returns the same status. LS_INTERRUPTED as ls_evaluate. */
enum ls_status ls_bn_estimate(struct ls_engine *e, const struct ls_task *task, const struct ls_options *o,
                              enum ls_form form, struct ls_console *console, const char **bad);

#endif
