/* state.json: the position of a run, besides its weights. */
#ifndef LS_CHECKPOINT_STATE_H
#define LS_CHECKPOINT_STATE_H

#include "backend/backend.h"
#include "base/text/help.h"
#include "base/status.h"
#include "optim/schedule.h"
#include "report/report.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_state {
    uint64_t step;         /* steps done */
    uint64_t epoch;        /* current epoch, from 0 */
    int64_t position;      /* samples of that epoch already used; if all, its evaluation is still to come */
    struct ls_report done; /* sums over the steps of the epoch so far */
    uint64_t seed;         /* defines the run, with batch, replicas and accumulate */
    int64_t batch, replicas, accumulate;
    bool averaged;      /* with --ema: the model's weights are averages, and the state has the trained ones */
    bool goes_on;       /* as in ls_loader_options; false: written by an older version */
    int64_t threads;    /* affects rounding only */
    char identity[320]; /* LS_IDENTITY_ROOM; "": written by an older version */
    uint64_t config;    /* checksum of all options that determine the result */
    double best_top1;   /* < 0: none yet */
    uint64_t best_step; /* 0: none yet */
    double best_top5;   /* likewise, on its own; 0 steps: none yet, or written by an older version */
    uint64_t best_top5_step;
    int64_t jobs;                       /* processes or groups of them that trained this run, one after the other */
    double seconds;                     /* of these jobs, up to this checkpoint */
    struct ls_loss_scale scale;         /* loss scale of the next step */
    struct ls_schedule_memory schedule; /* what --schedule plateau remembers */
    uint64_t evaluated;             /* the step after which the run was evaluated as --eval-every says; 0: none yet */
    double followed_top1;           /* the highest top-1 of these evaluations; < 0: none yet */
    int64_t stale;                  /* of them, those since then */
    bool end_due;                   /* all steps are done, but not the evaluation at the end of the run */
    bool verified;                  /* all processes held these values at the save; false: not compared */
    uint64_t model_sum, tensor_sum; /* checksums of model.safetensors and state.safetensors */
    uint64_t config_sum, data_sum;  /* of config.yaml and data.json; 0: none, or written by an older version */
};

/* The keys of the file, for help. */
extern const struct ls_help_row ls_state_keys[];

/* Writes the file atomically and durably. */
enum ls_status ls_state_write(const char *path, const struct ls_state *s);
/* Parses the text of the file. On failure returns false and writes the cause to reason. Reports no error. */
bool ls_state_parse(const char *text, size_t size, struct ls_state *s, char *reason, size_t room);

#endif
