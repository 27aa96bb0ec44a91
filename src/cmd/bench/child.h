/* One bench in a child process: a failure of it does not end this one. */
#ifndef LS_CMD_BENCH_CHILD_H
#define LS_CMD_BENCH_CHILD_H

#include "base/memory.h"
#include "config/options.h"
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>

enum { LS_BENCH_REASON = 1024 };

struct ls_bench_child {
    const struct ls_options *o; /* of this process; its command line is that of the child */
    const char *const *words;   /* follow the options of the command line */
    int n_words;
    /* Instead of a bench: runs in the child, prints JSON with one result, and returns the exit code. NULL: none. */
    enum ls_status (*work)(const void *of);
    const void *of;
    char *const *environment; /* NULL: that of this process */
    bool silent;              /* it prints no result */
    int signals;              /* a signalfd with the signals that end the measurement */
    /* Called about twice a second. */
    void (*tick)(void *context);
    void *context;
    bool stop;    /* set by tick: end the child as if a signal had come */
    json_t *said; /* lines of standard error that were printed before; each is printed once */
    /* results */
    json_t *output; /* owned by the caller; the JSON output; NULL: the child failed */
    double seconds; /* from the start of the process to its end */
    enum ls_status status;
    char reason[LS_BENCH_REASON]; /* why it failed */
};

/* Blocks the signals that end the measurement and returns a signalfd of them. *before is the mask to restore. */
int ls_bench_child_signals(sigset_t *before);

/* Runs the child to its end. Its errors are kept in `reason`, and other lines of its standard error are printed as they come.
 * Returns
 * LS_INTERRUPTED if a signal came, after the child has ended; LS_FAILED only if no child can be started. */
enum ls_status ls_bench_child_run(struct ls_bench_child *c);

#endif
