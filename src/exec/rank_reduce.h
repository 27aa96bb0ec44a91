/* Values that must be equal on all processes: sums, the largest of their values, and whether one of them failed. */
#ifndef LS_EXEC_RANK_REDUCE_H
#define LS_EXEC_RANK_REDUCE_H

#include "comm/comm.h"
#include "sync/totals.h"

/* The largest value of any process. comm NULL, here and below: one process. */
enum ls_status ls_rank_reduce_most(struct ls_comm *comm, int64_t value, int64_t *most);
/* Sums over all processes; exact (SYNC-3), so that they do not depend on which process computed what. */
enum ls_status ls_rank_reduce_totals(struct ls_comm *comm, struct ls_totals *totals);
/* Every process did something by itself, all but rank 0 with the log muted (ls_log_mute). The result is the status of the
 * first rank that failed. All ranks print its message in the same words, so that a launcher can print it once. */
enum ls_status ls_rank_reduce_status(struct ls_comm *comm, enum ls_status status);
/* Unmutes the log of this rank. If a peer was lost meanwhile, prints that: each rank names the peer. */
enum ls_status ls_rank_reduce_unmute(enum ls_status status);

#endif
