/* What all processes must know alike: how a step went, whether to stop, whether they still compute the same. */
#ifndef LS_EXEC_RANK_REDUCE_H
#define LS_EXEC_RANK_REDUCE_H

#include "comm/comm.h"
#include "exec/engine.h"
#include "exec/replicas.h"

struct ls_rank_reduce {
    struct ls_comm *comm;       /* borrowed; NULL: alone */
    const struct ls_tree *tree; /* borrowed */
    struct ls_totals *totals;   /* owned; a message: most parts of a rank */
    struct ls_totals *all;      /* owned; everybody's messages */
    struct ls_totals *parts;    /* owned; of the whole tree */
    int most;                   /* totals a message */
};

enum ls_status ls_rank_reduce_init(struct ls_rank_reduce *a, struct ls_comm *comm, const struct ls_tree *tree);
void ls_rank_reduce_release(struct ls_rank_reduce *a);

/* The step's totals over all processes, summed along the tree. */
enum ls_status ls_rank_reduce_step(struct ls_rank_reduce *a, const struct ls_replicas *r, struct ls_totals *totals);
/* The largest of everybody's values; alone, the value. */
enum ls_status ls_rank_reduce_most(struct ls_comm *comm, int64_t value, int64_t *most);
/* Sums over all processes; exact (R6), so that it does not show who computed what. */
enum ls_status ls_rank_reduce_totals(struct ls_comm *comm, struct ls_totals *totals);
/* How what each did by itself ended, muted but for rank 0 (ls_log_mute): the status of the first that failed, and its
 * message said by all in the same words, so that whoever brings their output together need say it only once. */
enum ls_status ls_rank_reduce_status(struct ls_comm *comm, enum ls_status status);
/* Ends a time in which this rank was muted, and says that a peer was lost meanwhile: each rank names it. */
enum ls_status ls_rank_reduce_unmute(enum ls_status status);

#endif
