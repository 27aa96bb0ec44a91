/* --batch max: the largest batch whose step fits in memory. */
#ifndef LS_CMD_BENCH_LARGEST_H
#define LS_CMD_BENCH_LARGEST_H

#include "cmd/bench/axes.h"

struct ls_bench_largest {
    const struct ls_options *o;
    const struct ls_bench_axes *axes;
    int64_t combination;
    int64_t threads, workers; /* threads 0: as the engine decides */
};

/* Prints JSON with one result: "batch", over all workers, and "predicted_bytes" of all workers. Call it in a child process:
 * it plans steps of many sizes. Memory is predicted from the plans and compared with what is available; no step runs and no
 * activations are allocated. At most nine tenths of the available memory are used. Large batches are found to within half a
 * percent. `of` is a struct ls_bench_largest. */
enum ls_status ls_bench_largest_print(const void *of);

#endif
