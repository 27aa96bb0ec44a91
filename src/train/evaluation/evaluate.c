#include "train/evaluation/evaluate.h"
#include "train/evaluation/least.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/system/interrupt.h"
#include "exec/tta.h"

#include <string.h>

/* An evaluation under way. */
struct evaluation {
    struct ls_stepper *s;
    const struct ls_task *task;
    const struct ls_options *o;
    struct ls_console *console;
    int64_t count; /* samples of the set */
    struct ls_totals totals;
    double waited;
    struct ls_confusion *confusion; /* NULL: none */
    struct ls_least least;          /* with --tta least */
};

static bool has_glance(const struct evaluation *e)
{
    return e->s->engine->glance.program != NULL;
}

static enum ls_status next_slot(const struct evaluation *e, struct ls_loader *loader, const struct ls_slot **slot)
{
    double begin = ls_trace_begin(e->s->track);
    if (ls_interrupted() && !e->s->engine->comm)
        return LS_INTERRUPTED;
    LS_TRY(ls_step_evaluate_next(e->s, loader, slot));
    ls_trace_end(e->s->track, begin, &(struct ls_slice){.kind = LS_SLICE_INPUT, .name = "input"});
    return LS_OK;
}

static enum ls_status run_all(struct evaluation *e, struct ls_loader *loader)
{
    const int64_t *samples = has_glance(e) ? e->least.chosen : NULL;
    for (;;) {
        const struct ls_slot *slot;
        LS_TRY(next_slot(e, loader, &slot));
        LS_TRY(ls_step_evaluate(e->s, slot, &e->totals));
        if (!slot)
            return LS_OK;
        if (e->confusion && slot->valid > 0)
            LS_TRY(ls_confusion_add(e->confusion, e->s->engine, slot, samples));
        ls_console_progress(e->console, "evaluating", e->totals.samples, e->count);
    }
}

/* Evaluates the share of this process in one view. */
static enum ls_status glance_at_all(struct evaluation *e, struct ls_loader *loader)
{
    for (;;) {
        const struct ls_slot *slot;
        LS_TRY(next_slot(e, loader, &slot));
        if (!slot)
            return LS_OK;
        if (slot->valid > 0)
            LS_TRY(ls_least_glance(&e->least, e->s, slot));
    }
}

static enum ls_status open_images(const struct evaluation *e)
{
    struct ls_stepper *s = e->s;
    const struct ls_task *task = e->task;
    if (s->eval.open)
        return LS_OK;
    LS_TRY(ls_device_dataset_open(&s->eval, s->engine, &s->engine->eval, task->test, &task->test_augment));
    return has_glance(e) ? ls_device_dataset_share(&s->eval, &s->engine->glance, task->test, &task->test_augment)
                         : LS_OK;
}

static enum ls_status evaluate_read(struct evaluation *e, const struct ls_samples *some,
                                    enum ls_status (*run)(struct evaluation *, struct ls_loader *))
{
    struct ls_stepper *s = e->s;
    struct ls_loader *loader = NULL;
    LS_TRY(open_images(e));
    LS_TRY(ls_task_test_loader(e->task, e->o, s->engine, s->eval.form, some, &loader));
    ls_feed_pin(s->engine, loader);
    enum ls_status st = run(e, loader);
    if (st != LS_OK)
        ls_step_evaluate(s, NULL, &e->totals); /* the last pass may still read its input */
    e->waited += ls_loader_waited(loader);
    ls_feed_unpin(s->engine, loader);
    ls_loader_free(loader);
    return st;
}

/* Evaluates the share of this process: of all samples, or of those chosen. */
static enum ls_status evaluate_own(struct evaluation *e, const struct ls_samples *some,
                                   enum ls_status (*run)(struct evaluation *, struct ls_loader *))
{
    const struct ls_engine *engine = e->s->engine;
    enum ls_status st = ls_engine_reads_samples(engine) ? evaluate_read(e, some, run) : run(e, NULL);
    if (st != LS_OK && ls_engine_in_parts(engine)) /* the others would wait for our part of the model */
        ls_comm_abort(engine->comm, st, NULL);
    return st;
}

/* A rank that cannot read a sample does not block the others. All ranks return the same error, and rank 0 prints it. */
static enum ls_status evaluate_all(struct evaluation *e, const struct ls_samples *some,
                                   enum ls_status (*run)(struct evaluation *, struct ls_loader *))
{
    struct ls_comm *comm = e->s->engine->comm;
    bool mute = comm && ls_comm_rank(comm) > 0;
    if (mute)
        ls_log_mute(1);
    enum ls_status st = ls_rank_reduce_status(comm, evaluate_own(e, some, run));
    return mute ? ls_rank_reduce_unmute(st) : st;
}

/* All views for the samples that one view leaves least certain. */
static enum ls_status evaluate_least(struct evaluation *e)
{
    struct ls_tta tta;
    LS_TRY(ls_tta_parse(e->o->tta, &tta));
    LS_TRY(ls_least_open(&e->least, e->s->engine, e->count, e->confusion && e->confusion->counts));
    LS_TRY(evaluate_all(e, NULL, glance_at_all));
    LS_TRY(ls_least_choose(&e->least, tta.least, e->s->engine->comm));
    ls_least_settle(&e->least, &e->totals, e->confusion);
    return evaluate_all(e, &(struct ls_samples){e->least.chosen, e->least.n_chosen}, run_all);
}

enum ls_status ls_evaluate(struct ls_stepper *s, const struct ls_task *task, const struct ls_options *o,
                           struct ls_console *console, struct ls_report *r, struct ls_confusion *confusion)
{
    int64_t count = ls_dataset_info(task->test)->count, batch = task->size.batch;
    struct evaluation e = {.s = s, .task = task, .o = o, .console = console, .count = count, .confusion = confusion};
    double start = ls_now();
    if (confusion)
        LS_TRY(ls_confusion_open(confusion, s->engine));
    enum ls_status st = has_glance(&e) ? evaluate_least(&e) : evaluate_all(&e, NULL, run_all);
    ls_least_release(&e.least);
    LS_TRY(st);
    struct ls_totals totals = e.totals;
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
    r->input_seconds = e.waited;
    r->compute_seconds = r->seconds - e.waited;
    r->update_seconds = 0;
    return LS_OK;
}
