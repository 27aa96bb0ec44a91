/* One training step, and one pass of evaluation. */
#ifndef LS_TRAIN_STEP_H
#define LS_TRAIN_STEP_H

#include "data/data.h"
#include "report/report.h"
#include "train/agree.h"
#include "train/engine.h"

/* Where batches come from: a loader, or memory for bench. */
struct ls_feed {
    enum ls_status (*next)(void *context, const struct ls_slot **slot); /* *slot NULL: no more */
    void *context;                                                      /* borrowed */
};
struct ls_feed ls_feed_loader(struct ls_loader *loader);

struct ls_stepper {
    struct ls_engine *engine; /* borrowed */
    struct ls_feed feed;
    struct ls_replicas replicas;
    struct ls_sync sync; /* ops NULL: alone */
    struct ls_agree agree;
    struct ls_run run;                     /* of the pass under way */
    double input_seconds, compute_seconds; /* of the step under way */
    int stop;                              /* a signal that a process of the last step was given, or 0 */
    float *loss;                           /* owned; one pass's losses and ranks */
    int32_t *rank;                         /* owned */
};

enum ls_status ls_stepper_init(struct ls_stepper *s, struct ls_engine *engine, struct ls_feed feed,
                               const struct ls_options *o);
void ls_stepper_release(struct ls_stepper *s);

/* Step number `step` (from 0) over the next `samples` samples of all processes, one slot of the feed for each pass of
 * each replica of this one, in the order replicas.order. Nothing is allocated. Fills *r but for epochs and the number
 * of steps. */
enum ls_status ls_step(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, struct ls_report *r);
/* The evaluation program over one slot; adds to *totals. */
enum ls_status ls_step_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals);
/* The means over totals' samples into *r. */
void ls_totals_report(const struct ls_totals *totals, struct ls_report *r);

#endif
