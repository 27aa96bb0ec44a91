/* A file that `lockstep bench --json` or `bench -o FILE.json` wrote: one or several JSON values. */
#ifndef LS_CMD_REPORT_BENCH_FILE_H
#define LS_CMD_REPORT_BENCH_FILE_H

#include "base/memory.h"
#include "report/stats.h"
#include <stdbool.h>
#include <stdint.h>

enum { LS_BENCH_REPETITIONS = 64 };

struct ls_measured {
    const char *model, *label; /* rows with the same label make one line of a plot over workers */
    const char *setting;       /* dtype, strategy and the like, in words */
    int64_t batch, threads, workers, nodes;
    double repetitions[LS_BENCH_REPETITIONS]; /* samples per second */
    int n_repetitions;
    struct ls_stats stats;
    double speedup, efficiency; /* against the row of the label with the fewest workers; NaN: it is alone */
};

/* A node of a step, of bench --profile. */
struct ls_bench_node {
    const char *layer, *op;
    double ms, bytes, operations;
};

struct ls_bench_file {
    char *path; /* owned */
    const char *name;
    struct ls_arena strings;
    struct ls_measured *rows; /* owned */
    int n_rows, room_rows;
    struct ls_bench_node *nodes; /* owned */
    int n_nodes, room_nodes;
    double peak_bytes, peak_operations; /* a second, of the machine; 0: the file does not say */
    const char *machine;                /* NULL: the file does not say */
};

/* LS_BAD_INPUT if the file holds no results of bench. *v needs a release then, too. */
enum ls_status ls_bench_file_load(struct ls_bench_file *v, const char *path);
void ls_bench_file_release(struct ls_bench_file *v);

#endif
