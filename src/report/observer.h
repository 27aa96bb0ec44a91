/* Observers record a run in the formats of other programs, beside the console and metrics.jsonl. An observer is one file that
 * ends in a struct ls_observer_ops, and one line in observers.def. Rank 0 alone has observers. A failure, such as a full disk,
 * ends the run like a failure of metrics.jsonl. */
#ifndef LS_REPORT_OBSERVER_H
#define LS_REPORT_OBSERVER_H

#include "base/status.h"
#include "config/options.h"
#include "report/metrics/metrics.h"
#include "report/report.h"

/* What is known about a run before its first step. All pointers are borrowed and stay valid while the run is open. */
struct ls_run_facts {
    const struct ls_options *o;
    const char *run;       /* the run directory */
    const char *identity;  /* in words */
    bool resumed;          /* from a checkpoint, after `step` steps */
    int64_t step;          /* 0 without a checkpoint */
    int64_t epochs_begun;  /* epochs with a step among them */
    int64_t train_samples; /* of an epoch */
    int64_t eval_samples;  /* 0: no evaluation */
    double lr;             /* the rate that the schedule starts from */
    int ranks;
    double opening; /* seconds that it took to open the run */
};

/* An image as the network sees it, before it is normalised: interleaved bytes. */
struct ls_observed_image {
    const uint8_t *pixels;
    int height, width, channels; /* channels: 1 or 3 */
    int number;                  /* in the batch, from 0 */
    const char *label;
};

struct ls_observer_ops {
    /* Whether this run is to be observed. */
    bool (*wanted)(const struct ls_run_facts *facts);
    /* *self is passed to the other functions; close frees it. */
    enum ls_status (*open)(const struct ls_run_facts *facts, void **self);
    /* Called for each line of metrics.jsonl with a report. Allocates nothing for a step. */
    enum ls_status (*report)(void *self, enum ls_metrics_kind kind, const struct ls_report *r);
    /* The values of a parameter after `step` steps, at the end of an epoch. NULL: not recorded. */
    enum ls_status (*values)(void *self, int64_t step, const char *name, const float *values, int64_t count);
    /* An image of the first batch. NULL: not recorded. */
    enum ls_status (*image)(void *self, const struct ls_observed_image *image);
    /* Makes everything so far durable. A checkpoint is about to be written: --resume keeps what is recorded up to its step. */
    enum ls_status (*sync)(void *self);
    /* The run ends with `ended`. */
    enum ls_status (*close)(void *self, enum ls_status ended);
};

enum ls_observer_id {
#define X(name) LS_OBSERVER_##name,
#include "report/observers.def"
    LS_OBSERVERS
};
/* The observers of a run. Starts as {0}: none. */
struct ls_observers {
    void *self[LS_OBSERVERS]; /* owned; NULL: not open */
};

/* Opens the observers that this run wants. */
enum ls_status ls_observers_open(struct ls_observers *all, const struct ls_run_facts *facts);
/* Whether an open observer records values of parameters, or images. */
bool ls_observers_want_values(const struct ls_observers *all);
bool ls_observers_want_images(const struct ls_observers *all);
/* Each of these calls every open observer and returns the first failure. */
enum ls_status ls_observers_report(struct ls_observers *all, enum ls_metrics_kind kind, const struct ls_report *r);
enum ls_status ls_observers_values(struct ls_observers *all, int64_t step, const char *name, const float *values,
                                   int64_t count);
enum ls_status ls_observers_image(struct ls_observers *all, const struct ls_observed_image *image);
enum ls_status ls_observers_sync(struct ls_observers *all);
/* May be called twice. */
enum ls_status ls_observers_close(struct ls_observers *all, enum ls_status ended);

#endif
