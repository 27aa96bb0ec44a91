/* The memory that training takes on each of several workers, before there are any. */
#ifndef LS_EXEC_WORKER_MEMORY_H
#define LS_EXEC_WORKER_MEMORY_H

#include "exec/engine.h"

/* Bytes of the worker that needs most. The program, its libraries and batches of input come on top. */
struct ls_worker_memory {
    size_t parameters; /* and running statistics */
    size_t gathered;   /* room for the parameters that a pass reads, where they are sharded */
    size_t exchanged;  /* room for inputs and results of split dense layers */
    size_t state;      /* of the optimizer, averages of --ema included */
    size_t gradients;  /* and sums of several replicas or passes */
    size_t activations;
    size_t all_state; /* what one worker would hold without --shard */
};

/* e: an engine of one process whose programs are prepared with the replicas of these options, which may be fewer than workers
 * only if there is one worker. With split dense layers: of the process that has most rows (LS_ENGINE_PREDICT). */
enum ls_status ls_worker_memory(const struct ls_engine *e, const struct ls_options *o, int workers,
                                struct ls_worker_memory *memory);
size_t ls_worker_memory_sum(const struct ls_worker_memory *memory);

#endif
