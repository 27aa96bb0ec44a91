/* The engine of a run: model, backend, parameters and memory, from the forward graph to programs that can
 * run. The training and the evaluation program share parameters, state and one arena. */
#ifndef LS_EXEC_ENGINE_H
#define LS_EXEC_ENGINE_H

#include "backend/backend.h"
#include "config/options.h"
#include "graph/build.h"
#include "sync/sync.h"
#include "exec/replicas.h"

struct ls_net {
    struct ls_graph graph;
    struct ls_program *program; /* owned; NULL: not made */
    int end;                    /* the pass is nodes 0 .. end-1; what follows updates parameters */
};

struct ls_engine {
    const struct ls_backend *backend;
    struct ls_store *store; /* owned */
    struct ls_net train, eval;
    struct ls_model_size size; /* of one pass */
    int threads, passes;
    struct ls_comm *comm;       /* borrowed; NULL: alone */
    const struct ls_tree *tree; /* of replicas over the processes: comm's, or own_tree */
    struct ls_tree own_tree;
    void *arena; /* owned; the backend's memory */
    size_t arena_bytes, store_bytes;
    /* Where one pass is not a whole step, gradients are kept, and updated bucket by bucket. With a queue (backend.h) they
     * are kept in the backend's memory, and for comm a second time in the host's, unless the cards sum them. */
    float *kept;         /* where passes leave gradients: grads, or with a queue owned memory of the backend */
    float *grads, *side; /* the host's; side: a process's parts of the sum but the last; owned unless comm has them */
    size_t n_grads;      /* floats; 0: updates follow the gradients within the pass */
    struct ls_bucket *buckets; /* owned */
    int n_buckets;
    int *update_nodes, *update_first; /* owned; bucket b: update_nodes[update_first[b]] .. [update_first[b + 1] - 1] */
    struct ls_host_copy *mirror;      /* owned; of what the buckets' updates change; NULL: nobody looks */
    bool fetched;                     /* gradients go to the host, and back, for others to see them */
    bool whole;                       /* all buckets are updated at once, when the last one is complete */
    bool nccl;                        /* gradients are to be summed by NCCL, even those of a process alone */
    struct ls_peers *peers;           /* owned; cards sum gradients among themselves; NULL: the host does */
};

enum ls_engine_use { LS_ENGINE_TRAIN = 1, LS_ENGINE_EVAL = 2 };

/* Cores this process may use, and a CPU quota pays for. */
int ls_engine_cores(void);
/* Room for samples of one pass: batch / (replicas * accumulate), rounded up; LS_USAGE when a pass would have none. */
enum ls_status ls_engine_pass_batch(const struct ls_options *o, int64_t *batch);

/* What can be wrong with the model and its options, found out without preparing anything. */
enum ls_status ls_engine_check(const struct ls_options *o, const struct ls_model_size *size);

/* size->batch is that of one pass. comm: NULL alone. plan: the kernels that a run began with (its plan.txt), or NULL;
 * --plan counts for more. Kernels that the run's plan lacks are warned of, those that --plan lacks are an error.
 * uses: enum ls_engine_use bits; without LS_ENGINE_TRAIN no loss op reads labels beyond evaluation's, and replicas and
 * accumulation do not matter. Parameters get their start values from o->seed. Every rank computes with the kernels that
 * rank 0 chose. */
enum ls_status ls_engine_open(struct ls_engine *e, const struct ls_options *o, struct ls_comm *comm,
                              const struct ls_model_size *size, const char *plan, unsigned uses);
/* The kernels of both programs, as lines of a plan. Freed by ls_free. */
char *ls_engine_choices(const struct ls_engine *e);
void ls_engine_close(struct ls_engine *e);

/* The net that holds the parameters: train where there is one. */
const struct ls_net *ls_engine_net(const struct ls_engine *e);
/* Every parameter and all state as rank 0 has it. */
enum ls_status ls_engine_share(struct ls_engine *e);
/* Run the updates of a bucket; with a queue and a comm, on the gradients that the host has. */
enum ls_status ls_engine_update(struct ls_engine *e, int bucket, const struct ls_run *run);

/* buckets.c: cut the kept gradients into buckets for a strategy (NULL: alone, one bucket), and find their updates. */
enum ls_status ls_engine_make_buckets(struct ls_engine *e, const struct ls_options *o, const struct ls_sync_ops *ops);
void ls_engine_free_buckets(struct ls_engine *e);

/* peers.c: cards that sum gradients among themselves (ls_backend_peers). check refuses options that do not go with them. open
 * decides whether they do, by --collective and by what can be had, and meets the other processes: e->peers. share says what
 * is summed, when there are buckets; `settle` as ls_peers_group has it. close: see there; it may come twice. */
enum ls_status ls_peers_check(const struct ls_engine *e, const struct ls_options *o);
enum ls_status ls_peers_open(struct ls_engine *e, const struct ls_options *o);
enum ls_status ls_peers_share(struct ls_engine *e, const struct ls_sync_ops *ops,
                              enum ls_status (*settle)(void *context, int bucket), void *context);
void ls_peers_close(struct ls_engine *e, bool together);
/* How, in a word or two. */
const char *ls_peers_name(const struct ls_peers *p);

/* mirror.c: strategies see the host's memory only. Where one looks at a bucket's values (it is one that collects) and the
 * backend has memory of its own, the values it sees are copies, plain and row-major. They are the backend's except while a
 * strategy has work: it looks at a bucket (pull), and when it is done with a step or a collection, what it wrote goes back
 * (push). Without a mirror these do nothing. */
enum ls_status ls_host_copy_open(struct ls_engine *e);
void ls_host_copy_free(struct ls_host_copy *m);
enum ls_status ls_host_copy_pull(struct ls_engine *e, int bucket, enum ls_sync_part part);
enum ls_status ls_host_copy_pull_all(struct ls_engine *e);
enum ls_status ls_host_copy_push(struct ls_engine *e, enum ls_sync_part part);

/* Where measured kernels are kept: --plan-cache, or ~/.cache/lockstep/plans; NULL when there is no home directory. Freed by
 * ls_free. */
char *ls_engine_plan_cache(const struct ls_options *o);

#endif
