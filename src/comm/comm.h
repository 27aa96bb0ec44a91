/* The processes that train together, and what they do together.
 *
 * One communication thread a process carries all traffic; nobody else touches a transport. Others hand it work and wait
 * for it. Collectives are posted in the same order by every rank (the schedule hash makes sure of that before step 0);
 * sends and receives are free of that order.
 *
 *   C1  A sum is made in one fixed order of additions, whatever the algorithm, the number of processes or who comes
 *       first: the tree of tree.h. Only LS_COLLECTIVE_MPI and LS_COLLECTIVE_RING give this up, when asked for by name,
 *       and LS_COLLECTIVE_HIER where the ranks of a node own no whole subtree (ls_comm_exact says).
 *   C2  Nothing is allocated between ls_comm_post and ls_comm_wait.
 *   C3  Every wait has a deadline. When it passes, or a peer is known to be gone, each rank that is left says once who
 *       is missing, what that rank did last and what it was waited for, and every later call returns LS_PEER_LOST.
 *   C4  A group of one makes no thread, opens nothing and touches no library.
 *   C5  Every collective is compared: kind, bytes, root, codec and what its program calls it travel beside the first data
 *       between any two ranks, and no rank ends one with success that was another one elsewhere. The exception is the root
 *       of a broadcast whose call has no number: it may be gone already. */
#ifndef LS_COMM_COMM_H
#define LS_COMM_COMM_H

#include "base/status.h"
#include "comm/codec.h"
#include "launch/launch.h"
#include "comm/mark.h"
#include "comm/algorithms/tree.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ls_collective {
    LS_COLLECTIVE_AUTO,
    LS_COLLECTIVE_TREE,
    LS_COLLECTIVE_HIER,
    LS_COLLECTIVE_RING,
    LS_COLLECTIVE_MPI
};

struct ls_comm_options {
    enum ls_collective collective;
    double deadline;  /* seconds a collective may take longer here than at the rank that came last */
    int replicas;     /* V of the tree; at least the number of processes; 0: that number */
    size_t max_bytes; /* the largest buffer of one allreduce, for staging memory taken at open */
    /* What a program calls its collectives, for messages: "calls lockstep_barrier". NULL: it has no names for them. */
    void (*describe)(const struct ls_call *call, char *text, size_t room);
};

struct ls_comm; /* opaque */

/* Connect. A launch of one process gives a group of one. */
enum ls_status ls_comm_open(const struct ls_launch *launch, const struct ls_comm_options *options,
                            struct ls_comm **comm);
/* Orderly: waits for the others (within the deadline) when all went well, does not when status is not LS_OK. Returns
 * status, or why the others did not come to that. */
enum ls_status ls_comm_close(struct ls_comm *comm, enum ls_status status);

int ls_comm_rank(const struct ls_comm *comm);
int ls_comm_size(const struct ls_comm *comm);
int ls_comm_node(const struct ls_comm *comm, int rank);       /* 0 .. nodes-1 */
int ls_comm_local_rank(const struct ls_comm *comm, int rank); /* among the ranks of its node */
int ls_comm_local_size(const struct ls_comm *comm);           /* ranks on this node */
const char *ls_comm_host(const struct ls_comm *comm, int rank);
const char *ls_comm_transport(const struct ls_comm *comm); /* "self", "shm", "mpi", "tcp", "ucx" */
/* The library that carries the messages and its version; "" where Lockstep carries them. */
void ls_comm_library(const struct ls_comm *comm, char text[64]);
/* Who computes which replicas, and in which order a rank's parts are given to a sum. Ranks may be attached so that those of
 * a node own neighbouring subtrees, so take this tree rather than make one. */
const struct ls_tree *ls_comm_tree(const struct ls_comm *comm);
/* Does this way of summing give the tree's bits here? */
bool ls_comm_exact(const struct ls_comm *comm, enum ls_collective algorithm);

/* Memory that the other processes of this node can read directly: gradients that live here are reduced without a
 * copy. Zeroed; ordinary memory where there is nothing to share. Every rank takes its regions in the same order; their
 * sizes may differ. */
enum ls_status ls_comm_region(struct ls_comm *comm, size_t bytes, void **memory);

/* --- work ------------------------------------------------------------------------------------------------ */

enum ls_work_kind {
    LS_WORK_ALLREDUCE, /* parts -> data, the sum of all ranks' parts by the tree, everywhere */
    LS_WORK_REDUCE,    /* the same, but only at `peer` */
    LS_WORK_SCATTER,   /* each rank ends up with its own range (ls_comm_range) of the sum */
    LS_WORK_COLLECT,   /* the ranges of LS_WORK_SCATTER, changed or not, become whole everywhere */
    LS_WORK_BROADCAST, /* data of `peer` */
    LS_WORK_ALLGATHER, /* `bytes` of every rank, one after the other, at data (rank * bytes) */
    LS_WORK_BARRIER,
    LS_WORK_SEND,   /* to `peer` under `tag` */
    LS_WORK_RECEIVE /* from `peer` (LS_ANY_RANK: any, then set) under `tag`; bytes is the room, then what came */
};
enum { LS_ANY_RANK = -1, LS_TAG_LIMIT = 1 << 19 /* tags are smaller */ };

struct ls_work {
    enum ls_work_kind kind;
    int peer;
    uint32_t tag;
    int late; /* RECEIVE from LS_ANY_RANK: 1 + the rank to name when nobody sends in time; 0: nobody, no deadline */
    void *data;
    size_t bytes;        /* for sums: count * 4 */
    float *const *parts; /* sums: this rank's parts in the order of ls_tree_parts; NULL: data is the only one. Data may
                          * be one of them, or lie apart from all; it is written even where only a range counts. */
    const struct ls_codec *codec; /* sums: how values travel; NULL: as f32 */
    void *codec_state;            /* error feedback, see codec.h: ls_comm_feedback floats; NULL: it keeps none */
    struct ls_call call;          /* what all ranks must call it */
    uint64_t step;                /* for positions and messages */
    int bucket;
    /* results */
    double posted, begun, done; /* ls_now() */
    int last_rank;              /* who came last to a collective, as far as this rank can tell; -1: unknown */
    double last_wait;           /* seconds waited for that rank */
    enum ls_status status;
    atomic_int state; /* 0 free, 1 posted, 2 done, 3 posted and slept on */
    struct ls_work *next;
    int asked;                 /* peer as posted */
    uint64_t request_room[10]; /* the transport's */
};

/* Hand over; the struct and its buffers belong to the communication thread until it is done. Results, state and next need
 * no value before. */
void ls_comm_post(struct ls_comm *comm, struct ls_work *work);
bool ls_comm_done(const struct ls_work *work);
/* Until it is done; its status. Spins briefly, then sleeps. */
enum ls_status ls_comm_wait(struct ls_comm *comm, struct ls_work *work);
/* Post and wait. */
enum ls_status ls_comm_do(struct ls_comm *comm, struct ls_work *work);

/* Short forms for set-up time. */
enum ls_status ls_comm_barrier(struct ls_comm *comm);
enum ls_status ls_comm_broadcast(struct ls_comm *comm, int root, void *data, size_t bytes);
enum ls_status ls_comm_allgather(struct ls_comm *comm, const void *mine, size_t bytes, void *all);

/* Floats of error feedback for a sum of `count`: for each of this rank's parts, and for the sum it makes. */
size_t ls_comm_feedback(const struct ls_comm *comm, size_t count);

/* The range of `count` floats that a rank owns in SCATTER and COLLECT; cut at multiples of 16 floats. */
void ls_comm_range(const struct ls_comm *comm, size_t count, int rank, size_t *first, size_t *last);

/* --- who is where ---------------------------------------------------------------------------------------- */

enum ls_stage {
    LS_STAGE_START,
    LS_STAGE_INPUT,
    LS_STAGE_COMPUTE,
    LS_STAGE_REDUCE,
    LS_STAGE_UPDATE,
    LS_STAGE_EVALUATE,
    LS_STAGE_SAVE,
    LS_STAGE_END
};
const char *ls_stage_name(enum ls_stage stage); /* "waiting for input", "computing", ... for messages */

struct ls_position {
    uint64_t step;
    int bucket;
    enum ls_stage stage;
    double age; /* seconds since it was known */
};
/* Say where this process is: a few stores, cheap enough for every bucket. */
void ls_comm_position(struct ls_comm *comm, uint64_t step, int bucket, enum ls_stage stage);
/* The last that is known of a rank: at once on the same node, by heartbeat (once a second) from others. */
struct ls_position ls_comm_where(const struct ls_comm *comm, int rank);
/* No deadline while a rank says that it saves or evaluates alone: extend by this much, for all. */
void ls_comm_allow(struct ls_comm *comm, double seconds);
/* This rank has failed and says why (NULL: its last error); the others end with that message instead of a deadline. From any
 * thread. */
void ls_comm_abort(struct ls_comm *comm, enum ls_status status, const char *why);

/* For one who has failed in the middle: afterwards none of these works is under way. Where one was, the group has ended,
 * with the last error of this process. Works that were never posted are zero. */
void ls_comm_give_up(struct ls_comm *comm, struct ls_work *works, int n);

/* LS_OK while the group holds; else what every call returns from now on. For those who wait for something else. */
enum ls_status ls_comm_broken(const struct ls_comm *comm);
/* The same, for those who have waited so many seconds for something else that all take part in, and ask now and then.
 * Beyond the deadline whoever is overdue is named: a rank that has not yet come to where this one waits, or does not run,
 * and is not known to start, save or evaluate. While nobody is, the wait goes on: it just takes long. */
enum ls_status ls_comm_overdue(struct ls_comm *comm, double waited);

/* --- what was measured ------------------------------------------------------------------------------------ */

struct ls_lateness {
    uint64_t times; /* collectives for which this rank came last */
    double seconds; /* that this rank waited for it; for this rank itself: that the first to come waited */
};
void ls_comm_lateness(const struct ls_comm *comm, int rank, struct ls_lateness *l);

/* An allreduce of n bytes takes about alpha + n * beta seconds with an algorithm; measured at open (cheap: a few
 * milliseconds), the same on every rank. */
struct ls_cost {
    double alpha, beta;
};
struct ls_cost ls_comm_cost(const struct ls_comm *comm, enum ls_collective algorithm);
/* What AUTO takes for this many bytes. */
enum ls_collective ls_comm_choice(const struct ls_comm *comm, size_t bytes);

#endif
