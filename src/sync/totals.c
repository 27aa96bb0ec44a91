#include "sync/totals.h"

#include <math.h>

void ls_totals_add(struct ls_totals *sum, const struct ls_totals *more)
{
    sum->loss += more->loss;
    sum->top1 += more->top1;
    sum->top5 += more->top5;
    sum->samples += more->samples;
    sum->stop = more->stop > sum->stop ? more->stop : sum->stop;
}

void ls_totals_count(struct ls_totals *totals, const float *loss, const int32_t *rank, int64_t samples)
{
    for (int64_t i = 0; i < samples; i++) {
        totals->loss += rint((double)loss[i] * 0x1p24) * 0x1p-24; /* SYNC-3 */
        totals->top1 += rank[i] == 0;
        totals->top5 += rank[i] >= 0 && rank[i] < 5;
        totals->samples += rank[i] >= 0;
    }
}
