/* How the gradients of all processes are combined: one file a strategy, one line in config/lists/strategies.def.
 *
 * A pass leaves gradients in one flat memory, in the order in which it completes them. A bucket is a range of it. The
 * step calls ready when a bucket is complete, while its last pass still runs, and finish when the pass has ended.
 * Between the two, a strategy combines gradients and updates parameters, bucket by bucket. The properties of a strategy
 * are the fields of its descriptor, struct ls_sync_ops: nothing outside this folder depends on the name of a strategy.
 *
 * A run always has a strategy. One process has `none`. Where devices sum among themselves, exec/device/peers.c has one.
 *
 *   SYNC-1  A strategy that is `exact` gives the bits of one process that computes all replicas.
 *   SYNC-2  A bucket's parameters are updated once a step, after the last node of the pass that reads them, and when the
 *           bucket's sum is complete.
 *
 * Where the last ranks are servers (pushpull.h), they compute nothing: they hold the parameters and answer workers. */
#ifndef LS_SYNC_SYNC_H
#define LS_SYNC_SYNC_H

#include "comm/comm.h"
#include "config/options.h"
#include "sync/totals.h"

struct ls_bucket {
    size_t first, count; /* floats of the gradient memory */
    int ready;           /* the node that completes it */
    int used;            /* the last node of a pass that reads what its updates change */
    bool local;          /* not summed over all processes: complete here, or, with a group, summed among the group */
    bool plain;          /* statistics, which are never compressed */
    /* Its gradients as matrices, in the order of memory, without a gap. cols 0: a vector. */
    struct ls_sync_matrix {
        size_t first, count; /* floats of the gradient memory */
        size_t rows, cols, block;
    } * matrices; /* owned */
    int n_matrices;
    /* Padding that must stay zero, with a compression that may write there. */
    struct ls_sync_gap {
        size_t first, count; /* floats of the gradient memory */
    } * gaps;                /* owned */
    int n_gaps;
    /* What its updates change: parameters, running statistics, state of the optimizer. */
    struct ls_sync_values {
        float *memory; /* borrowed */
        size_t count;
        bool optimizer; /* state of the optimizer: only the rank that updates needs it */
        bool running;   /* a running statistic */
    } * values;         /* owned */
    int n_values;
};

enum { LS_TALLY_WITHOUT = 32 };

/* Part of a bucket that is summed at once, where optimizer state is sharded. Pieces are in the order of memory. */
struct ls_sync_piece {
    int bucket;
    size_t first, count; /* floats of the gradient memory */
    int owner;           /* the rank that updates it; or one of enum ls_piece_owner */
};
enum ls_piece_owner {
    LS_OWNER_EACH = -1, /* each rank updates its range (ls_comm_range) */
    LS_OWNER_ALL = -2   /* every rank makes the whole update */
};

/* What servers did with a worker's gradients. */
struct ls_sync_tally {
    int64_t pushed;                  /* gradients that it sent */
    int64_t dropped;                 /* of these: came too late */
    int64_t skipped;                 /* steps that it left out to catch up with the others */
    int64_t behind_sum, behind_most; /* updates made between its pull and its push */
    int64_t ahead_most;              /* steps ahead of the slowest when it went on */
    int64_t signal;                  /* the signal that stops it, or 0 */
    /* Of a server with cutoff: steps that closed without so many gradients, the last entry: or more. */
    int64_t without[LS_TALLY_WITHOUT];
};

/* Of a bucket's values: parameters and running statistics, the optimizer's state, or both. */
enum ls_sync_part { LS_PART_NONE, LS_PART_MODEL, LS_PART_OPTIMIZER, LS_PART_ALL };

static inline bool ls_sync_in_part(bool optimizer, enum ls_sync_part part)
{
    return part == LS_PART_ALL || part == (optimizer ? LS_PART_OPTIMIZER : LS_PART_MODEL);
}

/* The outcome of a step for a process. */
struct ls_sync_outcome {
    uint64_t next_step;  /* the step to go on with: the one that follows, unless servers set another */
    int64_t samples;     /* samples of all processes that became updates since the step before */
    int64_t reported;    /* samples that the step's totals count: all of the step, or this process's */
    int64_t gradients;   /* gradients of this process that servers took: 1, or 0 where they are summed */
    int64_t staleness;   /* updates made between the pull and the push of this process */
    int64_t closed_with; /* cutoff: gradients that the last closed step counted; 0: unknown */
    int stop;            /* servers: all processes stop after this step, by this signal; 0: they do not */
    bool differ;         /* the processes have different parameters now, as is usual with this strategy */
};

/* Some of the processes, which sum among themselves. A process has at most so many parts of local buckets. */
enum { LS_SYNC_LOCAL_PARTS = 64 };
struct ls_sync_group {
    const struct ls_tree *tree; /* borrowed; of the replicas over their places */
    const int *ranks;           /* borrowed; of each place */
    int place;                  /* of this process */
    /* Of local buckets: this process's parts in the order of the tree, but the last, which is in grads. Each is memory
     * like grads from float `first` on. Borrowed. */
    float *const *parts;
    size_t first;
};

struct ls_sync {
    const struct ls_sync_ops *ops; /* never NULL once open */
    const struct ls_options *o;
    struct ls_comm *comm; /* NULL: one process */
    /* Borrowed; the processes among which local buckets are summed, or by ls_sync_group all buckets; NULL: none. */
    const struct ls_sync_group *group;
    float *grads;
    float *const *parts; /* this rank's parts of the sum, each like grads; the last is grads */
    int n_parts;
    struct ls_bucket *buckets; /* borrowed */
    int n_buckets;
    enum ls_status (*update)(void *context, int bucket); /* runs the bucket's updates on grads */
    /* If a bucket's values are copies of device memory: begins to fetch that part of them, as the updates left it. */
    enum ls_status (*fetch_values)(void *context, int bucket, enum ls_sync_part part);
    enum ls_status (*values_arrived)(void *context); /* waits for all of these */
    /* Optimizer state in shards. update_piece runs this rank's updates of a piece, and puts the new parameters in the
     * place of their gradients. take_piece takes the parameters of all other ranks from there. */
    const struct ls_sync_piece *pieces; /* borrowed */
    int n_pieces;
    enum ls_status (*update_piece)(void *context, int piece);
    enum ls_status (*take_piece)(void *context, int piece);
    void *context;
    const struct ls_codec *codec;     /* NULL: none */
    float **feedback;                 /* owned; of the codec, one a bucket, NULL where it keeps none */
    const struct ls_reducer *reducer; /* instead of a codec; NULL: none */
    void *reducer_state;              /* owned by the reducer */
    struct ls_totals *all_totals;     /* owned; one a rank */
    /* the step under way */
    uint64_t step;                    /* on a server: of the update under way */
    enum ls_sync_part wrote;          /* result of finish and collect: the values that the strategy itself changed */
    struct ls_sync_outcome outcome;   /* what finish returns; begin sets it as for strategies without servers */
    int posted, next;                 /* buckets that are ready; the first bucket that is not updated yet */
    int at;                           /* nodes of the last pass that have run */
    struct ls_work *works;            /* owned; one a bucket */
    float **bucket_parts;             /* owned; n_parts a bucket */
    struct ls_group_sum **group_sums; /* owned; one a bucket, of those that a group sums; NULL: none */
    struct ls_work *value_works;      /* owned; one a value, of strategies that work on values */
    int n_value_works, n_values;      /* under way; in all */
    void *state;                      /* the strategy's; owned */
    struct ls_track *track;           /* borrowed; where waits are recorded (base/trace.h); NULL: nowhere */
    /* With servers. The caller fills signal; begin fills the others. */
    /* Returns why this process wants to stop: a signal or another number; 0: it does not. */
    int (*signal)(void *context);
    double lr;                     /* of the step; on a server: of the update under way */
    int64_t own, samples;          /* of the step: this rank's; all */
    struct ls_sync_tally *tallies; /* owned; one a rank, as of the last collect; NULL: none */
};

/* Where the gradients are cut into buckets. */
enum ls_sync_cut { LS_CUT_BY_TIME, LS_CUT_BY_SIZE, LS_CUT_BY_TENSOR, LS_CUT_NONE };

struct ls_sync_ops {
    const char *name, *summary;
    const char *summed_by; /* for people: "the host" where NULL */
    const char *identity;  /* key of the identity under which the number of processes decides bits; NULL: it does not */
    enum ls_sync_cut cut;  /* buckets */
    bool exact;            /* SYNC-1 */
    bool local_mean;       /* gradients are not summed: each is the mean over its worker's samples */
    bool no_reduce;        /* the host sums nothing: each process updates with the gradients in its own memory */
    bool after_pass;       /* all work begins after the pass */
    bool updates_in_pass;  /* if a step is one pass, an update may run within the pass, behind its gradient */
    bool shards;           /* each process updates a part of the parameters, and none has all gradients */
    bool shards_state;     /* each process holds optimizer state for its part of the parameters (pieces) */
    bool works_on_values;  /* reads or writes parameters, which must then be in the host's memory */
    bool on_device;        /* devices can make its sums */
    bool servers;          /* the last ranks are servers; workers do not wait for each other, except to collect */
    enum ls_status (*open)(struct ls_sync *s);              /* NULL: nothing to do */
    enum ls_status (*ready)(struct ls_sync *s, int bucket); /* NULL: nothing to do */
    enum ls_status (*finish)(struct ls_sync *s);
    /* Before an evaluation or a checkpoint: gives all ranks the same parameters, and rank 0 the whole state. NULL: they
     * always have them. */
    enum ls_status (*collect)(struct ls_sync *s);
    /* On a server: serves until all workers collect. *step: in, the step that they begin with; out, the one that they
     * have reached. */
    enum ls_status (*serve)(struct ls_sync *s, uint64_t *step);
    void (*close)(struct ls_sync *s);       /* NULL: nothing to do */
    const struct ls_sync_ops *with_servers; /* takes its place with --servers; NULL: none */
    const struct ls_sync_ops *with_shards;  /* takes its place with --shard; NULL: none */
};

extern const struct ls_sync_ops *const ls_sync_list[]; /* those of --sync; ends with NULL */
#define X(name) extern const struct ls_sync_ops ls_sync_##name;
#include "config/lists/strategies.def"
/* Those that take the place of one of --sync: in one process; among a group, for which the caller of ls_sync_open fills
 * `group`, too; with --servers; with --shard. */
extern const struct ls_sync_ops ls_sync_none, ls_sync_group, ls_sync_dedicated;
extern const struct ls_sync_ops ls_sync_sharded_overlap, ls_sync_sharded_allreduce;
const struct ls_sync_ops *ls_sync_find(const char *name);
/* The strategy for `size` processes with these options. */
const struct ls_sync_ops *ls_sync_choose(const struct ls_options *o, int size);
/* The number of servers among them. */
int ls_sync_servers(const struct ls_options *o, int size);

/* The caller fills ops, o, comm, grads, parts, n_parts, buckets, n_buckets, update, fetch_values, values_arrived,
 * context and signal. A group that forms again closes and opens: nothing but buckets and comm is shared with the
 * engine. close takes one that is not open. */
enum ls_status ls_sync_open(struct ls_sync *s);
void ls_sync_close(struct ls_sync *s);
/* Begins a step over `samples` samples; `own` of them are this rank's. */
void ls_sync_begin(struct ls_sync *s, uint64_t step, double lr, int64_t own, int64_t samples);
/* A bucket is complete (they come in order); the last pass has run nodes 0 .. at-1. */
enum ls_status ls_sync_ready(struct ls_sync *s, int bucket, int at);
/* After the pass: combines the rest and updates all parameters. */
enum ls_status ls_sync_finish(struct ls_sync *s, struct ls_sync_outcome *outcome);
/* The totals of a step over all processes, or with servers those of this one. A process's `stop` is why it wants to stop;
 * then it is why all stop. */
enum ls_status ls_sync_totals(struct ls_sync *s, struct ls_totals *totals);
/* ls_sync_ops.collect. *stop is set only where servers decide that all processes stop. */
enum ls_status ls_sync_collect(struct ls_sync *s, int *stop);
/* ls_sync_ops.serve. */
enum ls_status ls_sync_serve(struct ls_sync *s, uint64_t step, struct ls_sync_outcome *outcome);

/* A compressor that sums all buckets of a step at once, in place of the strategy: one folder, one line in
 * config/lists/compressors.def. close is called after every open, also one that failed. */
struct ls_reducer {
    const char *name; /* --compress NAME[:...] */
    enum ls_status (*open)(struct ls_sync *s);
    enum ls_status (*sum)(struct ls_sync *s);
    void (*close)(struct ls_sync *s);
};

/* For strategies. post: posts the bucket's work of this kind; wait: waits for it. */
void ls_sync_post(struct ls_sync *s, int bucket, enum ls_work_kind kind, int peer);
enum ls_status ls_sync_wait(struct ls_sync *s, struct ls_work *work);
/* Post this collective for a part of a bucket's values. Values that lie side by side go together. wait_values waits for
 * all that was posted since the last wait. */
void ls_sync_post_values(struct ls_sync *s, int bucket, enum ls_sync_part part, struct ls_work like);
enum ls_status ls_sync_wait_values(struct ls_sync *s);
/* Runs the updates of a bucket whose sum is there. The model's values can be read after values_arrived, unless the
 * strategy is no_reduce. */
enum ls_status ls_sync_update(struct ls_sync *s, int bucket);
/* Updates the buckets whose sums have arrived, in order, as far as SYNC-2 allows. all: waits for every bucket. */
enum ls_status ls_sync_settle(struct ls_sync *s, bool all);

/* Where to cut: tensors in the order of completion, ready[i] seconds into the pass, `bytes[i]` long. Sums take
 * alpha + beta * bytes each, one after the other, each as soon as its last tensor is ready and the one before it is
 * through. Marks in last[i] the tensors that end a bucket such that the last sum ends soonest. */
enum ls_status ls_sync_cut(int n, const double *ready, const size_t *bytes, struct ls_cost cost, bool *last);

#endif
