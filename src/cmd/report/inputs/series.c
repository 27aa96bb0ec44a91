#include "cmd/report/inputs/series.h"
#include "base/memory.h"

#include <math.h>

static bool is_empty(const struct ls_series_bucket *b)
{
    return b->n == 0 && b->lost == 0;
}

static void merge(struct ls_series_bucket *into, const struct ls_series_bucket *from)
{
    if (is_empty(from))
        return;
    if (is_empty(into)) {
        *into = *from;
        return;
    }
    into->x_first = fmin(into->x_first, from->x_first);
    into->x_last = fmax(into->x_last, from->x_last);
    if (from->n > 0) {
        into->min = into->n > 0 ? fmin(into->min, from->min) : from->min;
        into->max = into->n > 0 ? fmax(into->max, from->max) : from->max;
    }
    into->sum += from->sum;
    into->weight += from->weight;
    into->n += from->n;
    into->lost += from->lost;
}

static void widen(struct ls_series *c)
{
    for (int i = 0; i < LS_SERIES_BUCKETS; i++) {
        struct ls_series_bucket from = c->buckets[i];
        c->buckets[i] = (struct ls_series_bucket){0};
        merge(&c->buckets[i / 2], &from);
    }
    c->width *= 2;
    c->used = (c->used + 1) / 2;
}

enum ls_status ls_series_add(struct ls_series *c, double x, double y, double weight)
{
    if (!(x >= 0 && x < 1e18))
        return LS_OK;
    if (!c->buckets) {
        c->buckets = ls_alloc(LS_SERIES_BUCKETS, sizeof *c->buckets);
        c->width = 1;
        if (!c->buckets)
            return LS_FAILED;
    }
    while (x >= c->width * LS_SERIES_BUCKETS)
        widen(c);
    int i = (int)(x / c->width);
    if (!(weight > 0))
        weight = 1;
    struct ls_series_bucket one = {.x_first = x, .x_last = x};
    if (isfinite(y)) {
        one.sum = y * weight;
        one.weight = weight;
        one.min = one.max = y;
        one.n = 1;
    } else {
        one.lost = 1;
    }
    merge(&c->buckets[i], &one);
    c->used = i >= c->used ? i + 1 : c->used;
    return LS_OK;
}

int ls_series_points(const struct ls_series *c, int most, struct ls_point points[LS_SERIES_BUCKETS])
{
    int filled = 0, n = 0;
    for (int i = 0; i < c->used; i++)
        filled += !is_empty(&c->buckets[i]);
    int each = most > 0 && filled > most ? (filled + most - 1) / most : 1, taken = 0;
    struct ls_series_bucket sum = {0};
    for (int i = 0; i < c->used; i++) {
        if (is_empty(&c->buckets[i]))
            continue;
        merge(&sum, &c->buckets[i]);
        taken++;
        if (taken % each != 0 && taken < filled)
            continue;
        bool finite = sum.n > 0;
        points[n++] = (struct ls_point){.x = sum.x_first,
                                        .x_last = sum.x_last,
                                        .mean = finite ? sum.sum / sum.weight : NAN,
                                        .min = finite ? sum.min : NAN,
                                        .max = finite ? sum.max : NAN,
                                        .lost = sum.lost};
        sum = (struct ls_series_bucket){0};
    }
    return n;
}

bool ls_series_range(const struct ls_series *c, bool spikes, double *low, double *high)
{
    bool any = false;
    for (int i = 0; i < c->used; i++) {
        const struct ls_series_bucket *b = &c->buckets[i];
        if (b->n == 0)
            continue;
        double min = spikes ? b->min : b->sum / b->weight, max = spikes ? b->max : b->sum / b->weight;
        *low = any ? fmin(*low, min) : min;
        *high = any ? fmax(*high, max) : max;
        any = true;
    }
    return any;
}

double ls_series_end(const struct ls_series *c)
{
    for (int i = c->used - 1; i >= 0; i--)
        if (!is_empty(&c->buckets[i]))
            return c->buckets[i].x_last;
    return -1;
}

double ls_series_tail(const struct ls_series *c)
{
    struct ls_point points[LS_SERIES_BUCKETS];
    int n = ls_series_points(c, 40, points), used = 0;
    double sum = 0;
    for (int i = n - 1; i >= 0 && used < (n + 9) / 10; i--)
        if (isfinite(points[i].mean)) {
            sum += points[i].mean;
            used++;
        }
    return used > 0 ? sum / used : NAN;
}

void ls_series_release(struct ls_series *c)
{
    ls_free(c->buckets);
    *c = (struct ls_series){0};
}
