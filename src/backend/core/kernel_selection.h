/* Choosing one of several kernels that compute the same thing, so that the next start chooses the same one.
 *
 * Kernels add in different orders, so the choice decides the bits of a run, while measured times vary from start to start.
 *
 *   SELECT-1  Candidates come in a fixed order, the likely fastest first.
 *   SELECT-2  Candidates with equal results, bit for bit, form a group. Within a group the fastest wins, which changes no bit.
 *   SELECT-3  A later group wins over an earlier one only if it is faster by a margin, and by more than the noise of measuring.
 *             Times are compared in pairs taken one after the other, as often as it takes to be sure. In doubt the earlier
 *             group stays. */
#ifndef LS_BACKEND_CORE_KERNEL_SELECTION_H
#define LS_BACKEND_CORE_KERNEL_SELECTION_H

#include "base/status.h"

#include <stdint.h>

struct ls_kernel_selection {
    int n;                  /* candidates */
    const uint64_t *groups; /* equal numbers: equal results; NULL: each candidate is one group */
    double margin;          /* 1.5: one and a half times as fast */
    double noise;           /* the expected error of a ratio of two times; 0.1: 10 % */
    /* One measurement, in milliseconds; HUGE_VAL: the candidate cannot run after all. *ms is 0 at a candidate's first
     * measurement. Later ones come in pairs, of which there are many: they may be shorter. */
    enum ls_status (*time)(void *context, int candidate, double *ms);
    void *context;
};

/* *winner: -1 if no candidate can run. *ms: its time. */
enum ls_status ls_kernel_select(const struct ls_kernel_selection *c, int *winner, double *ms);

#endif
