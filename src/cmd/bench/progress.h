/* The progress of a measurement over axes: a bar on a terminal, otherwise lines on standard error, both with the time left. */
#ifndef LS_CMD_BENCH_PROGRESS_H
#define LS_CMD_BENCH_PROGRESS_H

#include "config/options.h"

struct ls_bench_progress {
    const struct ls_options *o;
    bool live;           /* a bar is shown */
    bool estimated;      /* the first estimate was printed */
    int64_t total;       /* number of configurations */
    int64_t done, runs;  /* repetitions */
    double *seconds;     /* owned; of one repetition of each configuration; 0: not known yet */
    int64_t *left;       /* owned; repetitions of each configuration */
    double start, begun; /* of the measurement, of the repetitions under way */
    double printed;      /* time of the last line */
    int64_t at;          /* the configuration that is measured; -1: none */
    char label[160];
};

enum ls_status ls_bench_progress_open(struct ls_bench_progress *p, const struct ls_options *o, int64_t configurations);
void ls_bench_progress_begin(struct ls_bench_progress *p, int64_t at, const char *label);
/* failed: the configuration is not measured again. */
void ls_bench_progress_end(struct ls_bench_progress *p, int64_t at, int64_t repetitions, bool failed);
/* Call it now and then. */
void ls_bench_progress_draw(struct ls_bench_progress *p);
/* Estimates the seconds until the end; -1: not known yet. */
double ls_bench_progress_left(const struct ls_bench_progress *p, double now);
/* Safe on a zeroed struct. */
void ls_bench_progress_close(struct ls_bench_progress *p);

#endif
