/* `lockstep sweep`: trains with every combination of lists of options and ranks the results. A trial is one combination:
 * an ordinary run of `lockstep train` in a child process, with a run directory of its own.
 *
 *   DIR/sweep.yaml      what is varied and what is fixed; `lockstep sweep DIR` goes on with it
 *   DIR/sweep.jsonl     one line for each change of a trial's state
 *   DIR/trials/NNNN-*   the run directories
 *   DIR/logs/NNNN-*.txt what the children print
 *   DIR/results.csv, DIR/results.json
 *
 *   S1  The bits of a trial depend on its options and its threads only: not on the order of trials, on --parallel, on
 *       pauses of successive halving or on a killed sweep.
 *   S2  Two processes never write to one trial: the children of a killed sweep end, and the next sweep waits for them. */
#ifndef LS_CMD_SWEEP_SWEEP_H
#define LS_CMD_SWEEP_SWEEP_H

#include "base/memory.h"
#include "config/options.h"
#include "config/table.h"
#include "checkpoint/run_lock.h"
#include "cmd/sweep/outcome.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LS_SWEEP_AXES = 24, LS_SWEEP_TRIALS = 100000, LS_SWEEP_ERROR = 256 };

/* An option that is varied: over a list (a grid has each value), or by random draws. */
enum ls_axis_kind { LS_AXIS_LIST, LS_AXIS_UNIFORM, LS_AXIS_LOG, LS_AXIS_CHOICE };
struct ls_axis {
    const struct ls_option *option;
    enum ls_axis_kind kind;
    const char **values; /* as ls_option_get writes them; UNIFORM and LOG: the ends of the range; in the arena */
    int n;
    double low, high; /* UNIFORM and LOG: the same as numbers */
};

enum ls_trial_state {
    LS_TRIAL_PLANNED,
    LS_TRIAL_RUNNING,
    LS_TRIAL_PAUSED, /* saved, not at its end: stopped by a signal, or waiting for a decision of successive halving */
    LS_TRIAL_DONE,
    LS_TRIAL_FAILED,
    LS_TRIAL_DIVERGED,
    LS_TRIAL_STOPPED /* by successive halving, before its end */
};

struct ls_trial {
    int number;          /* from 1 */
    const char *name;    /* of its folder, in the arena */
    const char **values; /* one for each axis, in the arena */
    int64_t threads;     /* --threads of its processes */
    enum ls_trial_state state;
    bool is_waiting;             /* to be started or resumed by this process */
    int64_t until;               /* the epoch that it is trained to; 0: its last */
    char error[LS_SWEEP_ERROR];  /* FAILED: why */
    struct ls_outcome outcome;   /* of its metrics so far */
    struct ls_outcome_tail tail; /* RUNNING: reads its metrics as they are written */
    pid_t pid;                   /* RUNNING: of the child; 0: none */
    int slot;                    /* RUNNING: its share of the machine */
    int64_t log_from;            /* RUNNING: size of its log when it was started */
    int rank;                    /* from 1, in the order of the results */
};

enum ls_rank_by { LS_RANK_BY_TIME, LS_RANK_BY_LOSS, LS_RANK_BY_AREA, LS_RANK_BY_TOP1 };

struct ls_sweep {
    struct ls_options o; /* the fixed options, and those of the sweep itself */
    struct ls_arena strings;
    struct ls_axis axes[LS_SWEEP_AXES];
    int n_axes;
    enum ls_rank_by rank_by;
    int side_by_side;        /* --parallel: trials that run at once */
    struct ls_goals goals;   /* the target, and the epochs at which successive halving decides */
    bool has_asha;           /* successive halving */
    int64_t grace, factor;   /* of it */
    char *folder;            /* owned: the sweep's directory */
    char digest[17];         /* of all that decides what the trials compute; hexadecimal */
    struct ls_trial *trials; /* owned */
    int n_trials;
    int journal;              /* file descriptor of sweep.jsonl; -1: closed */
    struct ls_run_lock *lock; /* owned */
};

/* arguments.c. Reads the command line (without "lockstep sweep"), the environment, and the sweep file or directory that
 * it names. *help: --help was given and is printed. */
enum ls_status ls_sweep_read(struct ls_sweep *s, int argc, char **argv, bool *help);
void ls_sweep_release(struct ls_sweep *s);

/* axes.c. Checks one value of an option by the option table. *value: as it is passed to train, in the arena. `where` is
 * for messages: "--lr" or "file.yaml:3: lr". */
enum ls_status ls_sweep_check_value(struct ls_sweep *s, const struct ls_option *option, const char *where,
                                    const char *text, const char **value);
/* Adds an axis. LS_USAGE if the option cannot be varied or a value stands twice. */
enum ls_status ls_sweep_add_axis(struct ls_sweep *s, const char *where, const struct ls_axis *axis);
/* Returns the axis of an option, or NULL. */
const struct ls_axis *ls_sweep_axis(const struct ls_sweep *s, const struct ls_option *option);
/* Refuses options that a sweep does not take, such as --resume. */
enum ls_status ls_sweep_takes(const struct ls_option *option, const char *where);
/* Parses --parallel, --rank-by, --target and --asha. */
enum ls_status ls_sweep_settle(struct ls_sweep *s);

/* sweep_file.c. Sets what the file says and neither the command line nor the environment has set. */
enum ls_status ls_sweep_file_read(struct ls_sweep *s, const char *path);

/* plan.c. Makes the trials. The last axis changes fastest; seeds change faster than all others. */
enum ls_status ls_sweep_plan(struct ls_sweep *s);
/* Removes the trials, so that they can be planned again. */
void ls_sweep_forget_plan(struct ls_sweep *s);
/* Returns the text of option `option` in that trial, or NULL if it is not set. room: 32 bytes. */
const char *ls_trial_value(const struct ls_sweep *s, const struct ls_trial *t, const struct ls_option *option,
                           char room[32]);
/* Writes "batch 64, lr 0.4": the values of the axes. */
const char *ls_trial_describe(const struct ls_sweep *s, const struct ls_trial *t, char *text, size_t room);
/* Makes the words of `lockstep train ...` for the trial, NULL at the end, in the arena. With `run`, they include what a
 * child of the sweep needs; without, they are what a user types to repeat the trial. */
char **ls_trial_command(const struct ls_sweep *s, const struct ls_trial *t, bool run, struct ls_arena *arena);

/* folder.c. Makes or opens the directory, locks it and writes sweep.yaml. The trials are planned; in a directory that has
 * the same options in another order they are planned again in that order. A directory of another sweep is an error that
 * lists the differences. */
enum ls_status ls_sweep_open(struct ls_sweep *s, char *const *argv);
/* Writes sweep.yaml again: --parallel, --target and --rank-by may have changed. */
enum ls_status ls_sweep_update(const struct ls_sweep *s);
/* Returns DIR/a/b, in the arena; b may be NULL. */
char *ls_sweep_path(const struct ls_sweep *s, struct ls_arena *arena, const char *a, const char *b);

/* journal.c: sweep.jsonl. Creates it with all trials planned, or reads the state of each. */
enum ls_status ls_journal_open(struct ls_sweep *s);
/* Appends the present state of a trial, durably. */
enum ls_status ls_journal_put(struct ls_sweep *s, const struct ls_trial *t);
const char *ls_trial_state_name(enum ls_trial_state state);
/* The varied options of a trial as a JSON object. */
json_t *ls_trial_options_json(const struct ls_sweep *s, const struct ls_trial *t);
/* The figures of an outcome as a JSON object. */
json_t *ls_outcome_json(const struct ls_outcome *o);
/* A text as JSON, also if it is not UTF-8; a number that is not finite as null. */
json_t *ls_json_text(const char *text);
json_t *ls_json_real(double x);

/* child.c. Starts the trial's process in a slot of the machine: 0 to --parallel - 1. */
enum ls_status ls_child_start(struct ls_sweep *s, struct ls_trial *t, int slot);
/* Sets state, error and outcome from the status that waitpid returned. is_stopping: the sweep has told it to end. */
void ls_child_ended(struct ls_sweep *s, struct ls_trial *t, int how, bool is_stopping);
/* Waits for children of a killed sweep, which save and end by themselves (S2). */
enum ls_status ls_child_await_orphans(struct ls_sweep *s);

/* asha.c. The next trial to start, resume or promote, with `until` set; NULL: none now. Also used without successive
 * halving. */
struct ls_trial *ls_sweep_next(struct ls_sweep *s);
/* Sets the epochs of the decisions from grace, factor and --epochs. */
enum ls_status ls_asha_rungs(struct ls_sweep *s);

/* run.c. Runs all trials that are not finished. LS_INTERRUPTED: a signal stopped them. */
enum ls_status ls_sweep_run(struct ls_sweep *s);

/* live.c. The table on a terminal, or a line for each trial that ends. */
struct ls_live {
    bool on, quiet;
    int lines;    /* of the table, as it stands on the terminal */
    double drawn; /* when, ls_now */
    double start;
};
void ls_live_begin(struct ls_live *l, const struct ls_sweep *s);
void ls_live_draw(struct ls_live *l, const struct ls_sweep *s, bool now);
/* A trial has ended or is paused. */
void ls_live_event(struct ls_live *l, const struct ls_sweep *s, const struct ls_trial *t);
void ls_live_end(struct ls_live *l);

/* rank.c. Sets rank of every trial. *order: the trials in that order, owned. Seeds are grouped: a group has the trials
 * that differ in --seed alone. */
struct ls_group {
    const struct ls_trial *first; /* has the values of the group */
    int trials, done, reached;    /* how many; how many of these reached the target */
    struct ls_group_figure {
        double mean, deviation; /* NaN: none */
    } loss, area, top1, seconds, target;
};
struct ls_ranking {
    const struct ls_trial **order; /* owned */
    struct ls_group *groups;       /* owned; the best first */
    int n_groups;                  /* 0: no seeds are varied */
};
enum ls_status ls_sweep_rank(struct ls_sweep *s, struct ls_ranking *r);
void ls_ranking_release(struct ls_ranking *r);
const char *ls_rank_by_name(enum ls_rank_by by);   /* "final loss" */
const char *ls_rank_by_option(enum ls_rank_by by); /* "final-loss" */
/* Returns what trials are ranked by; smaller is better. NaN: unknown. */
double ls_rank_value(const struct ls_sweep *s, const struct ls_outcome *o);

/* results.c and table.c. Write results.csv and results.json; print the tables. */
enum ls_status ls_results_write(const struct ls_sweep *s, const struct ls_ranking *r);
enum ls_status ls_results_print(const struct ls_sweep *s, const struct ls_ranking *r);

#endif
