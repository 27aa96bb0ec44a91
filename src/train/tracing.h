/* --trace FROM:TO: records those steps of all ranks, and writes RUN/trace.json. Recording ends when the step after TO begins,
 * so that an evaluation or a checkpoint after step TO is part of it.
 *
 * While the group holds, rank 0 gets the slices of all ranks and writes the file. After a failure each rank that is left
 * writes what it has (ls_trace_file_rescue). Where ranks do not go by the same step (servers), the file is written when the
 * run ends. */
#ifndef LS_TRAIN_TRACING_H
#define LS_TRAIN_TRACING_H

#include "base/status.h"
#include "base/trace.h"

struct ls_trainer;

struct ls_tracing {
    uint64_t first, last;   /* of rank 0's --trace; last 0: no trace is asked for */
    struct ls_trace *trace; /* owned; NULL: nothing is recorded */
    enum { LS_TRACING_BEFORE, LS_TRACING_NOW, LS_TRACING_OVER } state;
    double zero, error; /* ls_now() of this process at the file's time 0, up to `error` seconds */
    char *folder;       /* owned; the run directory as rank 0 sees it */
};

/* Sets first and last from --trace. LS_USAGE if it is not FROM:TO. */
enum ls_status ls_tracing_parse(struct ls_tracing *tracing, const char *text);
/* Allocates what the run records, and says so if there is less to record than was asked for. Call it before the loader is
 * made. */
enum ls_status ls_tracing_open(struct ls_trainer *t);
/* All ranks call these three: before the first step, before each step, and after the last. after_run takes the status of the
 * run and returns it, unless the run went well and a rank is lost now. A file that cannot be written is a warning: training
 * goes on. */
enum ls_status ls_tracing_before_run(struct ls_trainer *t);
enum ls_status ls_tracing_before_step(struct ls_trainer *t);
enum ls_status ls_tracing_after_run(struct ls_trainer *t, enum ls_status status);
void ls_tracing_close(struct ls_tracing *tracing);

#endif
