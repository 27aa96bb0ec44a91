/* A run directory as a report shows it: what was run, curves, totals, ranks. Everything is read once, in constant
 * memory. A file that is missing or damaged leaves its part empty and is named by the findings. */
#ifndef LS_CMD_REPORT_RUN_VIEW_H
#define LS_CMD_REPORT_RUN_VIEW_H

#include "base/memory.h"
#include "cmd/report/inputs/series.h"
#include "report/metrics/metrics_reader.h"

/* A line "name  value" of log.txt, or an option of config.yaml. */
struct ls_fact {
    const char *name, *value;
};
struct ls_facts {
    struct ls_fact *list; /* owned; the strings are the view's */
    int n, room;
};

/* Over all lines of one rank. Seconds are sums. */
struct ls_rank_view {
    bool is_there;
    char host[LS_RECORD_WORD];
    int64_t steps, last_step;
    double seconds, input, compute, exposed, hidden, late, update;
    double held_up; /* the seconds that the other ranks waited for this one */
    double calls, bytes;
    double gpu_sum, gpu_weight, gpu_memory, gpu_power, gpu_clock, gpu_temperature; /* utilisation: sum / weight */
    struct ls_series gpu;                                                          /* utilisation over steps */
};

/* What the loss and the time are made of, over step lines without the first; over epoch lines if there are none. */
struct ls_run_totals {
    int64_t steps;
    double samples, seconds, input, compute, wait, update;
};

enum { LS_RUN_BINS = 20, LS_RUN_RANKS = 4096, LS_RUN_CARDS = 64 };

struct ls_run_view {
    char *path;       /* owned */
    const char *name; /* to show: unique within a report */
    struct ls_arena strings;
    struct ls_facts config, log;
    bool has_config, has_log, has_metrics, is_running;
    int exit_code;       /* of the last "Ended" line in log.txt; -1: there is none */
    int resumed;         /* number of "Resumed" lines */
    int late_rank;       /* of log.txt: the rank that came last for longest; -1: none */
    double late_seconds; /* and how long it was waited for */
    double parameters, multiply_adds, classes, processes, threads; /* of log.txt; NaN: unknown */

    struct ls_metrics_tally tally;
    int64_t n_steps, n_epochs, n_evals, old_lines;
    int64_t first_step, last_step, last_epoch;
    int64_t diverged_step; /* the first step without a finite loss; -1: none */
    char first_time[LS_RECORD_WORD], last_time[LS_RECORD_WORD];
    struct ls_run_totals total;
    int64_t input_bins[LS_RUN_BINS];   /* steps by their share of waiting for input, from 0 to 1 */
    struct ls_series loss, top1, top5; /* top1, top5: errors in percent */
    struct ls_series rate, speed, input, compute, wait, update, gpu;
    struct ls_series cutoff_k; /* gradients that steps counted; empty: not of --sync cutoff */
    struct ls_series eval_loss, eval_top1, eval_top5;
    double area, width;             /* under the training loss over samples, by trapezia; and its width */
    double previous_loss;           /* NaN: none yet */
    double final_loss;              /* of the last eval line, or of the last epoch line, or NaN */
    double best_top1, last_top1;    /* of evaluation, as errors in percent; NaN: none */
    double last_top5, loss_of_best; /* the smallest loss of an evaluation */
    int64_t best_step;
    struct ls_rank_view *ranks; /* owned */
    int n_ranks;
};

/* Reads a run directory. Only a lack of memory, or a directory that cannot be read, is a failure. *v needs a release
 * then, too. */
enum ls_status ls_run_view_load(struct ls_run_view *v, const char *path);
void ls_run_view_release(struct ls_run_view *v);
/* The value of an option of config.yaml, NULL if it is not there. */
const char *ls_run_option(const struct ls_run_view *v, const char *name);
/* The text behind a word of log.txt ("hardware"), NULL if it is not there or empty. The last one written counts: a fact
 * of an earlier start stays where a resumed run says nothing new. */
const char *ls_run_fact(const struct ls_run_view *v, const char *name);
/* Reads config.yaml and log.txt of v->path. */
enum ls_status ls_run_view_texts(struct ls_run_view *v);
/* The state in a word or two: "done", "running", "diverged", ... */
const char *ls_run_state(const struct ls_run_view *v);
/* The share of a typical step, the median, that is spent waiting for input. */
double ls_run_typical_input(const struct ls_run_view *v);
/* The wall-clock seconds between the first and the last line; NaN: unknown. */
double ls_run_wall(const struct ls_run_view *v);

#endif
