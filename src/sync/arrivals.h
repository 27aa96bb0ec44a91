/* When gradients will arrive: the prediction behind --cutoff-k auto.
 *
 * For each worker a window holds the seconds of its last rounds: from the server's answer to the worker's next push.
 * Recent rounds weigh more. A plan draws many possible steps from the windows and looks for the rule that gives the
 * most gradients per second: close the step when k gradients are there, or after `until` seconds with what is there.
 *
 *   SYNC-8  A plan is a function of the rounds noted, in their order, and of its arguments. It reads no clock. */
#ifndef LS_SYNC_ARRIVALS_H
#define LS_SYNC_ARRIVALS_H

#include "base/status.h"

struct ls_arrivals {
    int workers;
    struct ls_rounds *rounds;                 /* owned; one for each worker */
    unsigned char *strata;                    /* owned; for each worker, the order in which plans draw its rounds */
    double *times, *sorted, *gained, *latest; /* owned; room for a plan */
};

struct ls_arrivals_plan {
    int k;        /* gradients to wait for */
    double until; /* seconds after the step opened, when it closes with fewer; INFINITY: never, as nothing is known */
    double rate;  /* gradients per second that this gives on average; 0: unknown */
};

enum ls_status ls_arrivals_open(struct ls_arrivals *a, int workers);
/* May be called on a zeroed struct. */
void ls_arrivals_close(struct ls_arrivals *a);

/* A round of this worker took so many seconds. */
void ls_arrivals_note(struct ls_arrivals *a, int worker, double seconds);
/* Plans a step. start[w]: seconds after the step opened at which worker w begins its round; INFINITY: it takes no part.
 * The step counts `least` gradients at least. Where no round of a worker that takes part is known, or fewer than
 * `least` take part, the plan waits for all of them, or for `least`. */
struct ls_arrivals_plan ls_arrivals_plan(struct ls_arrivals *a, const double *start, int least);

#endif
