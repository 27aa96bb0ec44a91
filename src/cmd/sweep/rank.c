#include "cmd/sweep/sweep.h"
#include "report/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double ls_rank_value(const struct ls_sweep *s, const struct ls_outcome *o)
{
    switch (s->rank_by) {
    case LS_RANK_BY_TIME:
        return o->target_seconds;
    case LS_RANK_BY_LOSS:
        return ls_outcome_final_loss(o);
    case LS_RANK_BY_AREA:
        return ls_outcome_loss_area(o);
    case LS_RANK_BY_TOP1:
        return -o->top1;
    }
    return NAN;
}

/* NaN is last. */
static int compare(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

/* Finished trials come first, diverged ones last. */
static int class_of(const struct ls_trial *t)
{
    static const int classes[] = {
        [LS_TRIAL_DONE] = 0,    [LS_TRIAL_PAUSED] = 1, [LS_TRIAL_RUNNING] = 1, [LS_TRIAL_STOPPED] = 2,
        [LS_TRIAL_PLANNED] = 3, [LS_TRIAL_FAILED] = 4, [LS_TRIAL_DIVERGED] = 5};
    return classes[t->state];
}

struct key {
    const struct ls_trial *trial;
    double value, loss;
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    const struct ls_trial *t = x->trial, *u = y->trial;
    int order = class_of(t) - class_of(u);
    if (order == 0 && t->state != LS_TRIAL_DONE)
        order = (t->outcome.epochs < u->outcome.epochs) - (t->outcome.epochs > u->outcome.epochs);
    if (order == 0)
        order = compare(x->value, y->value);
    if (order == 0)
        order = compare(x->loss, y->loss);
    return order ? order : t->number - u->number;
}

static enum ls_status rank_trials(struct ls_sweep *s, struct ls_ranking *r)
{
    struct key *keys = ls_alloc((size_t)s->n_trials, sizeof *keys);
    r->order = ls_alloc((size_t)s->n_trials, sizeof *r->order);
    for (int i = 0; keys && r->order && i < s->n_trials; i++)
        keys[i] = (struct key){&s->trials[i], ls_rank_value(s, &s->trials[i].outcome),
                               ls_outcome_final_loss(&s->trials[i].outcome)};
    if (keys && r->order)
        qsort(keys, (size_t)s->n_trials, sizeof *keys, compare_keys);
    for (int i = 0; keys && r->order && i < s->n_trials; i++) {
        r->order[i] = keys[i].trial;
        s->trials[keys[i].trial->number - 1].rank = i + 1;
    }
    ls_free(keys);
    return keys && r->order ? LS_OK : LS_FAILED;
}

/* --- groups of seeds ------------------------------------------------------------------------------------------------ */

static double loss_of(const struct ls_outcome *o)
{
    return ls_outcome_final_loss(o);
}

static double area_of(const struct ls_outcome *o)
{
    return ls_outcome_loss_area(o);
}

static double top1_of(const struct ls_outcome *o)
{
    return o->top1;
}

static double seconds_of(const struct ls_outcome *o)
{
    return o->seconds;
}

static double target_of(const struct ls_outcome *o)
{
    return o->target_seconds;
}

/* Over the finished trials that have the figure. Returns their number. */
static int figure_of(const struct ls_trial *trials, int n, double (*get)(const struct ls_outcome *), double *values,
                     struct ls_group_figure *f)
{
    struct ls_stats stats;
    int used = 0;
    *f = (struct ls_group_figure){NAN, NAN};
    for (int i = 0; i < n; i++)
        if (trials[i].state == LS_TRIAL_DONE && !isnan(get(&trials[i].outcome)))
            values[used++] = get(&trials[i].outcome);
    if (used > 0 && ls_stats_of(values, used, &stats) == LS_OK)
        *f = (struct ls_group_figure){stats.mean, used > 1 ? stats.deviation : NAN};
    return used;
}

static void fill_group(struct ls_group *g, const struct ls_trial *trials, int n, double *values)
{
    *g = (struct ls_group){.first = trials, .trials = n};
    for (int i = 0; i < n; i++)
        g->done += trials[i].state == LS_TRIAL_DONE;
    figure_of(trials, n, loss_of, values, &g->loss);
    figure_of(trials, n, area_of, values, &g->area);
    figure_of(trials, n, top1_of, values, &g->top1);
    figure_of(trials, n, seconds_of, values, &g->seconds);
    g->reached = figure_of(trials, n, target_of, values, &g->target);
}

/* Sorted in place by insertion: groups are few, and their order needs the sweep. */
static int compare_groups(const struct ls_sweep *s, const struct ls_group *a, const struct ls_group *b)
{
    const struct ls_group_figure *const by[][2] = {
        {&a->target, &b->target}, {&a->loss, &b->loss}, {&a->area, &b->area}};
    if (s->rank_by == LS_RANK_BY_TIME && a->reached != b->reached)
        return b->reached - a->reached;
    if (a->done != b->done)
        return b->done - a->done;
    if (s->rank_by == LS_RANK_BY_TOP1)
        return compare(-a->top1.mean, -b->top1.mean);
    int order = compare(by[s->rank_by][0]->mean, by[s->rank_by][1]->mean);
    return order ? order : compare(a->loss.mean, b->loss.mean);
}

/* The trials of a group are adjacent: the seed is the last axis. */
static enum ls_status rank_groups(const struct ls_sweep *s, struct ls_ranking *r)
{
    const struct ls_axis *last = s->n_axes > 0 ? &s->axes[s->n_axes - 1] : NULL;
    int seeds = last && strcmp(last->option->name, "seed") == 0 ? last->n : 1, n = s->n_trials / seeds;
    if (seeds < 2)
        return LS_OK;
    double *values = ls_alloc((size_t)seeds, sizeof *values);
    r->groups = ls_alloc((size_t)n, sizeof *r->groups);
    for (int i = 0; values && r->groups && i < n; i++) {
        struct ls_group g;
        int at = i;
        fill_group(&g, &s->trials[i * seeds], seeds, values);
        for (; at > 0 && compare_groups(s, &g, &r->groups[at - 1]) < 0; at--)
            r->groups[at] = r->groups[at - 1];
        r->groups[at] = g;
    }
    r->n_groups = values && r->groups ? n : 0;
    ls_free(values);
    return r->n_groups > 0 ? LS_OK : LS_FAILED;
}

enum ls_status ls_sweep_rank(struct ls_sweep *s, struct ls_ranking *r)
{
    *r = (struct ls_ranking){0};
    enum ls_status st = rank_trials(s, r);
    if (st == LS_OK)
        st = rank_groups(s, r);
    if (st != LS_OK)
        ls_ranking_release(r);
    return st;
}

void ls_ranking_release(struct ls_ranking *r)
{
    ls_free(r->order);
    ls_free(r->groups);
    *r = (struct ls_ranking){0};
}
