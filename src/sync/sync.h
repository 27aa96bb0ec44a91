/* How workers agree on a step: one file a strategy, one line in config/lists/strategies.def.
 *
 * A pass leaves gradients in one flat memory in the order in which it completes them; a bucket is a range of it. The step
 * says which bucket is complete (ready) while its last pass still runs, and asks for the rest when it is over (finish).
 * Between the two a strategy combines gradients and has parameters updated, bucket by bucket.
 *
 *   S1  gather, allreduce, overlap and server give the bits of one process that computes all replicas.
 *   S2  A bucket's parameters are updated once a step, after its last use by the pass and once its sum is complete.
 *
 * With servers of their own (pushpull.h) the last ranks compute nothing: they hold the parameters, and serve. */
#ifndef LS_SYNC_SYNC_H
#define LS_SYNC_SYNC_H

#include "comm/comm.h"
#include "config/options.h"

struct ls_bucket {
    size_t first, count; /* floats of the gradient memory */
    int ready;           /* the node that completes it */
    int used;            /* the last node of a pass that reads what its updates change */
    bool plain;          /* statistics, which no compression may touch */
    /* Its gradients as matrices, where they lie as such; cols 0: a vector. In the order of memory, without a gap. */
    struct ls_sync_matrix {
        size_t first, count; /* floats of the gradient memory */
        size_t rows, cols, block;
    } * matrices; /* owned */
    int n_matrices;
    /* Memory that belongs to no value and must stay zero, where compression may write there. */
    struct ls_sync_gap {
        size_t first, count; /* floats of the gradient memory */
    } * gaps;                /* owned */
    int n_gaps;
    /* What its updates change: parameters, running statistics, momentum. */
    struct ls_sync_values {
        float *memory; /* borrowed */
        size_t count;
        bool optimizer; /* momentum: only who updates needs it */
        bool running;   /* a running statistic */
    } * values;         /* owned */
    int n_values;
};

/* What became of a worker's gradients, where servers take them as they come. */
struct ls_sync_tally {
    int64_t pushed;                  /* steps it gave its gradients to */
    int64_t dropped;                 /* of these, it came too late to */
    int64_t skipped;                 /* steps it left out to catch up */
    int64_t behind_sum, behind_most; /* updates made between its pull and its push */
    int64_t ahead_most;              /* steps ahead of the slowest when it went on */
    int64_t signal;                  /* that it was told to stop by, or 0 */
};

/* Of a bucket's values: parameters and running statistics, or momentum, too. */
enum ls_sync_part { LS_PART_NONE, LS_PART_MODEL, LS_PART_ALL };

struct ls_sync {
    const struct ls_sync_ops *ops;
    const struct ls_options *o;
    struct ls_comm *comm;
    float *grads;
    float *const *parts; /* this rank's parts of the sum, each like grads; the last is grads */
    int n_parts;
    struct ls_bucket *buckets; /* borrowed */
    int n_buckets;
    enum ls_status (*update)(void *context, int bucket); /* run the bucket's updates on grads */
    /* Where a bucket's values are copies: make that part of them what the updates left. */
    enum ls_status (*look)(void *context, int bucket, enum ls_sync_part part);
    void *context;
    const struct ls_codec *codec;     /* NULL: none */
    float **feedback;                 /* owned; of the codec, one a bucket, NULL where it keeps none */
    const struct ls_reducer *reducer; /* instead of a codec; NULL: none */
    void *reducer_state;              /* owned by the reducer */
    /* the step under way */
    uint64_t step;
    double waited; /* seconds the compute waited for communication, since the last step */
    bool differ;   /* result of finish and collect: ranks hold different parameters, as the strategy means it */
    enum ls_sync_part wrote; /* result of finish and collect: the values that are not as the updates left them */
    int posted, next;        /* buckets handed over; the first bucket that is not updated yet */
    int at;                  /* nodes of the last pass that have run */
    struct ls_work *works;   /* owned; one a bucket */
    float **bucket_parts;    /* owned; n_parts a bucket */
    void *state;             /* the strategy's own; owned */
    /* Where ranks serve. The caller fills signal, and before each step rate and samples. */
    int (*signal)(void *context);  /* why this process is to stop, a signal or another number; 0: it is not */
    double lr;                     /* a server's: of the update under way */
    int64_t own, samples;          /* of the step: this rank's, all */
    uint64_t next_step;            /* result of a step: the one to go on with */
    int64_t counted;               /* result: samples of all that became updates since the last step */
    int64_t behind;                /* result: updates between its pull and its push */
    int stop;                      /* result: stop here, all do, by this signal; 0: no */
    struct ls_sync_tally *tallies; /* owned; one a rank, as of the last collect; NULL: none */
};

struct ls_sync_ops {
    const char *name, *summary;
    bool by_tensor; /* a bucket is a tensor */
    bool alone;     /* gradients are not summed: each worker's mean is over its own samples */
    bool stays;     /* nor does anybody else see them: a worker's updates are its own */
    enum ls_status (*open)(struct ls_sync *s);              /* NULL: nothing to do */
    enum ls_status (*ready)(struct ls_sync *s, int bucket); /* NULL: nothing to do */
    enum ls_status (*finish)(struct ls_sync *s);
    /* Make all ranks agree, and rank 0's state whole, before it is evaluated or saved. NULL: they do. */
    enum ls_status (*collect)(struct ls_sync *s);
    /* A rank that only serves does so until all workers come to collect; *step: where they began, then where they
     * are. NULL: there are no such ranks. */
    enum ls_status (*serve)(struct ls_sync *s, uint64_t *step);
    void (*close)(struct ls_sync *s); /* NULL: nothing to do */
};

/* Is no process told of all gradients, because each updates its share of the parameters alone? */
static inline bool ls_sync_shards(const struct ls_sync_ops *ops)
{
    return ops->collect && !ops->stays;
}

extern const struct ls_sync_ops *const ls_sync_list[]; /* ends with NULL */
const struct ls_sync_ops *ls_sync_find(const char *name);
/* The strategy that the options ask for, NULL: there is none; how many of `size` ranks only serve, the last ones. */
const struct ls_sync_ops *ls_sync_choose(const struct ls_options *o);
int ls_sync_servers(const struct ls_options *o, int size);

/* The caller fills o, comm, grads, parts, n_parts, buckets, n_buckets, update, look and context. */
enum ls_status ls_sync_open(struct ls_sync *s);
void ls_sync_close(struct ls_sync *s);
/* A step begins; a bucket is complete (in order), the last pass having run nodes 0 .. at-1; the pass is over: afterwards
 * all parameters are updated. */
void ls_sync_begin(struct ls_sync *s, uint64_t step);
enum ls_status ls_sync_ready(struct ls_sync *s, int bucket, int at);
enum ls_status ls_sync_finish(struct ls_sync *s);
enum ls_status ls_sync_collect(struct ls_sync *s);
enum ls_status ls_sync_serve(struct ls_sync *s, uint64_t *step);

/* A compressor that sums all buckets of a step at once, in place of the strategy: one folder, one line in
 * config/lists/compressors.def. close is called after every open, also one that failed. */
struct ls_reducer {
    const char *name; /* --compress NAME[:...] */
    enum ls_status (*open)(struct ls_sync *s);
    enum ls_status (*sum)(struct ls_sync *s);
    void (*close)(struct ls_sync *s);
};

/* For strategies: post the bucket's work of this kind; wait for it, counting the time. */
void ls_sync_post(struct ls_sync *s, int bucket, enum ls_work_kind kind, int peer);
enum ls_status ls_sync_wait(struct ls_sync *s, struct ls_work *work);
/* Run the updates of a bucket whose sum is there. The model's values are to be seen then, unless gradients stay. */
enum ls_status ls_sync_update(struct ls_sync *s, int bucket);
/* Update the buckets whose sums are there, in order, as far as S2 allows; all: wait for every one. */
enum ls_status ls_sync_settle(struct ls_sync *s, bool all);

/* Where to cut: tensors in the order of completion, ready[i] seconds into the pass, `bytes[i]` long. Sums take
 * alpha + beta * bytes each, one after the other, each as soon as its last tensor is ready and the one before it is
 * through. Marks in last[i] the tensors that end a bucket such that the last sum ends soonest. */
enum ls_status ls_sync_cut(int n, const double *ready, const size_t *bytes, struct ls_cost cost, bool *last);

#endif
