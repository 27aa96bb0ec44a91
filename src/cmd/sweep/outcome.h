/* What the metrics of a trial say: losses, accuracies, the area under the loss curve, and when a target was reached. All of
 * it follows from metrics.jsonl alone. Times are sums of `seconds` of steps and evaluations: they leave out starts, saves
 * and pauses, so that an interrupted trial has the time of an undisturbed one. */
#ifndef LS_CMD_SWEEP_OUTCOME_H
#define LS_CMD_SWEEP_OUTCOME_H

#include "report/metrics/metrics_reader.h"
#include <stdbool.h>
#include <stdint.h>

enum { LS_GOAL_RUNGS = 32 };

enum ls_goal_metric { LS_GOAL_LOSS, LS_GOAL_TOP1, LS_GOAL_TOP5 };

/* What is looked for in metrics. Loss and accuracy are those of evaluations; of trials that do not evaluate, those of
 * epochs. */
struct ls_goals {
    bool has_target;
    enum ls_goal_metric target;
    double target_value;
    enum ls_goal_metric rung;           /* what successive halving decides by */
    int64_t rung_epochs[LS_GOAL_RUNGS]; /* after which it decides, rising */
    int n_rungs;
};

/* A number that is not known is NaN. */
struct ls_outcome {
    int64_t steps, epochs, samples; /* done; epochs counts complete ones */
    double seconds;
    double train_loss; /* mean over the samples of the last epoch, complete or not */
    double eval_loss, top1, top5, best_top1;
    double area_steps, area_samples, area_seconds; /* under the loss of the steps, by the trapezoidal rule */
    double target_seconds;                         /* until the target was reached */
    bool is_diverged;                              /* a step had a loss that is not finite: there is no final loss */
    double rung[LS_GOAL_RUNGS];                    /* the metric at that decision, such that smaller is better */
    /* While adding. */
    int64_t epoch, epoch_samples;
    double last_loss, last_samples, last_seconds, step_seconds, first_samples;
};

void ls_outcome_clear(struct ls_outcome *o);
void ls_outcome_add(struct ls_outcome *o, const struct ls_goals *goals, const struct ls_record *r);
/* Reads a whole metrics.jsonl. A missing file gives an empty outcome. */
void ls_outcome_read(struct ls_outcome *o, const struct ls_goals *goals, const char *path);
/* Returns the loss of the last evaluation, or the train loss without one. NaN after divergence. */
double ls_outcome_final_loss(const struct ls_outcome *o);
/* Returns the area over samples divided by their number: the mean height of the curve. NaN after divergence. */
double ls_outcome_loss_area(const struct ls_outcome *o);

/* Follows a file that is being written. Starts as {0}. */
struct ls_outcome_tail {
    bool is_open;
    struct ls_metrics_reader reader;
};
void ls_outcome_follow(struct ls_outcome *o, struct ls_outcome_tail *tail, const struct ls_goals *goals,
                       const char *path);
void ls_outcome_close(struct ls_outcome_tail *tail);

#endif
