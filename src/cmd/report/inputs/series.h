/* A series of values over x, of any length, in constant memory. The x axis is cut into at most LS_SERIES_BUCKETS
 * buckets of equal width; when a point lies beyond the last one, the width doubles and neighbours merge. A bucket
 * keeps the extremes and the weighted mean, so that a spike of one step in ten million is still drawn. One pass is
 * enough, in any order of points, which a method that picks points (LTTB) needs two passes for. */
#ifndef LS_CMD_REPORT_SERIES_H
#define LS_CMD_REPORT_SERIES_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { LS_SERIES_BUCKETS = 512 };

struct ls_series_bucket {
    double x_first, x_last;
    double sum, weight; /* of the finite values */
    double min, max;
    int64_t n;    /* finite values */
    int64_t lost; /* values that are not finite */
};

/* Starts as {0}. */
struct ls_series {
    struct ls_series_bucket *buckets; /* owned; NULL: no point yet */
    double width;
    int used; /* buckets up to the last one with a point */
};

struct ls_point {
    double x, x_last;      /* the first and last x that are behind it */
    double mean, min, max; /* NaN if no value was finite */
    int64_t lost;          /* values that were not finite */
};

/* Adds a point with x >= 0; other points are ignored. A weight that is not positive counts as 1. */
enum ls_status ls_series_add(struct ls_series *c, double x, double y, double weight);
/* Writes at most `most` points in the order of x and returns their number. */
int ls_series_points(const struct ls_series *c, int most, struct ls_point points[LS_SERIES_BUCKETS]);
/* Returns the smallest and largest mean, or extreme if `spikes`; false if the curve has no finite value. */
bool ls_series_range(const struct ls_series *c, bool spikes, double *low, double *high);
/* Returns the last x; -1 if there is no point. */
double ls_series_end(const struct ls_series *c);
/* The mean over the last tenth of the points; NaN if there is none. */
double ls_series_tail(const struct ls_series *c);
void ls_series_release(struct ls_series *c);

#endif
