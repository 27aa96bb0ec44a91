/* --stragglers: workers that sleep in each step, so that strategies can be compared on one machine.
 *
 * SECONDS[,WHO*FACTOR[@FROM-TO]]...: each worker sleeps SECONDS, give or take a tenth, before it combines its gradients.
 * WHO is a rank, or pX: each rank with probability X, drawn anew in each step. In steps FROM to TO, counted from 1, or in
 * all, it sleeps FACTOR times as long. The draws depend on --seed, the rank and the step only. */
#ifndef LS_EXEC_STRAGGLERS_H
#define LS_EXEC_STRAGGLERS_H

#include "config/options.h"

enum { LS_STRAGGLERS = 32 };

/* All zero: no sleep. */
struct ls_stragglers {
    double seconds;
    uint64_t seed;
    int rank;
    int n;
    struct ls_straggler {
        int rank; /* -1: each, with probability `share` */
        double share;
        double factor;
        uint64_t from, to; /* steps from 0, both included */
    } list[LS_STRAGGLERS];
};

enum ls_status ls_stragglers_init(struct ls_stragglers *s, const struct ls_options *o, int rank, int size);
/* How long this process sleeps in a step (from 0). */
double ls_stragglers_seconds(const struct ls_stragglers *s, uint64_t step);
/* Sleeps so long. Returns the seconds that passed. */
double ls_stragglers_sleep(const struct ls_stragglers *s, uint64_t step);

#endif
