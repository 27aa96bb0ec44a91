/* The engine of a run: model, backend, parameters and memory, from the forward graph to programs that can
 * run. The training and the evaluation program share parameters, state and one arena. */
#ifndef LS_TRAIN_ENGINE_H
#define LS_TRAIN_ENGINE_H

#include "backend/backend.h"
#include "config/options.h"
#include "graph/build.h"
#include "train/replicas.h"

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
    int threads, replicas, passes;
    void *arena; /* owned */
    size_t arena_bytes, store_bytes;
};

enum ls_engine_use { LS_ENGINE_TRAIN = 1, LS_ENGINE_EVAL = 2 };

/* Cores this process may use. */
int ls_engine_cores(void);
/* Samples of one pass: batch / (replicas * accumulate); LS_USAGE when the batch cannot be dealt evenly. */
enum ls_status ls_engine_pass_batch(const struct ls_options *o, int64_t *batch);

/* size->batch is that of one pass. record: the file with the kernels a resumed run began with, or NULL. uses: enum ls_engine_use bits; without LS_ENGINE_TRAIN no loss op reads
 * labels beyond evaluation's, and replicas and accumulation do not matter. Parameters get their start values
 * from o->seed. */
enum ls_status ls_engine_open(struct ls_engine *e, const struct ls_options *o, const struct ls_model_size *size,
                              const char *record, unsigned uses);
/* Write that file. */
enum ls_status ls_engine_record(const struct ls_engine *e, const char *path);
void ls_engine_close(struct ls_engine *e);

/* The net that holds the parameters: train where there is one. */
const struct ls_net *ls_engine_net(const struct ls_engine *e);
/* Memory of all gradients (and BN statistics), for summing over passes. ranges is freed by ls_free. */
enum ls_status ls_engine_gradients(const struct ls_engine *e, struct ls_grad_range **ranges, int *n);

#endif
