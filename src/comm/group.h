/* The inside of struct ls_comm, for the files of this folder.
 *
 *   COMM-6  The thread that holds `drive` is the driver. It is the communication thread, or a thread that waits for its
 *           work and executes it itself instead of waking another. The latter happens only where no library restricts
 *           threads. Only the driver touches the fields below "the driver's".
 *   COMM-7  A collective runs from begin to end without another in between; while it waits, point-to-point messages make
 *           progress. Collectives run in the order posted.
 *   COMM-8  After `broken` is set nothing is sent or waited for; all work ends with that status.
 *   COMM-9  Memory for the collectives is taken at open. */
#ifndef LS_COMM_GROUP_H
#define LS_COMM_GROUP_H

#include "comm/algorithms/sum.h"
#include "comm/comm.h"
#include "comm/shm/shm_segment.h"
#include "comm/transport.h"
#include <pthread.h>

/* A short sleep that takes this many seconds longer means that this process was stopped. */
#define LS_STOPPED 0.5
enum { LS_HOST_ROOM = 64, LS_MAX_REGIONS = 64, LS_MAX_PARTS = 64, LS_ALGORITHMS = LS_COLLECTIVE_MPI + 1 };
/* Internal tags, above those of LS_WORK_SEND. */
enum { LS_TAG_COLLECTIVE = LS_TAG_LIMIT, LS_TAG_HELLO, LS_TAG_HEARTBEAT, LS_TAG_MARK };
/* Bytes of a message that are packed behind the mark; longer messages follow it. */
enum { LS_PACKED = 16384 };

/* Ranks that sum together: all of them, those of a node, or those with the same local number on all nodes. Members have
 * an index within the subgroup; index i owns range i of the sum. */
struct ls_subgroup {
    int size, me;
    int *ranks;          /* owned; of each index */
    struct ls_tree tree; /* over indices */
    int most_parts;      /* of one index */
    bool halving;        /* the size is a power of two, with one part each */
    struct ls_summer *summer;
};

struct ls_peer {
    char host[LS_HOST_ROOM];
    char title[LS_TITLE_ROOM]; /* what it does in the run, for messages; "": nothing special */
    int node, local, place;    /* local: among the ranks of its node; place: index in the subgroup of all */
    int32_t pid;
    _Atomic uint64_t late_times;
    _Atomic int64_t late_ns;
    _Atomic int64_t waited_ns; /* that threads of this process waited for it (ls_comm_waited_for) */
    /* from heartbeats, for ranks of other nodes; under queue_lock */
    uint64_t collective; /* collectives begun */
    uint64_t step;
    int bucket;
    enum ls_stage stage;
    int waits;           /* 1 + the rank it waits for; 0: none */
    double heard, since; /* the last heartbeat; when it came to this position */
    double unheard;      /* seconds for which it had not heard from this rank at that heartbeat */
};

/* One region of ls_comm_region: that of every process of the node, as mapped here. */
struct ls_region {
    size_t bytes;
    char **base;   /* owned; of n processes; NULL: not shared */
    size_t *sizes; /* owned; of each */
    int n, me;
    char *mine;
};

/* The mark of a collective to or from a rank, with the first message packed behind it where that is short. */
struct ls_envelope {
    struct ls_transport_request request;
    uint64_t collective; /* the last that used it */
    char *room;          /* borrowed; for a mark and LS_PACKED bytes */
    bool under_way;
};

/* A message of a collective. */
struct ls_message {
    struct ls_transport_request request;
    struct ls_envelope *envelope; /* NULL: the mark was exchanged before */
    void *data;
    size_t bytes;
    int peer;
    bool under_way, coming;
    bool apart; /* it is not packed in the envelope */
};

struct ls_list {
    struct ls_work *head, *tail;
};

struct ls_comm {
    int rank, size, nodes, local, locals; /* local: index on this node; locals: ranks of this node */
    struct ls_comm_options o;
    struct ls_launch launch; /* what it points to is borrowed, and only during open */
    struct ls_peer *peers;   /* owned */
    struct ls_tree tree;     /* of the run, by rank */
    struct ls_subgroup all, node, across;
    bool hier, hier_exact; /* every node has as many ranks; and its sums are the tree's */
    struct ls_cost cost[LS_ALGORITHMS];

    const struct ls_transport *transport; /* of the launch: it connected the group */
    void *transport_state;
    const struct ls_transport *channel; /* carries messages: the transport, or shared memory on a single node */
    void *channel_state;
    bool polled;         /* the channel rings no doorbell: it has to be polled */
    int event;           /* wakes a driver that sleeps on the channel's descriptor; -1: the channel has none */
    atomic_bool polling; /* a driver sleeps on it */
    bool may_help;       /* waiting threads may drive (COMM-6) */
    bool crowded;        /* more processes than cores on this node */

    struct ls_shm_segment *segment; /* owned; NULL: alone on this node */
    struct ls_doorbell own;         /* used without a segment */
    struct ls_doorbell *doorbell;
    struct ls_region regions[LS_MAX_REGIONS];
    int n_regions;

    pthread_t thread;
    bool running;
    _Atomic uint32_t connected; /* futex: 0 not yet, 1 connected, 2 failed */
    _Atomic int opened;         /* the transport: 0 not yet, 1 open, 2 the opener has given up */
    enum ls_status connect_status;
    atomic_bool stop;
    bool graceful;       /* how to close the transport; set before stop */
    atomic_bool closing; /* only the last barrier is left: a rank that is through may leave */

    pthread_mutex_t queue_lock;
    struct ls_list queue; /* posted, not taken; under queue_lock */
    atomic_ulong posted, taken;
    atomic_int broken;                 /* enum ls_status */
    _Atomic(struct ls_work *) overdue; /* a message for which a thread waited beyond the deadline */
    _Atomic double beyond;             /* by this many seconds */
    atomic_bool asked;                 /* ls_comm_overdue has a question for the driver */
    atomic_int aborting;               /* ls_comm_abort: the status to report to the other nodes */
    char why[LS_REASON_ROOM];          /* under queue_lock until aborting is set */
    _Atomic int64_t allowed;           /* no deadline before this time; nanoseconds */
    /* this process's position, without a segment */
    _Atomic uint64_t step;
    _Atomic int32_t bucket, stage;
    _Atomic int64_t since;
    _Atomic int32_t waits;

    /* ls_comm_usage; nanoseconds */
    struct {
        _Atomic uint64_t calls, bytes;
        _Atomic int64_t ns;
    } used[LS_WORK_KINDS];
    _Atomic int64_t late_ns, waited_ns;

    pthread_mutex_t drive;
    /* the driver's */
    int driver; /* 0 or 1, as in struct ls_doorbell */
    struct ls_list collectives, p2p;
    atomic_int pending; /* works taken and not done */
    struct ls_work *current;
    uint64_t collective; /* how many were begun */
    struct ls_mark mark; /* of the last */
    uint64_t arrivals;   /* collectives through shared memory */
    uint64_t chunks;     /* chunks through shared memory */
    enum ls_collective force;
    double checked;              /* the last ls_group_check that looked at all peers */
    double last_heartbeat;       /* when this rank sent one */
    double heard;                /* when the last heartbeat of any rank came */
    double heard_since;          /* the same, without the time in which this process was stopped */
    bool *missing, *ends;        /* owned; sets of ranks, for blame.c */
    struct ls_message *messages; /* owned */
    int n_messages, message_room;
    struct ls_envelope *envelopes; /* owned; to each rank, then from each */
    char *envelope_room;           /* owned; reserved only */
    double longest_wait;           /* for a message of this collective; from longest_peer */
    int longest_peer;
    double stall; /* the longest wait in shared memory for a rank that has come to this collective: stall_rank */
    int stall_rank;
    char *scratch; /* owned; of the collectives over messages, reserved only */
    size_t scratch_bytes;
    const float **operands; /* owned; of the sums */
    const void **wires;
    float **results;
    int staging;                              /* region for buffers that lie in no region; -1: none yet */
    size_t staging_bytes;                     /* of one buffer in it */
    struct ls_heartbeats *heartbeats;         /* owned; NULL on one node */
    struct ls_heartbeats *stopped_heartbeats; /* owned; the transport may use their memory until it is closed */
    _Atomic(struct ls_track *) traced[2]; /* borrowed; of collectives and of messages; NULL: they are not recorded */
};

/* --- waiting: deadline.c ------------------------------------------------------------------------------------ */

/*     struct ls_wait w = {0};
 *     while (!condition)
 *         LS_TRY_GOTO(out, ls_wait_step(c, &w, missing, context));
 * out: ls_wait_end(c, &w);
 *
 * Spins a little, then sleeps until the doorbell rings; point-to-point messages make progress meanwhile. When the
 * deadline passes, `missing` marks the ranks that have not come, and a rank is blamed. */
typedef void ls_missing(const struct ls_comm *c, const void *context, bool *missing);
struct ls_wait {
    uint32_t steps, rung;
    bool for_messages;        /* sleep on the channel's descriptor, where it has one */
    bool prepared;            /* the next step sleeps */
    bool published;           /* other ranks can see for whom this one waits */
    double since, began, nap; /* the wait; this spell of spinning; the next sleep */
    double seen;              /* the last look at the clock */
};
enum ls_status ls_wait_step(struct ls_comm *c, struct ls_wait *w, ls_missing *missing, const void *context);
void ls_wait_end(struct ls_comm *c, struct ls_wait *w);

/* Wakes this process's driver. */
void ls_group_wake(struct ls_comm *c);
/* The doorbell's functions, for the driver. for_messages: messages wake it as well. */
uint32_t ls_group_prepare_sleep(struct ls_comm *c, enum ls_sleep how, bool for_messages);
void ls_group_sleep(struct ls_comm *c, uint32_t rung, double seconds);
void ls_group_cancel_sleep(struct ls_comm *c);

/* Ends the group: reports the error, to this process and to all other ranks. Later calls return the first status. */
enum ls_status ls_group_lose(struct ls_comm *c, enum ls_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Passes on the status of a transport's call; LS_PEER_LOST ends the group with the peer's name. */
enum ls_status ls_group_check_peer(struct ls_comm *c, enum ls_status status, int peer);
/* Fails when another rank has failed or is gone. Cheap enough for ten calls a second. */
enum ls_status ls_group_check(struct ls_comm *c);
/* Publishes that this process runs, and for whom it waits (-1: none). */
void ls_group_alive(struct ls_comm *c);
void ls_group_waits(struct ls_comm *c, int rank);
/* When the deadline of a wait passes that began at `since`. */
double ls_group_limit(const struct ls_comm *c, double since);
/* Moves *allowed to this many seconds from now, unless it is later. Any number is safe. */
void ls_deadline_extend(_Atomic int64_t *allowed, double seconds);

/* --- finding the cause: blame.c ------------------------------------------------------------------------------ */

/* The ranks marked in c->missing did not come; the deadline passed `beyond` seconds ago. Names them, or the ranks that
 * hold them up. LS_OK: call it again later, because the cause is not certain yet or those ranks are excused. */
enum ls_status ls_blame(struct ls_comm *c, double beyond);
/* Ranks are marked in c->missing, and all of them start, save or evaluate. */
bool ls_blame_excused(const struct ls_comm *c);
/* Answers ls_comm_overdue. */
enum ls_status ls_blame_overdue(struct ls_comm *c);
/* Ends the group because no other host was heard for this many seconds. */
enum ls_status ls_blame_network(struct ls_comm *c, double seconds);
/* "it was last seen computing in step 7 3 s ago" */
void ls_blame_describe(const struct ls_comm *c, int rank, char *text, size_t room);

/* --- the communication thread: thread.c ------------------------------------------------------------------------ */

enum ls_status ls_thread_start(struct ls_comm *c);
void ls_thread_stop(struct ls_comm *c, bool graceful);

/* --- driving: driver.c ---------------------------------------------------------------------------------------- */

/* Drives unless another thread does. True: something was done. *checked: when the group was checked last. */
bool ls_driver_try(struct ls_comm *c, double *checked);
/* Ends all work that is left; the caller holds `drive`. */
void ls_driver_end(struct ls_comm *c, bool connected);
/* Waits until the work is done; executes it in this thread where that is allowed. */
void ls_driver_wait(struct ls_comm *c, struct ls_work *work);
void ls_queue_push(struct ls_comm *c, struct ls_work *work);
void ls_work_finish(struct ls_work *work, enum ls_status status);
/* The driver's: records work that is done. */
void ls_work_trace(struct ls_comm *c, const struct ls_work *work);
/* The driver's: takes posted work and moves messages on (true: one was done). */
bool ls_p2p_progress(struct ls_comm *c);
enum ls_status ls_collective_run(struct ls_comm *c, struct ls_work *work);

/* --- set-up: connect.c, place.c, shm/region.c, cost.c, heartbeat.c -------------------------------------------- */

/* In the communication thread: opens the transport, exchanges who is where, opens the segment of this node. */
enum ls_status ls_connect(struct ls_comm *c);
void ls_disconnect(struct ls_comm *c, bool graceful);
/* The number of this process's node; processes with equal numbers share memory. */
uint64_t ls_node_number(const char *host, const char *named);
/* Gives every rank its place in the tree and makes the subgroups. */
enum ls_status ls_subgroups_make(struct ls_comm *c);
void ls_subgroups_release(struct ls_comm *c);
/* As ls_comm_region; reserve: no page is taken before it is used. */
enum ls_status ls_region_take(struct ls_comm *c, size_t bytes, bool reserve, int *region);
/* Where the other processes of the node see this buffer. */
struct ls_region_ref ls_region_find(const struct ls_comm *c, const void *data, size_t bytes);
void ls_regions_release(struct ls_comm *c);
enum ls_status ls_cost_measure(struct ls_comm *c);
enum ls_status ls_heartbeat_start(struct ls_comm *c);
enum ls_status ls_heartbeat_progress(struct ls_comm *c);
/* Sends a failure to the ranks of other nodes, once; of rank `rank`, or -1 when `why` names the rank. */
void ls_heartbeat_report(struct ls_comm *c, enum ls_status status, int rank, const char *why);
/* Sends the failure that ls_comm_abort was given, if it was called. */
void ls_heartbeat_report_abort(struct ls_comm *c);
/* Cancels what is under way. ls_heartbeat_release frees the memory, after the transport is closed. */
void ls_heartbeat_stop(struct ls_comm *c);
void ls_heartbeat_release(struct ls_comm *c);

/* --- comparing calls: mark.c ----------------------------------------------------------------------------------- */

/* A collective begins: sets c->mark and publishes it in this rank's slot. */
void ls_mark_begin(struct ls_comm *c, const struct ls_work *w);
/* Two ranks are in different collectives: ends the group. */
enum ls_status ls_mark_refuse(struct ls_comm *c, int one, const struct ls_mark *its, int other,
                              const struct ls_mark *others);
/* Fails unless that rank is in this rank's collective. */
enum ls_status ls_mark_check(struct ls_comm *c, int rank, const struct ls_mark *its);
/* The same for a mark that did not come with the data: marks of other collectives are ignored. */
enum ls_status ls_mark_compare(struct ls_comm *c, int rank, const struct ls_mark *its);
/* Compares the marks in the slots of this node. Finds ranks that wait in different ways and so never exchange data. */
enum ls_status ls_mark_look(struct ls_comm *c);

/* --- counting: usage.c ------------------------------------------------------------------------------------------ */

/* The driver's: a work is done, after this many seconds in a collective. */
void ls_usage_count(struct ls_comm *c, const struct ls_work *w, double seconds);
/* A thread waited for this work, which is done, from `start` to `end`. */
void ls_usage_waited(struct ls_comm *c, const struct ls_work *w, double start, double end);

/* --- messages: messages.c, p2p.c ------------------------------------------------------------------------------- */

/* Messages of a collective: all are started, waited for, and cleared. */
enum ls_status ls_message_send(struct ls_comm *c, int rank, const void *data, size_t bytes);
enum ls_status ls_message_receive(struct ls_comm *c, int rank, void *data, size_t bytes);
/* Waits until messages first .. last-1 are through. */
enum ls_status ls_messages_wait(struct ls_comm *c, int first, int last);
void ls_messages_clear(struct ls_comm *c);
/* Point-to-point work (LS_WORK_SEND, LS_WORK_RECEIVE): starts one; tests all (true: one was done); cancels all. */
enum ls_status ls_p2p_begin(struct ls_comm *c, struct ls_work *w);
bool ls_p2p_test(struct ls_comm *c);
void ls_p2p_cancel_all(struct ls_comm *c, enum ls_status status);

/* --- algorithms ------------------------------------------------------------------------------------------------ */

/* Range i of count values cut for n, at multiples of 16. */
void ls_range(size_t count, int n, int i, size_t *first, size_t *last);
/* Part i of a work: from its list, or its data. */
static inline const float *ls_work_part(const struct ls_work *w, int i)
{
    return w->parts ? w->parts[i] : w->data;
}

/* Among the processes of this node, through shared memory: every kind but SEND and RECEIVE. */
enum ls_status ls_shm_collective_run(struct ls_comm *c, struct ls_work *w);

/* Over messages, in a subgroup. _sum: index i gets its range of the sum, in its place at data. _share: every index gets
 * all ranges, or only index `root` does (root >= 0). */
enum ls_status ls_direct_sum(struct ls_comm *c, const struct ls_subgroup *k, struct ls_work *w);
enum ls_status ls_direct_share(struct ls_comm *c, const struct ls_subgroup *k, struct ls_work *w, int root);
/* Bytes of scratch for sums of up to `count` values. */
size_t ls_direct_scratch(const struct ls_subgroup *k, size_t count);
enum ls_status ls_direct_small(struct ls_comm *c, const struct ls_subgroup *k, struct ls_work *w);
enum ls_status ls_halving_sum(struct ls_comm *c, const struct ls_subgroup *k, const float *part, float *data,
                              size_t count);
enum ls_status ls_halving_share(struct ls_comm *c, const struct ls_subgroup *k, float *data, size_t count);
enum ls_status ls_ring_run(struct ls_comm *c, struct ls_work *w);
enum ls_status ls_hier_run(struct ls_comm *c, struct ls_work *w);
/* The transport's own allreduce. */
enum ls_status ls_library_allreduce_run(struct ls_comm *c, struct ls_work *w);
enum ls_status ls_broadcast_run(struct ls_comm *c, struct ls_work *w);
enum ls_status ls_allgather_run(struct ls_comm *c, struct ls_work *w);
enum ls_status ls_barrier_run(struct ls_comm *c);
/* data = the sum of this rank's parts, from left to right; for algorithms without the tree's order. */
void ls_parts_sum(struct ls_comm *c, struct ls_work *w);

#endif
