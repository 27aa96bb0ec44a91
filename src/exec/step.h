/* One training step, and one pass of evaluation.
 *
 *   EXEC-6  A step changes no parameter before all of its batches are there: where one cannot be read, the state is that
 *           after the step before.
 *   EXEC-7  Nothing is allocated within a step.
 *   EXEC-8  With a report delay of 1 a step is only enqueued. Its batches stay in use until the second call of ls_step
 *           after the one that took them. */
#ifndef LS_EXEC_STEP_H
#define LS_EXEC_STEP_H

#include "data/data.h"
#include "report/report.h"
#include "base/trace.h"
#include "exec/rank_reduce.h"
#include "exec/engine.h"
#include "exec/device/device_dataset.h"
#include "exec/step_usage.h"
#include "exec/stragglers.h"

/* The source of batches: a loader, or memory for bench. */
struct ls_feed {
    enum ls_status (*next)(void *context, const struct ls_slot **slot); /* *slot NULL: no more */
    void *context;                                                      /* borrowed */
    /* Waits for that many more slots; false: they cannot be read. NULL: they always can. */
    bool (*ready)(void *context, int64_t slots);
};
struct ls_feed ls_feed_loader(struct ls_loader *loader);

/* A reason for all processes to stop after a step, beside the numbers of signals: one of them cannot read the samples
 * of its next step (starved). It is found a step ahead, so that all processes can save the same step. */
enum { LS_STOP_INPUT = 128 };

/* A step that is enqueued and not reported yet. */
struct ls_pending {
    int slot;                /* its last pass's results come to this slot of the queue; LS_NONE: they are in totals */
    int64_t valid;           /* samples of that pass */
    int64_t reported;        /* samples that its totals must count */
    double since;            /* its time counts from then, ls_now */
    struct ls_totals totals; /* of its passes but the last */
    struct ls_report report; /* what is known before the results */
};

struct ls_stepper {
    struct ls_engine *engine; /* borrowed */
    struct ls_feed feed;
    struct ls_device_dataset train, eval; /* form of the slots of either program; not open: planes */
    struct ls_replicas replicas;
    struct ls_sync sync;
    ls_pass run_pass;                                  /* runs a pass of a step */
    enum ls_status (*last_pass)(struct ls_stepper *s); /* of run_pass: the last of a step; combines the gradients */
    enum ls_status (*evaluate)(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals);
    int report_delay;               /* steps that a report comes late: 0 or 1 */
    struct ls_trace *trace;         /* borrowed; NULL: steps are not recorded */
    struct ls_track *track;         /* of the thread that steps; NULL likewise */
    struct ls_sync_outcome outcome; /* of the last step */
    int stop;                       /* why all stop after the last reported step: a signal, LS_STOP_INPUT, or 0 */
    bool starved;                   /* this process cannot read its next samples */
    /* the step under way */
    struct ls_run run;                     /* of the pass under way */
    int at;                                /* nodes of that pass that have run */
    bool idle;                             /* that pass has no samples: its nodes do not run */
    int handed;                            /* buckets handed over to the strategy */
    int turn;                              /* the slot of the queue for its results */
    double input_seconds, compute_seconds; /* since it began, or since the last report */
    double device_wait_seconds;            /* likewise: that the device waited for others where the host did not */
    struct ls_stragglers stragglers;       /* how long this process sleeps in each step */
    struct ls_step_usage usage;            /* what its communication took */
    struct ls_totals own;                  /* of the last reported step: of this process alone */
    enum ls_phase phase;                   /* where it is recorded: forward or backward, */
    double phase_begin;                    /* since then */
    struct ls_pending pending[2];          /* the oldest first; behind them, the step under way */
    int n_pending;
    /* evaluation */
    int eval_turn, eval_pending; /* the next pass's slot of the queue; passes whose results are not taken yet */
    int64_t eval_valid[2];       /* samples of the pass in each slot */
    int64_t replaced;            /* broken samples of the slots taken so far; the caller may set it back */
};

enum ls_status ls_stepper_init(struct ls_stepper *s, struct ls_engine *engine, struct ls_feed feed,
                               const struct ls_options *o);
void ls_stepper_release(struct ls_stepper *s);
/* Records the steps that the trace selects, until the stepper is released. Release it before the trace is freed. With a
 * queue that has finished a call when it returns, nodes are recorded one by one. With a device queue, what the host
 * enqueues and what the device does are recorded. trace_end waits until the slices of the device are in the trace. */
enum ls_status ls_stepper_trace(struct ls_stepper *s, struct ls_trace *trace);
void ls_stepper_trace_end(struct ls_stepper *s);

/* Step number `step` (from 0) over the next `samples` samples of all processes: one slot of the feed for each pass of each
 * replica of this process, in the order replicas.order. s->outcome has the step to continue with.
 *
 * *r is in and out: in, what the caller provides (epochs); out, the report of the step s->report_delay before this one;
 * r->step is 0 if there is none. The delay is 1 where a backend only enqueues, a step is one pass of each process, and the
 * host does not wait for gradients: the queue never runs dry then. The seconds of a report are those since the one before.
 * s->stop belongs to the reported step.
 *
 * A rank that only serves does so until the workers collect, and collects. Its report has step 0 and the seconds of
 * that. */
enum ls_status ls_step(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, struct ls_report *r);
/* Waits for the steps that are not reported, and reports the last one; *r is unchanged if there is none. Call it before the
 * state is read. */
enum ls_status ls_step_flush(struct ls_stepper *s, struct ls_report *r);
/* After a failure: waits for the last step, exchanges nothing with other processes, and closes sums of devices and
 * messages between them. */
void ls_step_drop(struct ls_stepper *s);
/* ls_sync_collect, for the engine's parameters. */
enum ls_status ls_step_collect(struct ls_stepper *s);
/* Enqueues the evaluation program over one slot, which stays in use until the call after the next. Adds to *totals the
 * results of an earlier pass: with a delay of the queue of 1, those of the pass before. slot NULL, at the end: adds the
 * rest. */
enum ls_status ls_step_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals);
/* Evaluates a slot in one view (engine->glance) and waits for it. Returns the logits of the whole batch, and the loss
 * and the rank of each sample, which are valid until the next pass. */
enum ls_status ls_step_glance(struct ls_stepper *s, const struct ls_slot *slot, float *logits, const float **loss,
                              const int32_t **rank);
/* The next slot of an evaluation: of the loader, or, where this process has none, from the process before it in a
 * pipeline. */
enum ls_status ls_step_evaluate_next(struct ls_stepper *s, struct ls_loader *loader, const struct ls_slot **slot);
/* Pins the memory that slots are fed from (ls_backend_queue.pin); unpin it before it is freed. The loader may be NULL. */
void ls_feed_pin(const struct ls_engine *e, struct ls_loader *loader);
void ls_feed_unpin(const struct ls_engine *e, struct ls_loader *loader);
/* The means over totals' samples into *r. */
void ls_totals_report(const struct ls_totals *totals, struct ls_report *r);

#endif
