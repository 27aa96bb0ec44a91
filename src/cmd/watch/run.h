/* What `lockstep watch` knows about a run: the contents of metrics.jsonl and log.txt so far, and whether it is running. The
 * run may be written meanwhile, by this machine or another. */
#ifndef LS_CMD_WATCH_RUN_H
#define LS_CMD_WATCH_RUN_H

#include "cmd/watch/curve.h"
#include "report/metrics/metrics_reader.h"
#include <sys/types.h>

enum ls_run_state {
    LS_RUN_RUNNING,
    LS_RUN_FINISHED,
    LS_RUN_STOPPED, /* by a signal, after it saved */
    LS_RUN_FAILED,  /* log.txt has the exit code */
    LS_RUN_KILLED,  /* the process that holds the lock no longer exists, or log.txt has no end */
    LS_RUN_SILENT,  /* the lock is of another machine and is not touched any more */
    LS_RUN_UNKNOWN  /* there is no log.txt yet */
};

enum { LS_RUN_RECENT = 64, LS_RUN_RANKS = 1024 };

struct ls_watched {
    char *path, *metrics, *log, *lock; /* owned */
    enum ls_run_state state;
    char state_text[160];

    struct ls_metrics_reader reader;
    bool has_reader;
    struct ls_curve loss, error, eval_loss, eval_error; /* error: 1 - top1 */
    struct ls_record step, eval;                        /* the last ones; step -1: none */
    int64_t at;                                         /* the largest step of any line; -1: none */
    double best_top1;                                   /* of all evaluations; NaN: none */
    int64_t best_step;
    bool diverged; /* the last step has no loss */
    struct ls_record recent[LS_RUN_RECENT];
    int64_t n_recent;        /* steps seen; the last LS_RUN_RECENT are in `recent` */
    struct ls_record *ranks; /* owned: the last line of each rank; rank -1: none */
    int n_ranks;

    off_t log_read;            /* bytes of log.txt that were read */
    ino_t log_file;            /* the file that they are from */
    int64_t total, per_epoch;  /* steps; 0: unknown */
    char model[64], data[128]; /* "": unknown */
    int exit_code;             /* of the last part of the run; -1: it has no end */
    char end[64];              /* the words beside it */
    char message[256];         /* the last warning or error of that part */
};

/* The sums over the last steps. */
struct ls_recent {
    double steps, samples, seconds, input, compute, wait, update; /* all but the first two: seconds */
    double loss, top1;                                            /* means over the steps; NaN: there are none */
};

/* Tests for a run directory, also one that has just been started, or has metrics.jsonl alone. */
bool ls_watched_is_run(const char *path);
/* path must be a run directory: LS_BAD_INPUT. */
enum ls_status ls_watched_open(struct ls_watched *w, const char *path);
/* Reads what is new. A file that is missing or was replaced is no failure. */
enum ls_status ls_watched_refresh(struct ls_watched *w);
void ls_watched_close(struct ls_watched *w);

void ls_watched_recent(const struct ls_watched *w, struct ls_recent *sum);
/* Returns the seconds until the last step, evaluations included, or NaN if they cannot be estimated. */
double ls_watched_left(const struct ls_watched *w);
/* Returns the seconds since the last step, by the clocks of both machines, or NaN. */
double ls_watched_age(const struct ls_watched *w);

#endif
