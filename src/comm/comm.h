/* A group of processes (ranks) that train together, and the collectives and messages between them.
 *
 * One communication thread per process carries all traffic; no other thread calls a transport, except a waiting thread
 * under COMM-6 (group.h). Other threads post work and wait for it. All ranks post collectives in the same order. Sends
 * and receives have no order in common with collectives.
 *
 *   COMM-1  A sum has one fixed order of additions, that of the tree in algorithms/tree.h. It does not depend on the
 *           algorithm, the number of processes or their timing. Exceptions, when asked for by name: LS_COLLECTIVE_MPI,
 *           LS_COLLECTIVE_RING, and LS_COLLECTIVE_HIER where the ranks of a node own no whole subtree (ls_comm_exact).
 *   COMM-2  Nothing is allocated between ls_comm_post and ls_comm_wait.
 *   COMM-3  Every wait has a deadline. When it passes, or a peer is gone, each remaining rank reports once which rank is
 *           missing, what that rank did last and what it was to do. Every later call returns LS_PEER_LOST.
 *   COMM-4  A group of one starts no thread, opens nothing and loads no library.
 *   COMM-5  Ranks compare every collective: kind, bytes, root, codec and the caller's name for it travel with the first
 *           data between any two ranks. No rank finishes a collective with success if another rank made a different
 *           one. Exception: the root of a broadcast whose call has no number does not wait for the comparison. */
#ifndef LS_COMM_COMM_H
#define LS_COMM_COMM_H

#include "base/status.h"
#include "comm/algorithms/tree.h"
#include "comm/codec.h"
#include "launch/launch.h"
#include "comm/failures/mark.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
enum ls_collective {
#define X(name, NAME) LS_COLLECTIVE_##NAME,
#define DEVICE(name)
#include "config/lists/collectives.def"
};
/* clang-format on */

struct ls_comm_options {
    enum ls_collective collective;
    double deadline;  /* seconds that a rank waits for others before it reports them missing */
    int replicas;     /* V of the tree, at least the number of processes; 0: that number */
    size_t max_bytes; /* the largest buffer of one allreduce; staging memory of this size is taken at open */
    /* Writes the program's name for a call into a message: "calls lockstep_barrier". NULL: it has no names. */
    void (*describe)(const struct ls_call *call, char *text, size_t room);
    bool name_rank; /* errors of the communication thread begin with "rank 2 (host): " */
};

struct ls_comm; /* opaque */

/* Connects to the other processes of the launch. A launch of one process gives a group of one. */
enum ls_status ls_comm_open(const struct ls_launch *launch, const struct ls_comm_options *options,
                            struct ls_comm **comm);
/* With LS_OK, waits for the other ranks to close as well, within the deadline. With another status, leaves at once and
 * reports the failure to the others. Returns status, or the reason why the others did not close. */
enum ls_status ls_comm_close(struct ls_comm *comm, enum ls_status status);

int ls_comm_rank(const struct ls_comm *comm);
int ls_comm_size(const struct ls_comm *comm);
int ls_comm_node(const struct ls_comm *comm, int rank);       /* 0 .. nodes-1 */
int ls_comm_local_rank(const struct ls_comm *comm, int rank); /* among the ranks of its node */
int ls_comm_local_size(const struct ls_comm *comm);           /* ranks on this node */
const char *ls_comm_host(const struct ls_comm *comm, int rank);
/* From now on messages about this rank also have `title`, such as "stage 1 of 4". Call it while no work is under way. */
enum { LS_TITLE_ROOM = 48 };
void ls_comm_title(struct ls_comm *comm, int rank, const char *title);
const char *ls_comm_transport(const struct ls_comm *comm); /* "self", "shm", "mpi", "tcp", "ucx" */
/* The name and version of the transport's library; "" where the transport has none. */
void ls_comm_library(const struct ls_comm *comm, char text[64]);
/* Which rank computes which replicas, and the order of a rank's parts in a sum. Use this tree and do not make another:
 * ranks may be placed so that those of one node own neighbouring subtrees. */
const struct ls_tree *ls_comm_tree(const struct ls_comm *comm);
/* The algorithm gives the tree's bits in this group. */
bool ls_comm_exact(const struct ls_comm *comm, enum ls_collective algorithm);

/* Zeroed memory that the other processes of this node can read: buffers in it are reduced without a copy. Ordinary memory
 * where no other process shares the node. All ranks take their regions in the same order; sizes may differ. */
enum ls_status ls_comm_region(struct ls_comm *comm, size_t bytes, void **memory);

/* --- work ------------------------------------------------------------------------------------------------ */

enum ls_work_kind {
    LS_WORK_ALLREDUCE, /* parts -> data: the sum of all ranks' parts, on every rank */
    LS_WORK_REDUCE,    /* the same, only on rank `peer` */
    LS_WORK_SCATTER,   /* each rank gets its range (ls_comm_range) of the sum */
    LS_WORK_COLLECT,   /* gathers the ranges of LS_WORK_SCATTER, changed or not, on every rank */
    LS_WORK_BROADCAST, /* data of rank `peer` */
    LS_WORK_ALLGATHER, /* `bytes` of every rank; rank r's at data + r * bytes */
    LS_WORK_BARRIER,
    LS_WORK_SEND, /* to `peer` under `tag` */
    LS_WORK_RECEIVE /* from `peer` under `tag`. LS_ANY_RANK: from any; peer is then set. bytes: the room, then the length */
};
enum { LS_WORK_KINDS = LS_WORK_RECEIVE + 1 };
enum { LS_ANY_RANK = -1, LS_TAG_LIMIT = 1 << 19 /* tags are smaller */ };

struct ls_work {
    enum ls_work_kind kind;
    int peer;
    uint32_t tag;
    int late; /* RECEIVE from LS_ANY_RANK: 1 + the rank to blame when nothing comes in time; 0: none, no deadline */
    void *data;
    size_t bytes; /* for sums: count * 4 */
    float *const
        *parts; /* sums: this rank's parts in the order of ls_tree_parts; NULL: data is the only one. Data is one
                          * of them or overlaps none. All of data is written, even where only a range is defined. */
    const struct ls_codec *codec; /* sums: encoding on the wire; NULL: f32 */
    void *codec_state;            /* error feedback (codec.h): ls_comm_feedback floats; NULL: the codec keeps none */
    struct ls_call call;          /* the program's name for the call; equal on all ranks */
    uint64_t step;                /* for messages */
    int bucket;
    /* results */
    double posted, begun, done; /* ls_now() */
    int last_rank;              /* the rank that came last to a collective, as far as known; -1: unknown */
    double last_wait;           /* seconds waited for that rank */
    int stall_rank;             /* the rank that was waited for longest after all had come; -1: none for long */
    double stall;               /* seconds of that wait, at the end of the collective */
    enum ls_status status;
    atomic_int state; /* 0 free, 1 posted, 2 done, 3 posted and a thread sleeps on it */
    struct ls_work *next;
    int asked;                 /* peer as posted */
    uint64_t request_room[10]; /* the transport's request */
};

/* Hands the work over. The struct and its buffers belong to the communication thread until it is done. Results, state and
 * next need no value before. */
void ls_comm_post(struct ls_comm *comm, struct ls_work *work);
bool ls_comm_done(const struct ls_work *work);
/* Waits until the work is done and returns its status. Spins briefly, then sleeps. */
enum ls_status ls_comm_wait(struct ls_comm *comm, struct ls_work *work);
/* Sleeps until the work is done, or until ls_now() is `until`. Returns whether it is done. No deadline applies, and work
 * that is not done stays posted: ls_comm_wait follows. */
bool ls_comm_wait_until(struct ls_comm *comm, struct ls_work *work, double until);
/* Post and wait. */
enum ls_status ls_comm_do(struct ls_comm *comm, struct ls_work *work);

/* Short forms for set-up time. */
enum ls_status ls_comm_barrier(struct ls_comm *comm);
enum ls_status ls_comm_broadcast(struct ls_comm *comm, int root, void *data, size_t bytes);
enum ls_status ls_comm_allgather(struct ls_comm *comm, const void *mine, size_t bytes, void *all);

/* Floats of error feedback for a sum of `count`: for each of this rank's parts, and for the sum it makes. */
size_t ls_comm_feedback(const struct ls_comm *comm, size_t count);

/* The largest SCATTER and COLLECT in bytes. */
size_t ls_comm_most_scattered(const struct ls_comm *comm);
/* The range of `count` floats that a rank owns in SCATTER and COLLECT; cut at multiples of 16 floats. */
void ls_comm_range(const struct ls_comm *comm, size_t count, int rank, size_t *first, size_t *last);

/* From now on collectives and messages are recorded on these tracks (base/trace.h); NULL: no more. Call it while no work is
 * under way. */
struct ls_track;
void ls_comm_trace(struct ls_comm *comm, struct ls_track *collectives, struct ls_track *messages);

/* --- positions and failures ------------------------------------------------------------------------------- */

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
const char *ls_stage_name(enum ls_stage stage); /* for messages: "waiting for input", "computing" */

struct ls_position {
    uint64_t step;
    int bucket;
    enum ls_stage stage;
    double age; /* seconds in this position */
};
/* Publishes this process's position: a few stores, cheap enough for every bucket. */
void ls_comm_position(struct ls_comm *comm, uint64_t step, int bucket, enum ls_stage stage);
/* The last known position of a rank: current on this node, of the last heartbeat (one a second) elsewhere. */
struct ls_position ls_comm_where(const struct ls_comm *comm, int rank);
/* Suspends the deadline on all ranks for this many seconds, for long work on one rank. */
void ls_comm_allow(struct ls_comm *comm, double seconds);
/* Ends the group because this rank has failed; the others report `why` (NULL: this process's last error). Any thread may
 * call it. */
void ls_comm_abort(struct ls_comm *comm, enum ls_status status, const char *why);

/* After an error in the middle of a step: on return none of these works is under way. If one was, the group has ended with
 * this process's last error. Works that were never posted are zero. */
void ls_comm_give_up(struct ls_comm *comm, struct ls_work *works, int n);

/* LS_OK while the group holds; otherwise the status that every call returns from now on. */
enum ls_status ls_comm_broken(const struct ls_comm *comm);
/* As ls_comm_broken, for a caller that has waited `waited` seconds outside this folder for something in which all ranks
 * take part. Beyond the deadline it blames a rank that has not reached this rank's step or is silent, and that does not
 * start, save or evaluate. LS_OK while no rank is to blame: then the work itself takes long. */
enum ls_status ls_comm_overdue(struct ls_comm *comm, double waited);

/* --- measurements ------------------------------------------------------------------------------------------ */

struct ls_lateness {
    uint64_t times; /* collectives to which this rank came last */
    double seconds; /* that the calling rank waited for it; of the calling rank: that the first to come waited */
};
void ls_comm_lateness(const struct ls_comm *comm, int rank, struct ls_lateness *l);

/* What this rank has exchanged since the group was opened. Every number only grows; the difference of two snapshots is what
 * came between. A group of one exchanges nothing. */
struct ls_comm_usage {
    struct ls_kind_usage {
        uint64_t calls;
        uint64_t bytes; /* of this rank's buffers, before compression */
        double seconds; /* from begin to end; 0 for SEND and RECEIVE, of which many are under way at once */
    } kinds[LS_WORK_KINDS];
    double late;   /* of these seconds: a rank had not come to the collective yet, or stood still in it */
    double waited; /* seconds that threads waited for work in ls_comm_wait and its short forms */
};
void ls_comm_usage(const struct ls_comm *comm, struct ls_comm_usage *usage);
/* usage.waited alone. */
double ls_comm_waited(const struct ls_comm *comm);
/* The part of usage.waited in which each rank was the last to come to a collective, or stood still in it; `seconds` has
 * room for all ranks.
 * Messages (SEND, RECEIVE) do not count: their receiver cannot tell a late sender from a slow network. */
void ls_comm_waited_for(const struct ls_comm *comm, double *seconds);
const char *ls_work_name(enum ls_work_kind kind); /* "allreduce" */

/* An allreduce of n bytes takes about alpha + n * beta seconds with an algorithm. Measured at open in a few milliseconds;
 * equal on all ranks. */
struct ls_cost {
    double alpha, beta;
};
struct ls_cost ls_comm_cost(const struct ls_comm *comm, enum ls_collective algorithm);
/* The algorithm that AUTO takes for this many bytes. */
enum ls_collective ls_comm_choice(const struct ls_comm *comm, size_t bytes);

#endif
