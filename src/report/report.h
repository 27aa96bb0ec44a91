/* The results of one step, one epoch or one evaluation. The trainer fills a report; the console prints it and metrics.jsonl
 * stores it. The report of an epoch is the sum of those of its steps (ls_report_add). */
#ifndef LS_REPORT_REPORT_H
#define LS_REPORT_REPORT_H

#include "report/gpu.h"
#include <stdint.h>

struct ls_report {
    int64_t step;          /* steps since the start of the run, including this one */
    int64_t epoch, epochs; /* epoch counts from 0; epochs is 0 if unknown (--steps) */
    int64_t step_in_epoch; /* steps of this epoch, including this one; evaluation: batches */
    int64_t steps_per_epoch;
    int64_t samples;   /* number of samples behind the means below */
    double loss;       /* mean over samples */
    double top1, top5; /* share of correct samples, 0 to 1 */
    double lr;
    double seconds;         /* wall-clock time, the sum of: */
    double input_seconds;   /* waiting for the loader */
    double compute_seconds; /* forward and backward */
    double wait_seconds;    /* waiting for other workers and the network */
    double update_seconds;  /* updating weights, and everything else */
    double late_seconds;    /* the part of wait_seconds in which another worker had not come to a collective */
    double hidden_seconds;  /* communication behind computing: not a part of seconds */
    int64_t gradients;      /* number of gradients with a measured staleness; 0: not measured */
    double staleness;       /* mean number of updates between pull and push */
    int64_t closed;         /* steps with a known number of gradients, which --sync cutoff counted; 0: none */
    double cutoff_k;        /* mean of that number */
    bool counts_broken;     /* with --on-bad-sample skip: */
    int64_t broken;         /* samples that could not be read: replaced in training, left out of evaluation */
    int loader_threads;     /* threads that fill batches; 0: unknown */
    bool on_gpu;            /* a GPU computes; gpu is its state */
    struct ls_gpu_state gpu;
};

/* Adds a step to `sum`, which starts as zero. Samples and seconds are added; loss, top1 and top5 become means over all
 * samples; the other members are copied from `step`. */
void ls_report_add(struct ls_report *sum, const struct ls_report *step);
/* Returns samples / seconds, or 0 if seconds is 0. */
double ls_report_speed(const struct ls_report *r);

#endif
