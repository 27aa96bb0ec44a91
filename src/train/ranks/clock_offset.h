/* The clocks of ranks on several hosts. */
#ifndef LS_TRAIN_CLOCK_OFFSET_H
#define LS_TRAIN_CLOCK_OFFSET_H

#include "comm/comm.h"

/* *offset: what ls_now() of rank 0 is ahead of ls_now() here, in seconds, up to *error. All ranks call it at once. Ranks of
 * one node share a clock, and their error is 0. Between nodes a few messages go to rank 0 and back; the fastest one counts,
 * and the error is at most half of its time. */
enum ls_status ls_clock_offset(struct ls_comm *comm, double *offset, double *error);

#endif
