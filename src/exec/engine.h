/* The engine of a run: model, backend, parameters and memory. It turns the forward graph into programs that can run. The
 * training and the evaluation program share parameters, state and one arena. */
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
    /* Where one pass is not a whole step, gradients are kept, and updated bucket by bucket.
     * kept: where passes leave gradients; the backend's memory; owned.
     * grads: as strategies read them: kept, or a copy in the host's memory where the host cannot read kept.
     * side: this process's parts of the sum, all but the last. Grads and side are owned unless they are comm's. */
    float *kept, *grads, *side;
    size_t n_grads;   /* floats; 0: updates follow the gradients within the pass */
    bool drops_grads; /* grads go back to the system bucket by bucket (shards/params.h), and are zero again then */
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

/* Opens an engine. Parameters get their start values from o->seed. Every rank computes with the kernels that rank 0 chose.
 *   size  size->batch is that of one pass.
 *   comm  NULL: one process.
 *   plan  The kernels that a run began with (its plan.txt), or NULL. --plan overrides it. Kernels that the run's plan lacks
 *         are a warning, those that --plan lacks are an error.
 *   uses  Bits of enum ls_engine_use. Without LS_ENGINE_TRAIN replicas and accumulation do not matter.
 *         LS_ENGINE_PREDICT takes no memory for activations and gradients: the programs cannot run, but arena_bytes,
 *         store_bytes and n_grads are known.
 *         LS_ENGINE_MEASURE, without comm, makes programs whose nodes run one by one; all values are zero. A stage
 *         takes the kernels of the whole model from the plan, and --parallel names its cuts. */
enum ls_status ls_engine_open(struct ls_engine *e, const struct ls_options *o, struct ls_comm *comm,
                              const struct ls_model_size *size, const char *plan, unsigned uses);
/* The kernels of both programs, as lines of a plan. Freed by ls_free. */
char *ls_engine_choices(const struct ls_engine *e);
/* Those of the training program, or of the only program; borrowed. A stage returns those of the whole model. */
const char *ls_engine_train_choices(const struct ls_engine *e);
void ls_engine_close(struct ls_engine *e);

/* The training graph of the whole model, as layouts divide it. The caller has called ls_graph_init and releases it, also
 * after a failure. */
enum ls_status ls_engine_graph(const struct ls_options *o, const struct ls_backend *b, const struct ls_model_size *size,
                               struct ls_graph *g);
/* The pairs of layers of the training program that the backend computes together, as ls_layers_join has them. Freed by
 * ls_free. */
char *ls_engine_joined(const struct ls_engine *e);
/* The text of rank 0, on all ranks; NULL on the others before. Freed by ls_free. */
enum ls_status ls_engine_share_text(struct ls_comm *comm, char **text);

/* The net that holds the parameters: train where there is one. */
const struct ls_net *ls_engine_net(const struct ls_engine *e);
/* Every parameter and all state as rank 0 has it. Where processes hold parts, they have them from ls_engine_write. */
enum ls_status ls_engine_share(struct ls_engine *e);
/* This process reads samples: all do, but the stages of a pipeline after the first. */
bool ls_engine_reads_samples(const struct ls_engine *e);
/* How many processes share the samples of an evaluation; *own: which of them this is. */
int ls_engine_readers(const struct ls_engine *e, int *own);
/* Passes whose samples are in use at once. */
int ls_engine_passes_at_once(const struct ls_engine *e);
/* Run the updates of a bucket, on the gradients that strategies see. */
enum ls_status ls_engine_update(struct ls_engine *e, int bucket, const struct ls_run *run);

/* parts.c: whole tensors, whichever process holds them. `tensor` is a number of the whole model's graph, ls_engine_whole.
 * Where every process holds the whole model, read and write use this process's tensors, and serve and served do nothing.
 * Otherwise, also with state in shards (shards.h), rank 0 reads and writes while all other ranks are in serve. Rank 0 ends
 * that by served, also after a failure: served returns `status`, or why it could not end the service. */
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

/* buckets.c: cuts the kept gradients into buckets as the strategy needs them, and finds their updates. Does nothing the
 * second time. */
enum ls_status ls_engine_make_buckets(struct ls_engine *e, const struct ls_options *o);
void ls_engine_free_buckets(struct ls_engine *e);

/* gradients.c: memory for gradients that outlive a pass, where strategies and other processes can reach it. Does
 * nothing where updates follow the gradients within the pass. */
enum ls_status ls_gradients_open(struct ls_engine *e);
void ls_gradients_close(struct ls_engine *e);

/* Where measured kernels are kept: --plan-cache, or ~/.cache/lockstep/plans; NULL when there is no home directory. Freed by
 * ls_free. */
char *ls_engine_plan_cache(const struct ls_options *o);

#endif
