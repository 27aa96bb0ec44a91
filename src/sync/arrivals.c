#include "sync/arrivals.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 32, DRAWS = 64, LIMITS = 24 };
#define FADE 0.85 /* weight of a round, relative to the one after it */
#define SLACK 1.1 /* a round may take this much longer than one that was seen */

/* The newest round is the last. */
struct ls_rounds {
    double seconds[WINDOW];
    int n;
};

/* --- open, close, note ------------------------------------------------------------------------------------------ */

/* Each worker draws every stratum once, in an order of its own. */
static void shuffle(unsigned char *strata, int worker)
{
    uint64_t stream = ls_random_stream(LS_RANDOM_ARRIVALS, (uint64_t)worker, 0, 0);
    for (int i = 0; i < DRAWS; i++) {
        int j = (int)ls_random_below(0, stream, (uint64_t)i, (uint64_t)i + 1);
        strata[i] = strata[j];
        strata[j] = (unsigned char)i;
    }
}

enum ls_status ls_arrivals_open(struct ls_arrivals *a, int workers)
{
    size_t n = (size_t)workers;
    *a = (struct ls_arrivals){.workers = workers};
    a->rounds = ls_alloc(n, sizeof *a->rounds);
    a->strata = ls_alloc(n * DRAWS, 1);
    a->times = ls_alloc(n * DRAWS, sizeof *a->times);
    a->sorted = ls_alloc(n * DRAWS, sizeof *a->sorted);
    a->gained = ls_alloc(n + 1, sizeof *a->gained);
    a->latest = ls_alloc(n + 1, sizeof *a->latest);
    if (!a->rounds || !a->strata || !a->times || !a->sorted || !a->gained || !a->latest) {
        ls_arrivals_close(a);
        return LS_FAILED;
    }
    for (int w = 0; w < workers; w++)
        shuffle(a->strata + (size_t)w * DRAWS, w);
    return LS_OK;
}

void ls_arrivals_close(struct ls_arrivals *a)
{
    ls_free(a->rounds);
    ls_free(a->strata);
    ls_free(a->times);
    ls_free(a->sorted);
    ls_free(a->gained);
    ls_free(a->latest);
    *a = (struct ls_arrivals){0};
}

void ls_arrivals_note(struct ls_arrivals *a, int worker, double seconds)
{
    struct ls_rounds *r = &a->rounds[worker];
    if (r->n == WINDOW)
        memmove(r->seconds, r->seconds + 1, --r->n * sizeof *r->seconds);
    r->seconds[r->n++] = seconds;
}

/* --- drawn steps ------------------------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct weighted {
    double seconds, weight;
};

static int shortest_first(const void *a, const void *b)
{
    return ascending(&((const struct weighted *)a)->seconds, &((const struct weighted *)b)->seconds);
}

/* Puts DRAWS arrivals of a worker into column `column` of the table: the quantiles of its rounds, shuffled. */
static void draw(struct ls_arrivals *a, int worker, double start, int column, int columns)
{
    const struct ls_rounds *r = &a->rounds[worker];
    struct weighted rounds[WINDOW];
    double sum = 0, weight = 1, upto = 0;
    for (int i = r->n - 1; i >= 0; i--, weight *= FADE) {
        rounds[i] = (struct weighted){r->seconds[i], weight};
        sum += weight;
    }
    qsort(rounds, (size_t)r->n, sizeof *rounds, shortest_first);
    for (int i = 0, stratum = 0; i < r->n; i++) {
        upto += rounds[i].weight;
        for (; stratum < DRAWS && (i == r->n - 1 || stratum + 0.5 < DRAWS * upto / sum); stratum++)
            a->times[a->strata[worker * DRAWS + stratum] * columns + column] = start + rounds[i].seconds;
    }
}

/* Draws the arrivals of all workers that take part, each step's in ascending order. Returns their number; 0 when a
 * worker is unknown. */
static int draw_steps(struct ls_arrivals *a, const double *start, int present)
{
    int column = 0;
    for (int w = 0; w < a->workers; w++) {
        if (!isfinite(start[w]))
            continue;
        if (a->rounds[w].n == 0)
            return 0;
        draw(a, w, start[w], column++, present);
    }
    for (int d = 0; d < DRAWS; d++)
        qsort(a->times + d * present, (size_t)present, sizeof *a->times, ascending);
    return present;
}

/* --- the best rule ---------------------------------------------------------------------------------------------- */

/* Adds a drawn step to the sums for each k: what it gains and when it closes, with this limit. */
static void close_at(const struct ls_arrivals *a, const double *times, int n, int least, double limit)
{
    int came = 0;
    while (came < n && times[came] <= limit)
        came++;
    for (int k = least; k <= n; k++) {
        int gain = came < k ? came : k;
        double end = came < k ? limit : times[k - 1];
        a->gained[k] += gain > least ? gain : least;
        a->latest[k] += end > times[least - 1] ? end : times[least - 1];
    }
}

/* Tries one limit with every k. Equal rates: the larger k, which uses more samples. */
static void try_limit(const struct ls_arrivals *a, int n, int least, double limit, struct ls_arrivals_plan *best)
{
    memset(a->gained, 0, (size_t)(n + 1) * sizeof *a->gained);
    memset(a->latest, 0, (size_t)(n + 1) * sizeof *a->latest);
    for (int d = 0; d < DRAWS; d++)
        close_at(a, a->times + d * n, n, least, limit);
    for (int k = least; k <= n; k++) {
        double rate = a->latest[k] > 0 ? a->gained[k] / a->latest[k] : 0;
        if (rate > best->rate || (rate == best->rate && k > best->k))
            *best = (struct ls_arrivals_plan){k, limit, rate};
    }
}

struct ls_arrivals_plan ls_arrivals_plan(struct ls_arrivals *a, const double *start, int least)
{
    int present = 0;
    for (int w = 0; w < a->workers; w++)
        present += isfinite(start[w]);
    struct ls_arrivals_plan best = {.k = present > least ? present : least, .until = INFINITY};
    if (present < least || draw_steps(a, start, present) == 0)
        return best;
    size_t all = (size_t)(present * DRAWS);
    memcpy(a->sorted, a->times, all * sizeof *a->sorted);
    qsort(a->sorted, all, sizeof *a->sorted, ascending);
    for (size_t i = LIMITS; i >= 1; i--) /* equal rates: the longest limit */
        try_limit(a, present, least, SLACK * a->sorted[i * all / LIMITS - 1], &best);
    return best;
}
