/* The engine of a run: model, backend, parameters and memory. It turns the forward graph into programs that can run. The training and the evaluation program share parameters, state and one arena. */
#ifndef LS_EXEC_ENGINE_H
#define LS_EXEC_ENGINE_H

#include "backend/backend.h"
#include "config/options.h"
#include "graph/build.h"
#include "parallel/mesh.h"
#include "parallel/parts.h"
#include "sync/sync.h"
#include "exec/replicas.h"

struct ls_net {
    struct ls_graph graph;
    struct ls_program *program; /* owned; NULL: not made */
    int end;                    /* the pass is nodes 0 .. end-1; the nodes behind it update parameters */
};

struct ls_engine {
    const struct ls_backend *backend;
    struct ls_store *store; /* owned */
    struct ls_net train, eval;
    struct ls_net glance;      /* evaluation of one view, with --tta least; else its program is NULL */
    struct ls_model_size size; /* of one pass */
    int threads, passes;
    struct ls_comm *comm;               /* borrowed; NULL: one process */
    struct ls_mesh mesh;                /* --parallel; its text is borrowed from the options */
    const struct ls_sync_ops *strategy; /* how gradients are combined; never NULL */
    const struct ls_tree *tree;         /* of replicas over the processes: comm's, or own_tree */
    int place;                          /* of this process in the tree */
    struct ls_tree own_tree;
    void *arena; /* owned; the backend's memory */
    size_t arena_bytes, store_bytes;
    /* Where one pass is not a whole step, gradients are kept, and updated bucket by bucket. */
    float *kept; /* where passes leave gradients: the backend's memory; owned */
    float *grads,
        *side; /* as strategies see them: kept, or a copy in the host's memory where the host combines them and
                          * cannot read kept; side: a process's parts of the sum but the last. Owned unless comm's */
    bool
        drops_grads; /* grads are given back to the system bucket by bucket (shards/params.h), and are zero again then */
    size_t n_grads;  /* floats; 0: updates follow the gradients within the pass */
    struct ls_bucket *buckets; /* owned */
    int n_buckets;
    int *update_nodes, *update_first; /* owned; bucket b: update_nodes[update_first[b]] .. [update_first[b + 1] - 1] */
    bool plan_only;                   /* LS_ENGINE_PREDICT: the programs cannot run */
    bool updates_together;            /* all buckets are updated in one run, when the last one is complete */
    struct ls_host_copy *host_copy; /* owned; of the values that updates change; NULL: the host sees them as they are */
    struct ls_peers *peers;         /* owned; devices sum gradients among themselves; NULL: they do not */
    struct ls_sync_ops device;      /* the strategy then */
    struct ls_pipeline *pipeline;   /* owned; this process has a stage of the model; NULL: --parallel has no pipeline */
    struct ls_engine_parts *parts;  /* owned; this process holds a part of the model; NULL: all of it */
    struct ls_split *split;         /* owned; the large dense layers are divided among processes; NULL: they are not */
    struct ls_graph whole;          /* then: the training graph of the whole model, which never runs */
    struct ls_clip *clip;     /* owned; --clip-norm over parts of the model (clip.h); NULL: all gradients are here */
    struct ls_shards *shards; /* owned; optimizer state in shards (shards.h); NULL: it is whole here */
    struct ls_params *params; /* owned; parameters in shards, too (shards/params.h); NULL: they are whole here */
};

/* LS_ENGINE_RANK times a number, with LS_ENGINE_PREDICT or LS_ENGINE_MEASURE: of that rank of the layout --parallel. */
enum ls_engine_use {
    LS_ENGINE_TRAIN = 1,
    LS_ENGINE_EVAL = 2,
    LS_ENGINE_PREDICT = 4,
    LS_ENGINE_MEASURE = 8,
    LS_ENGINE_RANK = 16
};

/* Cores this process may use, and a CPU quota pays for. */
int ls_engine_cores(void);
/* Room for samples of one pass: batch / (replicas * accumulate), rounded up; LS_USAGE when a pass would have none. */
enum ls_status ls_engine_pass_batch(const struct ls_options *o, int64_t *batch);

/* What can be wrong with the model and its options on that many processes, found out without preparing anything. */
enum ls_status ls_engine_check(const struct ls_options *o, const struct ls_model_size *size, int processes);

/* size->batch is that of one pass. comm NULL: one process. plan: the kernels that a run began with (its plan.txt), or
 * NULL; --plan overrides it. Kernels that the run's plan lacks are warned of, those that --plan lacks are an error.
 * uses: enum ls_engine_use bits; without LS_ENGINE_TRAIN no loss op reads labels beyond evaluation's, and replicas and
 * accumulation do not matter; with LS_ENGINE_PREDICT no memory is taken for activations and gradients: the programs cannot
 * run, but arena_bytes, store_bytes and n_grads are known; with LS_ENGINE_MEASURE, and no comm, nodes can be run one by one, and
 * all values are zero; a stage then takes the kernels of the whole model from the plan, and --parallel names its cuts. Parameters get their start values from o->seed. Every rank computes with the kernels that
 * rank 0 chose. */
enum ls_status ls_engine_open(struct ls_engine *e, const struct ls_options *o, struct ls_comm *comm,
                              const struct ls_model_size *size, const char *plan, unsigned uses);
/* The kernels of both programs, as lines of a plan. Freed by ls_free. train_choices: those of the training program, or of the
 * only one; borrowed. Of a stage, they are those of the whole model. */
char *ls_engine_choices(const struct ls_engine *e);
const char *ls_engine_train_choices(const struct ls_engine *e);
void ls_engine_close(struct ls_engine *e);

/* The training graph of the whole model, as layouts divide it. The caller has called ls_graph_init and releases it, also
 * after a failure. */
enum ls_status ls_engine_graph(const struct ls_options *o, const struct ls_backend *b, const struct ls_model_size *size,
                               struct ls_graph *g);
/* The pairs of layers of the training program that the backend computes together, as ls_layers_join has them. Freed by ls_free. */
char *ls_engine_joined(const struct ls_engine *e);
/* The text of rank 0, on all ranks; NULL on the others before. Freed by ls_free. */
enum ls_status ls_engine_share_text(struct ls_comm *comm, char **text);

/* The net that holds the parameters: train where there is one. */
const struct ls_net *ls_engine_net(const struct ls_engine *e);
/* Every parameter and all state as rank 0 has it. Where processes hold parts, they have them from ls_engine_write. */
enum ls_status ls_engine_share(struct ls_engine *e);
/* This process reads samples: all do, but the stages of a pipeline after the first. */
bool ls_engine_reads_samples(const struct ls_engine *e);
/* How many processes share the samples of an evaluation, and which of them this is. Passes whose samples are in use at once. */
int ls_engine_readers(const struct ls_engine *e, int *own);
int ls_engine_passes_at_once(const struct ls_engine *e);
/* Run the updates of a bucket, on the gradients that strategies see. */
enum ls_status ls_engine_update(struct ls_engine *e, int bucket, const struct ls_run *run);

/* parts.c: whole tensors, whichever process holds them. `tensor` is a number of the whole model's graph, ls_engine_whole.
 * State in shards (shards.h) is in parts, too. Where every process holds the whole model, read and write are this process's, and serve and served do nothing. Otherwise
 * rank 0 reads and writes while all other ranks are in serve, until rank 0 calls served, which it also does after a failure:
 * served returns `status`, or why it could not end the service. */
const struct ls_graph *ls_engine_whole(const struct ls_engine *e);
bool ls_engine_in_parts(const struct ls_engine *e);
enum ls_status ls_engine_read(const struct ls_engine *e, int tensor, float *values);
enum ls_status ls_engine_write(struct ls_engine *e, int tensor, const float *values);
enum ls_status ls_engine_serve(struct ls_engine *e);
enum ls_status ls_engine_served(struct ls_engine *e, enum ls_status status);
/* For layouts, with e->whole built and this process's programs prepared. A process has the tensors of the whole model that
 * its own graph has under the same names. rows: its rows of each of them, for each tensor of e->whole; NULL: all rows. All
 * ranks call open. start_values: from the seed, the same on every layout. */
enum ls_status ls_engine_open_parts(struct ls_engine *e, const struct ls_rows *rows);
void ls_engine_close_parts(struct ls_engine *e);
enum ls_status ls_engine_start_values(struct ls_engine *e, uint64_t seed);

/* buckets.c: cut the kept gradients into buckets as the strategy wants them, and find their updates, unless that is done. */
enum ls_status ls_engine_make_buckets(struct ls_engine *e, const struct ls_options *o);
void ls_engine_free_buckets(struct ls_engine *e);

/* gradients.c: memory for gradients that outlive a pass, where strategies and other processes can reach it. Nothing where updates
 * follow the gradients within the pass. */
enum ls_status ls_gradients_open(struct ls_engine *e);
void ls_gradients_close(struct ls_engine *e);

/* peers.c: devices that sum gradients among themselves (ls_backend_peers), which is a strategy. plan decides by the options
 * whether they may, and refuses options that do not go with --collective nccl. open connects the processes; where that is
 * not possible the host sums, by the strategy of --sync. share describes what is summed, when there are buckets; `settle` as
 * ls_peers_group has it. Without peers, open, share and close do nothing. close(together): all processes do so now, and all
 * went well; close may be called twice. */
enum ls_status ls_peers_plan(struct ls_engine *e, const struct ls_options *o);
enum ls_status ls_peers_open(struct ls_engine *e);
enum ls_status ls_peers_share(struct ls_engine *e, enum ls_status (*settle)(void *context, int bucket), void *context);
void ls_peers_close(struct ls_engine *e, bool together);
/* Whether devices sum through memory that they map: by the tree, of processes on one machine that each have one part of the sum. */
bool ls_peers_may_sum(const struct ls_backend *b, const struct ls_comm *comm, const struct ls_options *o,
                      const struct ls_sync_ops *strategy, const struct ls_tree *tree);
/* The library that sums, with its version; "" where none does. */
void ls_peers_library(const struct ls_engine *e, char *text, size_t room);

/* host_copy.c: a strategy that works on values sees them in the host's memory. Where the backend has memory of its own, it
 * sees copies, in the backend's own layout. fetch begins to make a bucket's copies what the updates left, and arrived waits for
 * all fetches. When the strategy is done with a step or a collection, push writes what it changed back. A push may be under way
 * until the next arrived, gradient or wait: until then the copies may not change. Without copies these do nothing. */
enum ls_status ls_host_copy_open(struct ls_engine *e);
void ls_host_copy_free(struct ls_engine *e);
enum ls_status ls_host_copy_wait(struct ls_engine *e);
enum ls_status ls_host_copy_fetch(struct ls_engine *e, int bucket, enum ls_sync_part part);
enum ls_status ls_host_copy_arrived(struct ls_engine *e);
enum ls_status ls_host_copy_pull_all(struct ls_engine *e);
enum ls_status ls_host_copy_push(struct ls_engine *e, enum ls_sync_part part);

/* Where measured kernels are kept: --plan-cache, or ~/.cache/lockstep/plans; NULL when there is no home directory. Freed by
 * ls_free. */
char *ls_engine_plan_cache(const struct ls_options *o);

#endif
