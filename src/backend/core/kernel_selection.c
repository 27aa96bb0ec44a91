#include "backend/core/kernel_selection.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

enum { MOST = 64, FEWEST_PAIRS = 12, MOST_PAIRS = 24 };

static bool same_group(const struct ls_kernel_selection *c, int a, int b)
{
    return a == b || (c->groups && c->groups[a] == c->groups[b]);
}

/* The fastest candidate of the group of `first`, which is its first member. */
static int fastest_of_group(const struct ls_kernel_selection *c, const double *ms, int first)
{
    int best = first;
    for (int i = first + 1; i < c->n; i++)
        if (same_group(c, first, i) && ms[i] < ms[best])
            best = i;
    return best;
}

static bool begins_group(const struct ls_kernel_selection *c, int candidate)
{
    for (int i = 0; i < candidate; i++)
        if (same_group(c, i, candidate))
            return false;
    return true;
}

/* Is the rival faster by the margin? The logarithms of the ratios of paired times have a mean and a standard error. A mean
 * that is three errors below the margin settles the question. So does one that is three errors above it, after several
 * pairs, if the best times agree: on a busy machine, a few measurements may all fall into moments when another process
 * computes. */
static enum ls_status beats(const struct ls_kernel_selection *c, int holder, int rival, double *ms, bool *faster)
{
    double mean = 0, squares = 0, a = ms[holder], b = ms[rival];
    *faster = false;
    for (int pairs = 1; pairs <= MOST_PAIRS; pairs++) {
        if (pairs > 1) {
            LS_TRY(c->time(c->context, holder, &a));
            LS_TRY(c->time(c->context, rival, &b));
            ms[holder] = fmin(a, ms[holder]);
            ms[rival] = fmin(b, ms[rival]);
        }
        double ratio = log(a / b), before = mean;
        mean += (ratio - mean) / pairs;
        squares += (ratio - before) * (ratio - mean);
        /* the expected noise counts as two pairs */
        double error = sqrt((2 * c->noise * c->noise + squares) / (pairs + 1)) / sqrt(pairs);
        double distance = mean - log(c->margin);
        *faster = distance > 3 * error && pairs >= FEWEST_PAIRS && ms[holder] > c->margin * ms[rival];
        if (*faster || distance < -3 * error)
            return LS_OK;
    }
    return LS_OK;
}

enum ls_status ls_kernel_select(const struct ls_kernel_selection *c, int *winner, double *ms)
{
    double times[MOST];
    assert(c->n <= MOST);
    *winner = -1;
    for (int i = 0; i < c->n; i++) {
        times[i] = 0;
        LS_TRY(c->time(c->context, i, &times[i]));
    }
    for (int i = 0; i < c->n; i++) {
        if (!begins_group(c, i))
            continue;
        int rival = fastest_of_group(c, times, i);
        bool faster = *winner < 0;
        if (!(times[rival] < HUGE_VAL))
            continue;
        if (*winner >= 0)
            LS_TRY(beats(c, *winner, rival, times, &faster));
        if (faster)
            *winner = rival;
    }
    if (*winner >= 0)
        *ms = times[*winner];
    return LS_OK;
}
