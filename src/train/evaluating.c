/* Evaluations of a run: when they come, and what they change. */
#include "base/log.h"
#include "exec/averages.h"
#include "base/system/clock.h"
#include "train/evaluation/bn_estimate.h"
#include "train/evaluation/evaluate.h"
#include "train/trainer.h"

#include <inttypes.h>

bool ls_trainer_eval_left(const struct ls_trainer *t)
{
    uint64_t every = (uint64_t)t->o->eval_every, step = t->state.step;
    bool due = every > 0 ? step > 0 && step % every == 0 : ls_trainer_epoch_over(t);
    return t->task.test && due && t->state.evaluated != step;
}

bool ls_trainer_stops_early(const struct ls_trainer *t)
{
    return t->o->early_stop > 0 && t->state.stale >= t->o->early_stop;
}

static enum ls_status write_confusion(const struct ls_trainer *t, const struct ls_confusion *c)
{
    struct ls_class_names names = {.names = t->card.class_names, .named = t->card.named};
    char *path = t->root && c->counts ? ls_format("%s/confusion.json", t->run) : NULL;
    if (!path)
        return LS_OK;
    enum ls_status st = ls_confusion_write_json(c, &names, &t->task, (int64_t)t->state.step, path);
    ls_free(path);
    return st;
}

/* All processes know it. */
static enum ls_status diverged(struct ls_trainer *t, const char *what, const char *of, const char *option)
{
    if (!t->root)
        return ls_trainer_all_know(t, LS_DIVERGED);
    ls_console_end(&t->console);
    enum ls_status st = ls_fail(LS_DIVERGED,
                                "step %" PRIu64 ": %s of %s (%s) is not finite: training diverged; try a lower --lr "
                                "(now %g) or a --warmup",
                                t->state.step, what, of, option, ls_schedule_lr(&t->schedule, t->state.step));
    ls_trainer_await_saved(t);
    ls_trainer_name_checkpoint(t);
    return ls_trainer_all_know(t, st);
}

enum ls_status ls_trainer_show_averages(struct ls_trainer *t)
{
    const char *bad;
    LS_TRY(ls_averages_check(&t->engine, &bad));
    return bad ? diverged(t, "the average", bad, "--ema") : ls_averages_swap(&t->engine);
}

/* --bn-samples */
static enum ls_status estimate_bn(struct ls_trainer *t)
{
    const char *bad;
    double start = ls_now();
    LS_TRY(ls_bn_estimate(&t->engine, &t->task, t->o, t->stepper.train.form, &t->console, &bad));
    t->evaluating += ls_now() - start;
    return bad ? diverged(t, "a batch statistic", bad, "--bn-samples") : LS_OK;
}

enum ls_status ls_trainer_evaluate(struct ls_trainer *t, bool *better)
{
    struct ls_confusion confusion = {0};
    bool last = !ls_trainer_steps_left(t) || (t->o->early_stop > 0 && t->state.stale + 1 >= t->o->early_stop);
    struct ls_report r = {
        .step = (int64_t)t->state.step, .epoch = (int64_t)t->state.epoch, .epochs = ls_trainer_epochs(t)};
    LS_TRY(ls_step_collect(&t->stepper));
    ls_trainer_say_position(t, LS_STAGE_EVALUATE);
    t->task.loader_threads = t->loader ? ls_loader_pace(t->loader).threads : 0;
    LS_TRY(ls_trainer_show_averages(t));
    double begin = ls_trace_begin(t->stepper.track);
    enum ls_status st = estimate_bn(t);
    if (st == LS_OK)
        st = ls_evaluate(&t->stepper, &t->task, t->o, &t->console, &r, last ? &confusion : NULL);
    enum ls_status back = ls_averages_swap(&t->engine);
    st = st == LS_OK ? back : st;
    ls_trace_end(t->stepper.track, begin,
                 &(struct ls_slice){.kind = LS_SLICE_EVALUATE, .name = "evaluation", .number = (int64_t)t->state.step});
    if (st == LS_OK && last)
        st = write_confusion(t, &confusion);
    ls_confusion_release(&confusion);
    if (st != LS_OK)
        return st == LS_BAD_INPUT ? ls_trainer_all_know(t, st) : st;
    if (t->root)
        ls_console_eval(&t->console, &r);
    t->evaluating += r.seconds;
    t->last_eval = r;
    *better = r.top1 > t->state.best_top1;
    if (*better) {
        t->state.best_top1 = r.top1;
        t->state.best_step = t->state.step;
    }
    if (t->state.best_top5_step == 0 || r.top5 > t->state.best_top5) {
        t->state.best_top5 = r.top5;
        t->state.best_top5_step = t->state.step;
    }
    return LS_OK;
}

static void follow_loss(struct ls_trainer *t, double loss)
{
    double before = ls_schedule_lr(&t->schedule, t->state.step);
    ls_schedule_observe(&t->schedule, t->state.step, loss);
    t->state.schedule = t->schedule.memory;
    double after = ls_schedule_lr(&t->schedule, t->state.step);
    if (after < before && ls_schedule_observes(&t->schedule))
        ls_trainer_say(t,
                       "plateau: evaluations in a row without a lower loss: %" PRId64 "; rate %g from now on, was %g",
                       t->schedule.patience + 1, after, before);
}

enum ls_status ls_trainer_evaluate_and_follow(struct ls_trainer *t, bool *better)
{
    struct ls_state *s = &t->state;
    LS_TRY(ls_trainer_evaluate(t, better));
    s->evaluated = s->step;
    bool gain = t->last_eval.top1 > s->followed_top1;
    s->followed_top1 = gain ? t->last_eval.top1 : s->followed_top1;
    s->stale = gain ? 0 : s->stale + 1;
    follow_loss(t, t->last_eval.loss);
    if (ls_trainer_stops_early(t))
        ls_trainer_say(t, "early stop: evaluations in a row without a higher top-1 than %.2f%%: %" PRId64,
                       100 * s->followed_top1, s->stale);
    return LS_OK;
}
