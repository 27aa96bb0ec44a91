/* What happened in a stretch of work: one step, one epoch, or one evaluation. The trainer fills it once; the
 * console shows it, metrics.jsonl keeps it. An epoch's report is the sum of its steps' (ls_report_add). */
#ifndef LS_REPORT_REPORT_H
#define LS_REPORT_REPORT_H

#include "report/gpu.h"
#include <stdint.h>

struct ls_report {
    int64_t step;          /* steps done since the run began, this one included */
    int64_t epoch, epochs; /* epoch counts from 0; epochs 0: not known (--steps decides) */
    int64_t step_in_epoch; /* steps done in this epoch, this one included; evaluation: batches */
    int64_t steps_per_epoch;
    int64_t samples;   /* that the means below are over */
    double loss;       /* mean over samples */
    double top1, top5; /* share of samples that were right, 0 to 1 */
    double lr;
    double seconds;         /* wall clock of the stretch, made up of: */
    double input_seconds;   /* waiting for the loader */
    double compute_seconds; /* forward and backward */
    double wait_seconds;    /* waiting for other workers and the network */
    double update_seconds;  /* updating weights, and what is left */
    int64_t gradients;      /* whose staleness was measured; 0: nobody measures it */
    double staleness;       /* their mean: updates made between pull and push */
    int loader_threads;     /* that fill batches; 0: not known */
    bool on_gpu;            /* a card computes, and was: */
    struct ls_gpu_state gpu;
};

/* Grow `sum` (zero before the first) by one step: samples and seconds add up, loss, top1 and top5 become
 * means over all samples, the rest is taken from `step`. */
void ls_report_add(struct ls_report *sum, const struct ls_report *step);
/* samples / seconds; 0 when no time has passed. */
double ls_report_speed(const struct ls_report *r);

#endif
