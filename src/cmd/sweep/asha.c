/* Which trial is next. With successive halving (ASHA: asynchronous, so that no slot waits) a trial is trained to the epoch
 * of a rung and paused there. One in `factor` of those that have reached a rung goes on to the next one. All trials have the
 * same --epochs from the start, so that schedules are those of whole runs, and a paused trial resumes to the bits of one
 * that was never paused (S1). */
#include "cmd/sweep/sweep.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>

enum ls_status ls_asha_rungs(struct ls_sweep *s)
{
    struct ls_goals *g = &s->goals;
    if ((double)s->grace >= s->o.epochs)
        return ls_fail(LS_USAGE,
                       "--asha: the first decision is after %" PRId64 " epoch%s, and trials have only %g"
                       "; give more --epochs",
                       s->grace, s->grace == 1 ? "" : "s", s->o.epochs);
    for (int64_t epoch = s->grace; (double)epoch < s->o.epochs && g->n_rungs < LS_GOAL_RUNGS; epoch *= s->factor)
        g->rung_epochs[g->n_rungs++] = epoch;
    return LS_OK;
}

/* Whether the trial counts at rung k. One that diverged on its way there counts as the worst. */
static bool is_member(const struct ls_sweep *s, const struct ls_trial *t, int k)
{
    const int64_t *epochs = s->goals.rung_epochs;
    if (t->state == LS_TRIAL_PLANNED)
        return false;
    if (t->state == LS_TRIAL_RUNNING && t->until > 0 && epochs[k] >= t->until)
        return false; /* its evaluation may be under way */
    bool diverged = t->state == LS_TRIAL_DIVERGED && (k == 0 || t->outcome.epochs >= epochs[k - 1]);
    return t->outcome.epochs >= epochs[k] || diverged;
}

static double score(const struct ls_trial *t, int k)
{
    return isnan(t->outcome.rung[k]) ? INFINITY : t->outcome.rung[k];
}

/* Whether the trial waits at rung k for a decision. */
static bool waits_at(const struct ls_sweep *s, const struct ls_trial *t, int k)
{
    return t->state == LS_TRIAL_PAUSED && !t->is_waiting && t->until == s->goals.rung_epochs[k] &&
           t->outcome.epochs >= t->until;
}

/* The best trial that waits at rung k; NULL: none. *better: the number of trials at this rung that are better. */
static struct ls_trial *best_at(struct ls_sweep *s, int k, int *members, int *better)
{
    struct ls_trial *best = NULL;
    *members = *better = 0;
    for (int i = 0; i < s->n_trials; i++) {
        struct ls_trial *t = &s->trials[i];
        *members += is_member(s, t, k);
        if (waits_at(s, t, k) && (!best || score(t, k) < score(best, k)))
            best = t;
    }
    for (int i = 0; best && i < s->n_trials; i++) {
        const struct ls_trial *t = &s->trials[i];
        bool before = score(t, k) < score(best, k) || (score(t, k) == score(best, k) && t < best);
        *better += is_member(s, t, k) && before;
    }
    return best;
}

static struct ls_trial *go_on(struct ls_sweep *s, struct ls_trial *t, int k)
{
    t->until = k + 1 < s->goals.n_rungs ? s->goals.rung_epochs[k + 1] : 0;
    return t;
}

/* A trial among the best `members / factor` of its rung, from the highest rung on. */
static struct ls_trial *promoted(struct ls_sweep *s)
{
    for (int k = s->goals.n_rungs - 1; k >= 0; k--) {
        int members, better;
        struct ls_trial *t = best_at(s, k, &members, &better);
        if (t && better < members / s->factor && isfinite(score(t, k)))
            return go_on(s, t, k);
    }
    return NULL;
}

/* With few trials no rung may have `factor` of them. Then the best of the highest rung goes on, so that at least one
 * trial is trained to its end. */
static struct ls_trial *last_resort(struct ls_sweep *s)
{
    for (int i = 0; i < s->n_trials; i++)
        if (s->trials[i].state == LS_TRIAL_RUNNING || s->trials[i].state == LS_TRIAL_DONE)
            return NULL;
    for (int k = s->goals.n_rungs - 1; k >= 0; k--) {
        int members, better;
        struct ls_trial *t = best_at(s, k, &members, &better);
        if (t)
            return go_on(s, t, k);
    }
    return NULL;
}

/* The first trial that this process is to start or resume. */
static struct ls_trial *first_waiting(struct ls_sweep *s, bool begun)
{
    for (int i = 0; i < s->n_trials; i++)
        if (s->trials[i].is_waiting && (s->trials[i].state != LS_TRIAL_PLANNED) == begun)
            return &s->trials[i];
    return NULL;
}

struct ls_trial *ls_sweep_next(struct ls_sweep *s)
{
    struct ls_trial *t = first_waiting(s, true);
    if (!t && s->has_asha)
        t = promoted(s);
    if (!t) {
        t = first_waiting(s, false);
        if (t && s->has_asha)
            t->until = s->goals.rung_epochs[0];
    }
    return t || !s->has_asha ? t : last_resort(s);
}
