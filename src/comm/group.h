/* The inside of struct ls_comm, for the files of this folder.
 *
 *   G1  Whoever holds `drive` is the driver: the communication thread, or, where no library that minds threads is
 *       involved, a thread that waits for its work and does it rather than wake another. All below the line "the
 *       driver's" is touched by the driver only.
 *   G2  A collective runs from begin to end; while it waits, messages move on. Collectives run in the order posted.
 *   G3  After `broken` is set nothing is sent or waited for any more: all work ends with that status.
 *   G4  Memory for the collectives is taken at open. */
#ifndef LS_COMM_GROUP_H
#define LS_COMM_GROUP_H

#include "comm/shm/shm_segment.h"
#include "comm/comm.h"
#include "comm/algorithms/sum.h"
#include "comm/transport.h"
#include <pthread.h>

/* Seconds that a short sleep may take longer; beyond, this process was stopped. */
#define LS_STOPPED 0.5
enum { LS_HOST_ROOM = 64, LS_MAX_REGIONS = 64, LS_MAX_PARTS = 64, LS_ALGORITHMS = LS_COLLECTIVE_MPI + 1 };
/* Tags of our own, above those of LS_WORK_SEND. */
enum { LS_TAG_COLLECTIVE = LS_TAG_LIMIT, LS_TAG_HELLO, LS_TAG_HEARTBEAT, LS_TAG_MARK };
/* Bytes of a message that travel in one message with the mark; longer ones follow it. */
enum { LS_PACKED = 16384 };

/* Processes that sum together: all of them, those of a node, or those of equal number on all nodes. Within a subgroup they
 * go by index; index i owns range i of what is summed. */
struct ls_subgroup {
    int size, me;
    int *ranks;          /* owned; of each index */
    struct ls_tree tree; /* over indices */
    int most_parts;      /* of one index */
    bool halving;        /* a power of two, one part each */
    struct ls_summer *summer;
};

struct ls_peer {
    char host[LS_HOST_ROOM];
    int node, local, place; /* local: among the ranks of its node; place: index in the subgroup of all */
    int32_t pid;
    _Atomic uint64_t late_times;
    _Atomic int64_t late_ns;
    /* by heartbeat, from other nodes; under queue_lock */
    uint64_t collective; /* it has come to so many */
    uint64_t step;
    int bucket;
    enum ls_stage stage;
    int waits;           /* 1 + the rank it waits for; 0: none */
    double heard, since; /* when it was heard of; when it came to this position */
};

/* Memory of ls_comm_region: of every process of the node, as mapped here. */
struct ls_region {
    size_t bytes;
    char **base;   /* owned; of n processes; NULL: nobody else sees it */
    size_t *sizes; /* owned; of each */
    int n, me;
    char *mine;
};

/* The mark of a collective on its way to or from a rank, with the first message behind it where that is short. */
struct ls_envelope {
    struct ls_transport_request request;
    uint64_t collective; /* the last that it was used for */
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
    bool apart; /* it does not lie in the envelope */
};

struct ls_list {
    struct ls_work *head, *tail;
};

struct ls_comm {
    int rank, size, nodes, local, locals;
    struct ls_comm_options o;
    struct ls_launch launch; /* what it points to is borrowed, and only during open */
    struct ls_peer *peers;   /* owned */
    struct ls_tree tree;     /* of the run, by rank */
    struct ls_subgroup all, node, across;
    bool hier, hier_exact; /* as many ranks on each node; and its sums are the tree's */
    struct ls_cost cost[LS_ALGORITHMS];

    const struct ls_transport *transport; /* what connected us */
    void *transport_state;
    const struct ls_transport
        *channel; /* what carries messages: the transport, or shared memory where that reaches all */
    void *channel_state;
    bool polled;         /* the channel rings no doorbell: it has to be asked */
    int event;           /* wakes a driver that sleeps on the channel's descriptor; -1: the channel has none */
    atomic_bool polling; /* it does */
    bool may_help;       /* G1 */
    bool crowded;        /* more processes than cores on this node */

    struct ls_shm_segment *segment; /* owned; NULL: alone on this node */
    struct ls_doorbell own;         /* without a segment */
    struct ls_doorbell *doorbell;
    struct ls_region regions[LS_MAX_REGIONS];
    int n_regions;

    pthread_t thread;
    bool running;
    _Atomic uint32_t connected; /* futex: 0 not yet, 1 connected, 2 failed */
    _Atomic int opened;         /* the transport: 0 not yet, 1 open, 2 nobody waits for it any more */
    enum ls_status connect_status;
    atomic_bool stop;
    bool graceful;       /* how to close the transport; set before stop */
    atomic_bool closing; /* all is done but the last barrier: who is through may leave */

    pthread_mutex_t queue_lock;
    struct ls_list queue; /* posted, not taken; under queue_lock */
    atomic_ulong posted, taken;
    atomic_int broken;                 /* enum ls_status */
    _Atomic(struct ls_work *) overdue; /* a message that a thread has waited for too long */
    _Atomic double beyond;             /* so many seconds */
    atomic_bool asked;                 /* ls_comm_overdue: is anybody? */
    atomic_int aborting;               /* ls_comm_abort: tell the other nodes */
    char why[LS_REASON_ROOM];          /* under queue_lock until aborting is set */
    _Atomic int64_t allowed;           /* no deadline before then; nanoseconds */
    /* where this process is, without a segment */
    _Atomic uint64_t step;
    _Atomic int32_t bucket, stage;
    _Atomic int64_t since;
    _Atomic int32_t waits;

    pthread_mutex_t drive;
    /* the driver's */
    int driver; /* 0 or 1, as struct ls_doorbell has it */
    struct ls_list collectives, p2p;
    atomic_int pending; /* messages and collectives taken and not done */
    struct ls_work *current;
    uint64_t collective; /* how many were begun */
    struct ls_mark mark; /* of the last */
    uint64_t arrivals;   /* how often it came to the segment */
    uint64_t chunks;     /* how many went over the segment */
    enum ls_collective force;
    double watched, last_heartbeat;
    double heard,
        company; /* the last heartbeat of any rank; since when there was none, less the time we were stopped in */
    bool *missing, *ends;        /* owned; scratch for messages to people */
    struct ls_message *messages; /* owned */
    int n_messages, message_room;
    struct ls_envelope *envelopes; /* owned; to each rank, then from each */
    char *envelope_room;           /* owned; reserved only */
    double longest_wait;           /* for a message of this collective; from whom */
    int longest_peer;
    char *scratch; /* owned; of the collectives over messages, reserved only */
    size_t scratch_bytes;
    const float **operands; /* owned; of the sums */
    const void **wires;
    float **results;
    int staging; /* region for what lies in no region; -1: none yet */
    size_t staging_bytes;
    struct ls_heartbeats *heartbeats; /* owned; NULL on one node */
};

/* --- waiting: deadline.c ------------------------------------------------------------------------------------ */

/*     struct ls_wait p = {0};
 *     while (!what is waited for)
 *         LS_TRY_GOTO(out, ls_wait_step(c, &p, missing, context));
 * out: ls_wait_end(c, &p);
 * Spins a little, then sleeps until a doorbell rings; messages move on meanwhile. When the deadline passes `missing` marks
 * the ranks that have not come, and they are named. */
typedef void ls_missing(const struct ls_comm *c, const void *context, bool *missing);
struct ls_wait {
    uint32_t steps, rung;
    bool mail;                /* for messages: sleep until the transport has something, where it can tell */
    bool prepared, said;      /* said: for whom it waits */
    double since, began, nap; /* the wait; this spell of spinning; the next sleep */
    double seen;              /* when this process last looked at the clock */
};
enum ls_status ls_wait_step(struct ls_comm *c, struct ls_wait *p, ls_missing *missing, const void *context);
void ls_wait_end(struct ls_comm *c, struct ls_wait *p);

/* Wake this process's driver; for work that was posted, or when all ends. */
void ls_group_wake(struct ls_comm *c);
/* As the doorbell's, for the driver; mail: messages wake it too. */
uint32_t ls_group_prepare_sleep(struct ls_comm *c, enum ls_sleep how, bool mail);
void ls_group_sleep(struct ls_comm *c, uint32_t rung, double seconds);
void ls_group_cancel_sleep(struct ls_comm *c);

/* The group cannot go on: say why, once, and tell the others. */
enum ls_status ls_group_lose(struct ls_comm *c, enum ls_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What a transport's call says of a peer: a lost one is named. */
enum ls_status ls_group_check_peer(struct ls_comm *c, enum ls_status status, int peer);
/* The ranks marked in c->missing did not come in time; so many seconds beyond it. Names them, or those who hold them up;
 * LS_OK: ask again, because it does not show yet who that is, or they have reason. */
enum ls_status ls_group_blame(struct ls_comm *c, double beyond);
/* Has anybody failed or gone? Cheap enough for ten times a second. */
enum ls_status ls_group_check(struct ls_comm *c);
/* Say that this process runs, and for whom it waits (-1: nobody). */
void ls_group_alive(struct ls_comm *c);
void ls_group_waits(struct ls_comm *c, int rank);
/* When a wait that began then has lasted too long. */
double ls_group_limit(const struct ls_comm *c, double since);
const char *ls_work_name(enum ls_work_kind kind);

/* --- driving: thread.c -------------------------------------------------------------------------------------- */

enum ls_status ls_thread_start(struct ls_comm *c);
void ls_thread_stop(struct ls_comm *c, bool graceful);
/* Until done; in this thread where that is allowed. */
void ls_thread_wait(struct ls_comm *c, struct ls_work *work);
void ls_queue_push(struct ls_comm *c, struct ls_work *work);
void ls_work_finish(struct ls_work *work, enum ls_status status);
/* The driver's: move messages on (true: something moved); run a collective. */
bool ls_p2p_progress(struct ls_comm *c);
enum ls_status ls_collective_run(struct ls_comm *c, struct ls_work *work);

/* --- set-up: connect.c, region.c, cost.c, heartbeat.c -------------------------------------------------------------- */

/* In the communication thread: the transport, who is where, the segment. */
enum ls_status ls_connect(struct ls_comm *c);
void ls_disconnect(struct ls_comm *c, bool graceful);
/* As ls_comm_region; reserve: no page is taken before it is used. */
enum ls_status ls_region_take(struct ls_comm *c, size_t bytes, bool reserve, int *region);
/* Where the other processes of the node see this buffer. */
struct ls_region_ref ls_region_find(const struct ls_comm *c, const void *data, size_t bytes);
void ls_regions_release(struct ls_comm *c);
enum ls_status ls_cost_measure(struct ls_comm *c);
/* Heartbeats, once a second, and what else is to be told to other nodes. */
enum ls_status ls_heartbeat_start(struct ls_comm *c);
enum ls_status ls_heartbeat_progress(struct ls_comm *c);
/* Tell what ls_comm_abort was given, if it was. */
void ls_heartbeat_report_abort(struct ls_comm *c);
void ls_heartbeat_report(struct ls_comm *c, enum ls_status status, int rank, const char *why);
void ls_heartbeat_stop(struct ls_comm *c);

/* --- collectives ---------------------------------------------------------------------------------------------- */

/* Range i of count values cut for n, at multiples of 16. */
void ls_range(size_t count, int n, int i, size_t *first, size_t *last);
/* The parts of a work: its list, or its data alone. */
static inline const float *ls_work_part(const struct ls_work *w, int i)
{
    return w->parts ? w->parts[i] : w->data;
}

/* A collective begins: c->mark says which, and so does this rank's slot. */
void ls_mark_begin(struct ls_comm *c, const struct ls_work *w);
/* Two ranks are in different collectives: the group cannot go on. */
enum ls_status ls_mark_refuse(struct ls_comm *c, int one, const struct ls_mark *its, int other,
                              const struct ls_mark *others);
/* Is that rank where this one is? */
enum ls_status ls_mark_check(struct ls_comm *c, int rank, const struct ls_mark *its);
/* The same for what was heard of a rank beside the data: of other collectives it says nothing. */
enum ls_status ls_mark_compare(struct ls_comm *c, int rank, const struct ls_mark *its);
/* At the slots of this node: ranks that wait in different ways never meet. */
enum ls_status ls_mark_look(struct ls_comm *c);

/* Among the processes of this node, through shared memory: any kind but messages. */
enum ls_status ls_shm_collective_run(struct ls_comm *c, struct ls_work *w);

/* Messages: all of a collective's are waited for, then forgotten. */
enum ls_status ls_message_send(struct ls_comm *c, int rank, const void *data, size_t bytes);
enum ls_status ls_message_receive(struct ls_comm *c, int rank, void *data, size_t bytes);
/* Until messages first .. last-1 are through. */
enum ls_status ls_messages_wait(struct ls_comm *c, int first, int last);
void ls_messages_clear(struct ls_comm *c);
/* Posted messages: start one; test all (true: one was done); give all up. */
enum ls_status ls_p2p_begin(struct ls_comm *c, struct ls_work *w);
bool ls_p2p_test(struct ls_comm *c);
void ls_p2p_cancel_all(struct ls_comm *c, enum ls_status status);

/* Over messages, in a subgroup. Sums leave index i's range at data (in its place); sharing makes all ranges whole
 * everywhere, or at one index only (root >= 0). */
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
enum ls_status ls_library_allreduce_run(struct ls_comm *c, struct ls_work *w);
/* Over messages, whatever is not a sum. */
enum ls_status ls_broadcast_run(struct ls_comm *c, struct ls_work *w);
enum ls_status ls_allgather_run(struct ls_comm *c, struct ls_work *w);
enum ls_status ls_barrier_run(struct ls_comm *c);
/* data = the sum of this rank's parts, from left to right: for the ways that give up the tree. */
void ls_parts_sum(struct ls_comm *c, struct ls_work *w);

#endif
