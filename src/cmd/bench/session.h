/* One configuration that is measured in this process: its engine, its batches and its times. */
#ifndef LS_CMD_BENCH_SESSION_H
#define LS_CMD_BENCH_SESSION_H

#include "base/status.h"
#include "config/options.h"
#include "exec/layout/layout.h"
#include "exec/pipeline/pipeline.h"
#include "train/task.h"
#include <stdbool.h>

struct ls_bench_session {
    const struct ls_options *o;
    struct ls_comm *comm; /* NULL: alone */
    struct ls_task task;
    struct ls_engine engine;
    struct ls_layout layout;
    struct ls_options settled; /* o, with the layout that is used */
    struct ls_stepper stepper;
    struct ls_slot *slots; /* owned */
    int n_slots, at;
    void *region; /* owned; images and labels of the slots */
    size_t region_bytes;
    struct ls_loader *loader; /* owned; NULL: the batches are the slots */
    uint64_t step;
    int64_t steps;          /* of one repetition */
    double *step_ms;        /* owned; steps * repeat */
    double *speed;          /* owned; samples/s of each repetition */
    struct ls_trace *trace; /* owned; of the measured steps; NULL: they are not recorded */
    double start_seconds;   /* from the start of the process to the first step */
    double input_seconds;   /* that the measured steps waited for input */
    double measured_seconds;
    double cpu_seconds;          /* processor time of this process in the measured steps */
    double waited_seconds;       /* that the measured steps waited for other processes */
    double busy[LS_MOST_STAGES]; /* of a pipeline: as ls_pipeline_bubble has them */
    double bubble, least_bubble;
    size_t peaks[LS_MOST_STAGES]; /* bytes that a process of each stage has taken at most */
};

/* Makes the batches that all steps take turns with, in memory: those of --data, or random ones. The task, the engine and the
 * stepper are open. ls_bench_free_batches is safe on a zeroed struct. */
enum ls_status ls_bench_make_batches(struct ls_bench_session *b, bool from_data);
void ls_bench_free_batches(struct ls_bench_session *b);
/* The stepper's feed: the next of them. context: the session. */
enum ls_status ls_bench_next_batch(void *context, const struct ls_slot **slot);

/* --with-input: lets the stepper take its batches from a loader of --data instead. close is safe on a zeroed struct. */
enum ls_status ls_bench_open_input(struct ls_bench_session *b);
void ls_bench_close_input(struct ls_bench_session *b);

/* Rank 0 prints the times, or writes them as a table. */
enum ls_status ls_bench_report(const struct ls_bench_session *b);

#endif
