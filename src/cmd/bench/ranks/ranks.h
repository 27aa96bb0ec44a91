/* `bench --scale` under a launcher: the ranks of one launch measure several numbers of workers.
 *
 * The ranks stay connected as their launcher connected them. For k workers each of the ranks 0 .. k-1 starts a child, and the
 * other ranks wait. The children are a launch of their own over TCP, which takes shared memory within a node. Rank 0 decides
 * what is measured; the others serve it.
 *
 *   RANKS-1  A child that fails is reported to all ranks. The ranks go on.
 *   RANKS-2  While a child runs, its rank extends the deadline of the group. A rank that is gone ends the measurement. */
#ifndef LS_CMD_BENCH_RANKS_H
#define LS_CMD_BENCH_RANKS_H

#include "cmd/bench/child.h"
#include "cmd/bench/ranks/reach.h"
#include "cmd/world.h"

struct ls_bench_ranks {
    struct ls_comm *comm;
    char address[LS_REACH_NAME]; /* of rank 0's host */
    char over[160];              /* for the reader: how the children communicate */
};

/* All ranks call it. address is "" if ls_reach_find finds none; *lost is then a rank that does not reach rank 0. */
enum ls_status ls_bench_ranks_open(struct ls_bench_ranks *r, const struct ls_world *w, int *lost);

/* Rank 0: as ls_bench_child_run, with a child of each of the first `workers` ranks. Output and seconds are those of rank 0's
 * child. If a child failed, status and reason are those of the one that failed first hand, and the reason names its rank.
 * LS_PEER_LOST: a rank is gone. */
enum ls_status ls_bench_ranks_run(const struct ls_bench_ranks *r, struct ls_bench_child *child, int workers);
/* Rank 0: ends the other ranks' ls_bench_ranks_serve, which returns `status`. */
void ls_bench_ranks_end(const struct ls_bench_ranks *r, enum ls_status status);
/* The other ranks: start children until rank 0 ends. */
enum ls_status ls_bench_ranks_serve(const struct ls_bench_ranks *r, const struct ls_options *o);

#endif
