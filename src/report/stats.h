/* Statistics over repetitions. */
#ifndef LS_REPORT_STATS_H
#define LS_REPORT_STATS_H

#include "base/status.h"

struct ls_stats {
    int n;
    double min, max, median, mean;
    double deviation; /* sample standard deviation (n - 1); 0 if n < 2 */
    double variation; /* deviation / mean; 0 if the mean is 0 */
};

/* n >= 1. Does not change values. */
enum ls_status ls_stats_of(const double *values, int n, struct ls_stats *stats);

#endif
