/* A training run from its options to its last checkpoint. */
#ifndef LS_TRAIN_TRAINER_H
#define LS_TRAIN_TRAINER_H

#include "optim/schedule.h"
#include "report/console.h"
#include "report/gpu.h"
#include "report/metrics/metrics.h"
#include "report/observer.h"
#include "checkpoint/checkpoint.h"
#include "exec/identity.h"
#include "exec/layout/layout.h"
#include "checkpoint/run_lock.h"
#include "exec/step.h"
#include "parallel/stages.h"
#include "train/ranks/ranks.h"
#include "train/task.h"
#include "train/tracing.h"

struct ls_trainer {
    const struct ls_options *o; /* borrowed; then `settled` */
    struct ls_options settled;  /* o with the layout that is used as --parallel */
    struct ls_layout layout;
    struct ls_comm *comm; /* borrowed; NULL: alone */
    bool root;            /* rank 0, which alone speaks and writes files */
    struct ls_task task;
    struct ls_engine engine;
    struct ls_stepper stepper;
    struct ls_schedule schedule;
    struct ls_loader *loader; /* owned */
    int said_threads;         /* of the loader, that the log has last; 0: none yet */
    bool advised;             /* on slow input, in this process */
    struct ls_model_card card;
    const char *new_head; /* the layer that --init left out: it is for init_classes classes; NULL: none; the root's */
    int64_t init_classes;
    char *
        other_classes; /* owned: how the classes of --init differ from those here, by name alone; NULL: not; the root's */
    char *data;        /* owned: the fingerprint of the data */
    struct ls_state state;
    struct ls_report last_eval;  /* samples 0: none in this process */
    struct ls_report spent;      /* sum over all steps of this process */
    double busy[LS_MOST_STAGES]; /* of a pipeline, at the end of the run: share of the time that each stage computed */
    double bubble, least_bubble; /* what is left of it, and would be with stages of equal work */
    double began, evaluating, saving; /* when the run began, ls_now; seconds */
    double seconds_before;            /* of the jobs before this one */
    struct ls_console console;
    struct ls_metrics metrics;
    struct ls_observers observers; /* the root's */
    double opened;                 /* when ls_trainer_open began, ls_now */
    struct ls_ranks ranks;
    struct ls_gpu gpu;             /* this process's card, where it computes on one, while it runs */
    struct ls_gpu_sums gpu_before; /* of its samples before this epoch */
    char *run;                     /* owned: the run directory; known to the root alone */
    char *checkpoint;              /* owned: the newest good one, or NULL; likewise */
    char *caution; /* owned: what changed since the checkpoint, or the run that is run again; NULL: nothing; likewise */
    char planned[LS_IDENTITY_ROOM]; /* identity of the run that is run again; "": none */
    char *plan;                     /* owned: the kernels that the run had before, or NULL */
    struct ls_run_lock *lock;       /* owned: of the run directory; the root's */
    bool made;                      /* the run directory was not there before */
    struct ls_checkpoint_writer writer;
    struct ls_tracing tracing;
    bool check_due; /* values are to be compared among the processes as soon as they may be */
    bool writing;   /* a checkpoint that is not known to be good yet */
    int64_t epoch_samples, steps_per_epoch, total_steps;
    bool resumed;  /* from a checkpoint */
    bool finished; /* nothing is left to do: no engine is open */
    bool all_know; /* every process has found the failure itself: it is not broadcast */
    /* Called after every step, for tests; may be NULL. */
    void (*on_step)(void *context, uint64_t step);
    void *context;
};

/* Data, model, optimizer, backend, run directory; weights from --init or --resume. On failure everything is
 * released; all_know stays. */
enum ls_status ls_trainer_open(struct ls_trainer *t, const struct ls_options *o, struct ls_comm *comm);
/* Train to the end, evaluate and save. LS_INTERRUPTED: a signal came, the state is saved. LS_DIVERGED: the
 * loss is not finite; the last checkpoint is from before. */
enum ls_status ls_trainer_run(struct ls_trainer *t);
void ls_trainer_close(struct ls_trainer *t);

/* Marks `status` as known to every rank, so that it need not be broadcast. Never marks LS_PEER_LOST. Returns it. */
enum ls_status ls_trainer_all_know(struct ls_trainer *t, enum ls_status status);
/* Whether all samples of the epoch are used; whether steps of the run are left. */
bool ls_trainer_epoch_over(const struct ls_trainer *t);
bool ls_trainer_steps_left(const struct ls_trainer *t);
/* The number of epochs, the last one perhaps incomplete; 0: --steps decides. */
int64_t ls_trainer_epochs(const struct ls_trainer *t);
/* evaluating.c. eval_left: the evaluation after this step, as --eval-every says, is still to come. evaluate: of the current
 * state; *better: it is the best so far. An evaluation that may be the last also writes the confusion matrix.
 * evaluate_and_follow: one that eval_left asked for. Only these change what follows, the rate of plateau and an early stop:
 * one at the end of --steps does not, so that a run that goes on from there is the run that was longer from the start.
 * stops_early: --early-stop ends the run here. show_averages: the averages of --ema take the place of the weights, until
 * ls_averages_swap; LS_DIVERGED if one is not finite, and nothing changed. */
bool ls_trainer_eval_left(const struct ls_trainer *t);
enum ls_status ls_trainer_evaluate(struct ls_trainer *t, bool *better);
enum ls_status ls_trainer_evaluate_and_follow(struct ls_trainer *t, bool *better);
bool ls_trainer_stops_early(const struct ls_trainer *t);
enum ls_status ls_trainer_show_averages(struct ls_trainer *t);
/* Say what the run is about to do. */
void ls_trainer_announce(const struct ls_trainer *t);
/* Threads of the loader now, 0: not known here. Says so when their number has been chosen anew. */
int ls_trainer_watch_loader(struct ls_trainer *t);
/* Where a good part of this stretch was spent waiting for input: say so, and what would help. */
void ls_trainer_advise(struct ls_trainer *t, const struct ls_report *r);
/* broken.c, for --on-bad-sample skip. gather: all processes together add the samples that were replaced since the last call
 * to state.done, and rank 0 names in log.txt those that are new. say: how many there were. */
enum ls_status ls_broken_gather(struct ls_trainer *t);
void ls_broken_say(const struct ls_trainer *t);
/* Tell the other processes what this one does. */
void ls_trainer_say_position(const struct ls_trainer *t, enum ls_stage stage);

/* resuming.c, in the order of a start. find_run, on rank 0: the run to resume, or the directory of a new one, with every check that
 * is possible before kernels are measured. claim locks the run directory: from then on no other run writes there. share_found
 * broadcasts what rank 0 found. find_plan reads the kernels of a resumed run, or of one whose config.yaml is run again, into
 * t->plan. open_state sets the state on every rank; rank 0 also loads the weights, for all that hold a part of them. */
enum ls_status ls_trainer_find_run(struct ls_trainer *t);
enum ls_status ls_trainer_claim(struct ls_trainer *t);
enum ls_status ls_trainer_share_found(struct ls_trainer *t);
enum ls_status ls_trainer_find_plan(struct ls_trainer *t);
enum ls_status ls_trainer_open_state(struct ls_trainer *t);

/* saving.c. compare: the first `parts` of the values are the same in all processes (rank_check.h). collect: rank 0 has the
 * whole state, and all have the same values; compared unless --check-every is 0. save begins a checkpoint, which a thread may
 * write; save_last writes the lines about ranks first, where a job ends within an epoch; finish_saving and await_saved wait
 * for it. keep_saving, after a failure: the checkpoint under way is the one to go on from, and needs no other process. */
enum ls_status ls_trainer_compare(struct ls_trainer *t, int parts);
enum ls_status ls_trainer_collect(struct ls_trainer *t);
enum ls_status ls_trainer_save(struct ls_trainer *t);
enum ls_status ls_trainer_save_last(struct ls_trainer *t);
enum ls_status ls_trainer_finish_saving(struct ls_trainer *t);
enum ls_status ls_trainer_await_saved(struct ls_trainer *t);
void ls_trainer_keep_saving(struct ls_trainer *t);
/* Name the newest good checkpoint. */
void ls_trainer_name_checkpoint(const struct ls_trainer *t);

/* observe.c: opens the observers and shows them images of the first batch; and the values of all parameters. All ranks call
 * the latter, while rank 0's parameters are complete. It shows nothing if no observer wants them. */
enum ls_status ls_trainer_observe(struct ls_trainer *t);
enum ls_status ls_trainer_observe_values(struct ls_trainer *t);

/* summary.c: what a run says at its end; and what became of gradients that servers took. */
void ls_trainer_summary(struct ls_trainer *t);
void ls_trainer_say_tallies(const struct ls_trainer *t);

/* A line for people; with --quiet for log.txt alone. */
void ls_trainer_say(const struct ls_trainer *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
