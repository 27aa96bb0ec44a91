#include "train/evaluation/evaluate.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/system/interrupt.h"

#include <string.h>

static enum ls_status run_all(struct ls_stepper *s, struct ls_loader *loader, int64_t count, struct ls_console *console,
                              struct ls_totals *totals, struct ls_confusion *confusion)
{
    for (;;) {
        const struct ls_slot *slot;
        if (ls_interrupted() && !s->engine->comm)
            return LS_INTERRUPTED;
        double begin = ls_trace_begin(s->track);
        LS_TRY(ls_step_evaluate_next(s, loader, &slot));
        ls_trace_end(s->track, begin, &(struct ls_slice){.kind = LS_SLICE_INPUT, .name = "input"});
        LS_TRY(ls_step_evaluate(s, slot, totals));
        if (!slot)
            return LS_OK;
        if (confusion && slot->valid > 0)
            LS_TRY(ls_confusion_add(confusion, s->engine, slot));
        ls_console_progress(console, "evaluating", totals->samples, count);
    }
}

/* Evaluates the share of this process. */
static enum ls_status evaluate_own(struct ls_stepper *s, const struct ls_task *task, const struct ls_options *o,
                                   struct ls_console *console, struct ls_totals *totals, double *waited,
                                   struct ls_confusion *confusion)
{
    struct ls_loader *loader = NULL;
    if (!ls_engine_reads_samples(s->engine))
        return run_all(s, NULL, ls_dataset_info(task->test)->count, console, totals, confusion);
    if (!s->eval.open)
        LS_TRY(ls_device_dataset_open(&s->eval, s->engine, &s->engine->eval, task->test, &task->test_augment));
    LS_TRY(ls_task_test_loader(task, o, s->engine, s->eval.form, &loader));
    ls_feed_pin(s->engine, loader);
    enum ls_status st = run_all(s, loader, ls_dataset_info(task->test)->count, console, totals, confusion);
    if (st != LS_OK)
        ls_step_evaluate(s, NULL, totals); /* the last pass may still read its input */
    if (st != LS_OK && s->engine->split)   /* the others would wait for our rows */
        ls_comm_abort(s->engine->comm, st, NULL);
    *waited = ls_loader_waited(loader);
    ls_feed_unpin(s->engine, loader);
    ls_loader_free(loader);
    return st;
}

/* A rank that cannot read a sample does not block the others. All ranks return the same error, and rank 0 prints it. */
static enum ls_status evaluate_all(struct ls_stepper *s, const struct ls_task *task, const struct ls_options *o,
                                   struct ls_console *console, struct ls_totals *totals, double *waited,
                                   struct ls_confusion *confusion)
{
    struct ls_comm *comm = s->engine->comm;
    bool mute = comm && ls_comm_rank(comm) > 0;
    if (mute)
        ls_log_mute(1);
    enum ls_status st = ls_rank_reduce_status(comm, evaluate_own(s, task, o, console, totals, waited, confusion));
    return mute ? ls_rank_reduce_unmute(st) : st;
}

enum ls_status ls_evaluate(struct ls_stepper *s, const struct ls_task *task, const struct ls_options *o,
                           struct ls_console *console, struct ls_report *r, struct ls_confusion *confusion)
{
    struct ls_totals totals = {0};
    int64_t count = ls_dataset_info(task->test)->count, batch = task->size.batch;
    double start = ls_now(), waited = 0;
    if (confusion)
        LS_TRY(ls_confusion_open(confusion, s->engine));
    LS_TRY(evaluate_all(s, task, o, console, &totals, &waited, confusion));
    LS_TRY(ls_rank_reduce_totals(s->engine->comm, &totals));
    if (confusion)
        LS_TRY(ls_confusion_reduce(confusion, s->engine->comm));
    bool skips = strcmp(o->on_bad_sample, "skip") == 0;
    if (skips && totals.samples == 0)
        return ls_fail(LS_BAD_INPUT, "%s: none of the %lld samples to evaluate can be read (`lockstep data` says why)",
                       o->eval_data ? o->eval_data : o->data, (long long)count);
    if (totals.samples != count && !skips)
        return ls_fail(LS_FAILED, "evaluation saw %lld of %lld samples", (long long)totals.samples, (long long)count);
    ls_totals_report(&totals, r);
    r->counts_broken = skips;
    r->broken = count - totals.samples;
    r->step_in_epoch = r->steps_per_epoch = (count + batch - 1) / batch;
    r->seconds = ls_now() - start;
    r->input_seconds = waited;
    r->compute_seconds = r->seconds - waited;
    r->update_seconds = 0;
    return LS_OK;
}
