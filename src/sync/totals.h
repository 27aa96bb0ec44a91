/* What is counted over the samples of a step or an evaluation.
 *
 *   SYNC-3  A sample's loss is rounded to 2^-24 before it is counted: sums of up to 2^29 are then exact, in any order. */
#ifndef LS_SYNC_TOTALS_H
#define LS_SYNC_TOTALS_H

#include <stdint.h>

struct ls_totals {
    double loss;
    int64_t top1, top5, samples;
    int64_t stop; /* not a sum but the largest: the signal to stop by, 0: none */
};

void ls_totals_add(struct ls_totals *sum, const struct ls_totals *more);
/* Count `samples` samples, with each one's loss and the rank of its label among the scores. A rank of -1
 * marks a sample that was left out: it has loss 0 and is not counted. */
void ls_totals_count(struct ls_totals *totals, const float *loss, const int32_t *rank, int64_t samples);

#endif
