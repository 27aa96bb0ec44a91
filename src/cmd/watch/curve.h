/* A curve over steps in constant memory: means over bins of equal width. When a step lies behind the last bin, pairs of bins
 * are joined and the width doubles. */
#ifndef LS_CMD_WATCH_CURVE_H
#define LS_CMD_WATCH_CURVE_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_CURVE_BINS = 2048 };

struct ls_curve {
    double sum[LS_CURVE_BINS];
    int64_t count[LS_CURVE_BINS];
    int64_t width; /* steps of a bin; 0: nothing was added yet */
    int64_t last;  /* the largest step */
};

/* Adds a value. Values that are not finite and steps below 0 are ignored. */
void ls_curve_add(struct ls_curve *c, int64_t step, double value);
/* Returns the mean over the steps from `from` to before `to`, or NaN if there are none. The bounds are rounded to bins. */
double ls_curve_mean(const struct ls_curve *c, int64_t from, int64_t to);

#endif
