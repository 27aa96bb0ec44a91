/* Where the time of a run goes, over all its ranks, and who is late. */
#ifndef LS_CMD_REPORT_TIME_SHARES_H
#define LS_CMD_REPORT_TIME_SHARES_H

#include "cmd/report/inputs/run_view.h"

struct ls_time_shares {
    const struct ls_run_view *run;
    double seconds; /* of all ranks; the parts are shares of it */
    double input, compute, exposed, late, update;
    double hidden; /* communication behind computing: not a part of the seconds, but a share of them */
    bool has_ranks;
    int ranks;
    int culprit;           /* the late rank; -1: none */
    double culprit_share;  /* of their time that the others wait for it */
    double batch;          /* samples a step and rank */
    double bytes_per_s;    /* of communication; NaN: unknown */
    double seconds_a_call; /* NaN: unknown */
};

/* culprit_part: a rank is the late one if it is waited for longer than the next one, by this part of all waiting for late
 * ranks. */
struct ls_time_shares ls_time_shares_of(const struct ls_run_view *v, double culprit_part);

#endif
