#include "cmd/sweep/outcome.h"
#include "base/files/file.h"
#include "base/log.h"

#include <math.h>

void ls_outcome_clear(struct ls_outcome *o)
{
    *o = (struct ls_outcome){.train_loss = NAN,
                             .eval_loss = NAN,
                             .top1 = NAN,
                             .top5 = NAN,
                             .best_top1 = NAN,
                             .target_seconds = NAN,
                             .last_loss = NAN};
    for (int i = 0; i < LS_GOAL_RUNGS; i++)
        o->rung[i] = NAN;
}

static void add_area(struct ls_outcome *o, double loss, double samples, double seconds)
{
    double height = (loss + o->last_loss) / 2;
    if (isnan(o->last_loss)) {
        o->first_samples = samples;
    } else {
        o->area_steps += height;
        o->area_samples += height * (samples - o->last_samples);
        o->area_seconds += height * (seconds - o->last_seconds);
    }
    o->last_loss = loss;
    o->last_samples = samples;
    o->last_seconds = seconds;
}

static void add_step(struct ls_outcome *o, const struct ls_record *r)
{
    int64_t samples = r->samples > 0 ? r->samples : 0;
    double seconds = isfinite(r->seconds) ? r->seconds : 0;
    o->step_seconds += seconds;
    o->seconds += seconds;
    o->is_diverged = o->is_diverged || !isfinite(r->loss);
    if (isfinite(r->loss))
        add_area(o, r->loss, (double)(o->samples + samples), o->step_seconds);
    if (r->epoch != o->epoch) {
        o->epoch = r->epoch;
        o->epoch_samples = 0;
        o->train_loss = NAN;
    }
    if (isfinite(r->loss) && samples > 0) {
        double before = o->epoch_samples > 0 ? o->train_loss * (double)o->epoch_samples : 0;
        o->epoch_samples += samples;
        o->train_loss = (before + r->loss * (double)samples) / (double)o->epoch_samples;
    }
    o->samples += samples;
    o->steps = r->step;
}

/* Smaller is better. */
static double metric_of(enum ls_goal_metric metric, const struct ls_record *r)
{
    return metric == LS_GOAL_LOSS ? r->loss : metric == LS_GOAL_TOP1 ? -r->top1 : -r->top5;
}

/* r is an epoch or an evaluation. */
static void check_goals(struct ls_outcome *o, const struct ls_goals *goals, const struct ls_record *r)
{
    double wanted = goals->target == LS_GOAL_LOSS ? goals->target_value : -goals->target_value;
    if (goals->has_target && isnan(o->target_seconds) && metric_of(goals->target, r) <= wanted)
        o->target_seconds = o->seconds;
}

static void check_rungs(struct ls_outcome *o, const struct ls_goals *goals, const struct ls_record *r)
{
    for (int i = 0; i < goals->n_rungs; i++)
        if (goals->rung_epochs[i] == r->epoch)
            o->rung[i] = metric_of(goals->rung, r);
}

static void add_evaluation(struct ls_outcome *o, const struct ls_goals *goals, const struct ls_record *r)
{
    if (isnan(o->eval_loss) && isnan(o->top1)) /* the goals of a trial that evaluates are those of evaluations */
        o->target_seconds = NAN;
    o->seconds += isfinite(r->seconds) ? r->seconds : 0;
    o->eval_loss = r->loss;
    o->top1 = r->top1;
    o->top5 = r->top5;
    o->best_top1 = fmax(o->best_top1, r->top1); /* fmax passes over NaN */
    check_goals(o, goals, r);
    check_rungs(o, goals, r);
}

void ls_outcome_add(struct ls_outcome *o, const struct ls_goals *goals, const struct ls_record *r)
{
    if (r->kind == LS_RECORD_STEP) {
        add_step(o, r);
    } else if (r->kind == LS_RECORD_EPOCH) {
        o->epochs = r->epoch;
        check_rungs(o, goals, r);
        if (isnan(o->eval_loss))
            check_goals(o, goals, r);
    } else if (r->kind == LS_RECORD_EVAL) {
        add_evaluation(o, goals, r);
    }
}

struct visit {
    struct ls_outcome *o;
    const struct ls_goals *goals;
};

static enum ls_status visit_record(const struct ls_record *r, void *context)
{
    struct visit *v = context;
    ls_outcome_add(v->o, v->goals, r);
    return LS_OK;
}

void ls_outcome_read(struct ls_outcome *o, const struct ls_goals *goals, const char *path)
{
    struct visit v = {o, goals};
    struct ls_metrics_tally tally;
    ls_outcome_clear(o);
    if (!ls_file_exists(path))
        return;
    if (ls_metrics_read(path, visit_record, &v, &tally) == LS_OK && tally.broken > 0)
        ls_warn("%s:%lld: not a line of metrics; %lld such lines are left out", path, (long long)tally.first_broken,
                (long long)tally.broken);
}

double ls_outcome_final_loss(const struct ls_outcome *o)
{
    return o->is_diverged ? NAN : isnan(o->eval_loss) ? o->train_loss : o->eval_loss;
}

double ls_outcome_loss_area(const struct ls_outcome *o)
{
    double width = o->last_samples - o->first_samples;
    if (isnan(o->last_loss) || o->is_diverged)
        return NAN;
    return width > 0 ? o->area_samples / width : o->last_loss;
}

void ls_outcome_follow(struct ls_outcome *o, struct ls_outcome_tail *tail, const struct ls_goals *goals,
                       const char *path)
{
    struct visit v = {o, goals};
    bool muted = ls_log_mute(true); /* a file that is being replaced is read the next time */
    if (tail->is_open && ls_metrics_reader_is_stale(&tail->reader))
        ls_outcome_close(tail);
    if (!tail->is_open && ls_file_exists(path)) {
        ls_outcome_clear(o);
        tail->is_open = ls_metrics_reader_open(&tail->reader, path) == LS_OK;
    }
    if (tail->is_open)
        ls_metrics_reader_read(&tail->reader, visit_record, &v);
    ls_log_mute(muted);
}

void ls_outcome_close(struct ls_outcome_tail *tail)
{
    if (tail->is_open)
        ls_metrics_reader_close(&tail->reader);
    *tail = (struct ls_outcome_tail){0};
}
