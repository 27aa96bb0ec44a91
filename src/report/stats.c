#include "report/stats.h"

#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum ls_status ls_stats_of(const double *values, int n, struct ls_stats *stats)
{
    if (n < 1)
        return ls_fail(LS_FAILED, "statistics need at least one value");
    double *sorted = ls_alloc((size_t)n, sizeof *sorted);
    if (!sorted)
        return LS_FAILED;
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    struct ls_stats s = {.n = n, .min = sorted[0], .max = sorted[n - 1]};
    s.median = 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
    ls_free(sorted);

    for (int i = 0; i < n; i++)
        s.mean += values[i] / n;
    double squares = 0;
    for (int i = 0; i < n; i++)
        squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
    s.variation = s.mean != 0 ? s.deviation / s.mean : 0;
    *stats = s;
    return LS_OK;
}
