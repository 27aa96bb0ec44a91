#include "cmd/watch/curve.h"

#include <math.h>
#include <string.h>

static void widen(struct ls_curve *c)
{
    for (int i = 0; i < LS_CURVE_BINS / 2; i++) {
        c->sum[i] = c->sum[2 * i] + c->sum[2 * i + 1];
        c->count[i] = c->count[2 * i] + c->count[2 * i + 1];
    }
    memset(c->sum + LS_CURVE_BINS / 2, 0, sizeof c->sum / 2);
    memset(c->count + LS_CURVE_BINS / 2, 0, sizeof c->count / 2);
    c->width *= 2;
}

void ls_curve_add(struct ls_curve *c, int64_t step, double value)
{
    if (!isfinite(value) || step < 0 || step > INT64_MAX / 4)
        return;
    c->width = c->width ? c->width : 1;
    while (step / c->width >= LS_CURVE_BINS)
        widen(c);
    c->sum[step / c->width] += value;
    c->count[step / c->width]++;
    c->last = step > c->last ? step : c->last;
}

double ls_curve_mean(const struct ls_curve *c, int64_t from, int64_t to)
{
    double sum = 0;
    int64_t count = 0;
    if (c->width == 0)
        return NAN;
    int64_t first = (from + c->width - 1) / c->width, end = (to + c->width - 1) / c->width;
    for (int64_t i = first; i < end && i < LS_CURVE_BINS; i++) {
        sum += c->sum[i];
        count += c->count[i];
    }
    return count > 0 ? sum / (double)count : NAN;
}
