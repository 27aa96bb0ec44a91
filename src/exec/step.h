/* One training step, and one pass of evaluation. */
#ifndef LS_EXEC_STEP_H
#define LS_EXEC_STEP_H

#include "data/data.h"
#include "report/report.h"
#include "exec/rank_reduce.h"
#include "exec/engine.h"
#include "exec/device_dataset.h"

/* Where batches come from: a loader, or memory for bench. */
struct ls_feed {
    enum ls_status (*next)(void *context, const struct ls_slot **slot); /* *slot NULL: no more */
    void *context;                                                      /* borrowed */
    /* Waits for that many more slots, and says whether they will come; NULL: nobody need ask. */
    bool (*ready)(void *context, int64_t slots);
};
struct ls_feed ls_feed_loader(struct ls_loader *loader);

/* A reason for all to stop after a step, beside the numbers of signals: a process cannot read the samples of its next one
 * (starved). It is found out a step ahead, so that all can save what they have. */
enum { LS_STOP_INPUT = 128 };

/* A step that was enqueued and not yet heard of. */
struct ls_pending {
    bool there;
    int slot;                /* that its results come to */
    int64_t samples, valid;  /* expected of all; of its pass */
    double since;            /* from when its time counts, ls_now */
    struct ls_report report; /* what is known before the results */
};

struct ls_stepper {
    struct ls_engine *engine; /* borrowed */
    struct ls_feed feed;
    struct ls_device_dataset train, eval; /* forms of the slots of either program; not open: planes */
    struct ls_replicas replicas;
    struct ls_sync sync; /* ops NULL: alone, or the cards sum (engine->peers) */
    struct ls_rank_reduce agree;
    struct ls_run run;                     /* of the pass under way */
    double input_seconds, compute_seconds; /* of the step under way, or since the last report */
    int stop;                              /* a signal that a process of the last step was given, LS_STOP_INPUT, or 0 */
    bool starved;                          /* this process cannot have its next samples */
    bool lags;                             /* reports come a step late: see ls_step */
    bool scarce;                           /* the step under way has fewer samples than passes */
    int turn;                              /* the slot for the results of the pass under way */
    struct ls_pending pending;
    int eval_turn;      /* likewise, of evaluation */
    int64_t evaluating; /* samples of its pass not yet heard of, or 0 */
    double heard;       /* when the last report was made, ls_now */
    float *loss;        /* owned; one pass's losses and ranks */
    int32_t *rank;      /* owned */
};

enum ls_status ls_stepper_init(struct ls_stepper *s, struct ls_engine *engine, struct ls_feed feed,
                               const struct ls_options *o);
void ls_stepper_release(struct ls_stepper *s);

/* Step number `step` (from 0) over the next `samples` samples of all processes, one slot of the feed for each pass of
 * each replica of this one, in the order replicas.order. Nothing is allocated. Fills *r but for epochs and the number
 * of steps.
 *
 * Where the backend has a queue and a step is one pass of this process (s->lags), which is alone, goes its own way
 * (local) or whose card sums gradients with the others', a step is only enqueued, so that the queue never runs dry,
 * and what comes back in *r is the report of the step before it: all of it, with the epochs that *r held when that one
 * was made. r->step says which it is, and is 0 when there is none to report yet. A slot of the feed is then in use until the second call
 * after the one that took it. ls_step_flush waits for the last step and reports it; r->step is 0 when there is
 * nothing to report. It must come before anybody looks at the state, or ends. The seconds of such a report are those
 * between it and the one before. What all processes agree on, totals and s->stop, is a step late, too. ls_step_drop,
 * where something failed, waits for the last step without a word to the others; the cards part. */
enum ls_status ls_step(struct ls_stepper *s, uint64_t step, int64_t samples, double lr, struct ls_report *r);
enum ls_status ls_step_flush(struct ls_stepper *s, struct ls_report *r);
void ls_step_drop(struct ls_stepper *s);
/* ls_sync_collect, and ls_sync_serve where this rank only serves, for the engine's parameters. */
enum ls_status ls_step_collect(struct ls_stepper *s);
enum ls_status ls_step_serve(struct ls_stepper *s, uint64_t *step);
/* The evaluation program over one slot; adds to *totals. With a queue it is only enqueued, and what is added is the pass
 * before: the slot must stay until the call after the next, and NULL for a slot, the last, adds the rest. */
enum ls_status ls_step_evaluate(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals);
/* Memory that slots are fed from, as the engine's backend likes it best (ls_backend_queue.pin); to be let go again before
 * it is freed. The loader's may be NULL. */
void ls_feed_pin(const struct ls_engine *e, struct ls_loader *loader);
void ls_feed_unpin(const struct ls_engine *e, struct ls_loader *loader);
/* The means over totals' samples into *r. */
void ls_totals_report(const struct ls_totals *totals, struct ls_report *r);

#endif
