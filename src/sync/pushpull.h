/* Parameter servers, for strategies that do not wait for all workers.
 *
 * Ranks 0 .. workers-1 compute a replica each; the servers follow, and bucket b belongs to server b mod servers. A worker
 * sends each bucket's gradients while its pass still runs, then a push with the number of their step, and waits
 * for the answer: the new values of all buckets, and where to go on. What a server does with a push, and when it answers
 * it, is the strategy's: `arrived`.
 *
 *   SYNC-4  A worker has one push under way at a time, and pushes to all servers alike.
 *   SYNC-5  A server never waits for one worker, which may have been stopped: it has a buffer for the answer to each, and a
 *       push is sent when its gradients are through, so that a server that has the push has them too.
 *   SYNC-6  Workers collect at the same step; no answer is owed then. Each worker announces it by a push of kind
 *       LS_PUSH_LEAVE with empty gradients, which ends the receives that servers keep posted.
 *   SYNC-7  A signal reaches the first server with a push. That server names a step that no worker has passed, and all
 *   stop there. */
#ifndef LS_SYNC_PUSHPULL_H
#define LS_SYNC_PUSHPULL_H

#include "sync/arrivals.h"
#include "sync/sync.h"

/* The tag of a gradient is the number of its bucket. */
enum { LS_TAG_PUSH = LS_TAG_LIMIT - 1, LS_TAG_PULL = LS_TAG_LIMIT - 2 };
enum { LS_PUSH_STEP, LS_PUSH_LEAVE };

struct ls_push {
    int32_t kind, signal;
    uint64_t step;
    double lr;
    int64_t own, samples; /* of the step: this worker's, all */
};

/* Values follow. */
struct ls_pull {
    uint64_t next, meet; /* go on with; stop before (UINT64_MAX: never) */
    int32_t signal, dropped;
    int32_t k; /* cutoff: gradients of the last step that closed; 0: none did */
    struct ls_lag {
        int64_t behind, ahead; /* updates between pull and push; steps before the slowest */
    } lag;
    int64_t counted;
};

/* A worker, as a server sees it. */
struct ls_pusher {
    struct ls_push push;    /* the last */
    float *grads;           /* owned; of this server's buckets, one after the other */
    struct ls_work *coming; /* owned; one a bucket of this server */
    struct ls_pull *pull;   /* owned; the answer under way, with its values */
    struct ls_work answer;
    bool answering;
    bool waits, left; /* has pushed and is owed an answer; has come to collect */
    bool held;        /* waits for the next step to open: it comes too late for the one that is open */
    double began;     /* ls_now() of its last answer; 0: none since the workers met */
    uint64_t clock;   /* the step it pushes next */
    uint64_t pulled;  /* updates made when it was last answered */
    int64_t counted;  /* samples, likewise */
    int64_t behind;   /* updates between its last pull and push */
};

struct ls_pushpull {
    int workers, servers, me; /* me: number of this server, -1: a worker */
    bool met;                 /* all have the same values */
    struct ls_sync_tally tally;
    uint64_t next_step;           /* that this rank goes on with */
    size_t *grads_of, *values_of; /* owned; floats of each server's gradients and values */
    /* of a worker */
    struct ls_push push;
    struct ls_work *pushes, *pulls; /* owned; one a server */
    struct ls_pull **pulled;        /* owned, and so are they */
    /* of a server */
    struct ls_pusher *pushers; /* owned; one a worker */
    uint64_t updates, open;    /* made so far; cutoff: the step that is waited for */
    int64_t counted;           /* samples of all updates */
    uint64_t meet;
    int signal;
    int last_k; /* cutoff: gradients of the last step that closed */
    /* cutoff with --cutoff-k auto */
    struct ls_arrivals arrivals;
    struct ls_arrivals_plan plan; /* of the open step */
    double *start;                /* owned; when each worker began the open step (ls_arrivals_plan) */
    double opened;                /* ls_now() when it opened */
};

/* open and close for the strategy's own; ready, finish and collect are as in ls_sync_ops. */
enum ls_status ls_pushpull_open(struct ls_sync *s);
void ls_pushpull_close(struct ls_sync *s);
enum ls_status ls_pushpull_ready(struct ls_sync *s, int bucket);
enum ls_status ls_pushpull_finish(struct ls_sync *s);
enum ls_status ls_pushpull_collect(struct ls_sync *s);

/* The bytes of a pull from a server. */
size_t ls_pushpull_bytes(const struct ls_pushpull *p, int server);
/* Copies the values of a server's buckets to the message (out) or from it. Optimizer state is not copied. */
void ls_pushpull_move_values(const struct ls_sync *s, int server, struct ls_pull *pull, bool out);

/* --- a server: pushpull_server.c --------------------------------------------------------------------------- */

/* arrived: this worker's push is complete, and it waits. late: the rank that others wait for, -1: none. until: when
 * `expired` is called if no push comes before, INFINITY: never; both NULL: likewise. */
struct ls_serving {
    enum ls_status (*arrived)(struct ls_sync *s, int worker);
    int (*late)(const struct ls_sync *s);
    double (*until)(const struct ls_sync *s);
    enum ls_status (*expired)(struct ls_sync *s);
};
enum ls_status ls_pushpull_serve(struct ls_sync *s, const struct ls_serving *serving, uint64_t *step);
/* Update all buckets of this server by these gradients, a mean over `counted` samples (0: do nothing). */
enum ls_status ls_pushpull_update(struct ls_sync *s, const float *grads, uint64_t step, double lr, int64_t counted);
/* Send a worker the values as they are now. */
enum ls_status ls_pushpull_answer(struct ls_sync *s, int worker, uint64_t next, struct ls_lag lag, bool dropped);

#endif
