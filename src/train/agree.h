/* What all processes must know alike: how a step went, whether to stop, whether they still compute the same. */
#ifndef LS_TRAIN_AGREE_H
#define LS_TRAIN_AGREE_H

#include "comm/comm.h"
#include "train/engine.h"
#include "train/replicas.h"

struct ls_agree {
    struct ls_comm *comm;       /* borrowed; NULL: alone */
    const struct ls_tree *tree; /* borrowed */
    struct ls_totals *totals;   /* owned; a message: most parts of a rank */
    struct ls_totals *all;      /* owned; everybody's messages */
    struct ls_totals *parts;    /* owned; of the whole tree */
    int most;                   /* totals a message */
};

enum ls_status ls_agree_init(struct ls_agree *a, struct ls_comm *comm, const struct ls_tree *tree);
void ls_agree_release(struct ls_agree *a);

/* The step's totals over all processes, summed along the tree. */
enum ls_status ls_agree_step(struct ls_agree *a, const struct ls_replicas *r, struct ls_totals *totals);
/* The largest of everybody's values; alone, the value. */
enum ls_status ls_agree_most(struct ls_comm *comm, int64_t value, int64_t *most);
/* Sums over all processes; exact (R6), so that it does not show who computed what. */
enum ls_status ls_agree_totals(struct ls_comm *comm, struct ls_totals *totals);
/* How what each did by itself ended, muted but for rank 0 (ls_log_mute): the status of the first that failed, and its
 * message said by all in the same words, so that whoever brings their output together need say it only once. */
enum ls_status ls_agree_status(struct ls_comm *comm, enum ls_status status);
/* Ends a time in which this rank was muted, and says that a peer was lost meanwhile: each rank names it. */
enum ls_status ls_agree_unmute(enum ls_status status);

/* same.c: do all processes compute the same? Each says who differs, and in what; LS_USAGE or LS_FAILED then.
 * Options, before anything else is decided; kernels, layouts and buckets, before step 0; values, now and then. */
enum ls_status ls_same_options(struct ls_comm *comm, const struct ls_options *o);
/* fingerprint: of the process's data (fingerprint.h). */
enum ls_status ls_same_data(struct ls_comm *comm, const char *fingerprint);
enum ls_status ls_same_schedule(const struct ls_engine *e);
/* The first `parts` of the values that are kept from step to step. Where no value is held by more than half of the
 * processes, as with two of them, the message says that it cannot be told who is wrong. */
enum ls_same_part { LS_SAME_PARAMETERS, LS_SAME_STATISTICS, LS_SAME_MOMENTUM, LS_SAME_PARTS };
enum ls_status ls_same_values(const struct ls_engine *e, uint64_t step, int parts);

#endif
