/* What the steps of this process exchanged with others, and how long they waited for it. Communication between steps
 * (evaluation, checkpoints, comparisons) is left out. */
#ifndef LS_EXEC_STEP_USAGE_H
#define LS_EXEC_STEP_USAGE_H

#include "comm/comm.h"
#include "report/report.h"

struct ls_step_usage {
    struct ls_comm_usage seen, spent; /* at the last look; of all steps since the last clear */
    double *seen_for, *waited_for;    /* owned; seconds waited for each rank, likewise; NULL: one process */
    double *now_for;                  /* owned; room for a look */
};

/* comm NULL, here and below: one process. */
enum ls_status ls_step_usage_init(struct ls_step_usage *u, const struct ls_comm *comm);
void ls_step_usage_release(struct ls_step_usage *u);
/* What came since the last look belongs to no step. */
void ls_step_usage_skip(struct ls_step_usage *u, const struct ls_comm *comm);
/* What came since the last look belongs to the steps of this report: sets its wait_seconds, late_seconds and
 * hidden_seconds. Communication is hidden where collectives took longer than this process waited, waiting for late ranks
 * left out on both sides. */
void ls_step_usage_take(struct ls_step_usage *u, const struct ls_comm *comm, struct ls_report *r);
/* Begins new sums. */
void ls_step_usage_clear(struct ls_step_usage *u, const struct ls_comm *comm);

/* *sum += now - before. */
void ls_comm_usage_add(struct ls_comm_usage *sum, const struct ls_comm_usage *now, const struct ls_comm_usage *before);

#endif
