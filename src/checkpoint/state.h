/* state.json: where a run stands, besides its weights. */
#ifndef LS_CHECKPOINT_STATE_H
#define LS_CHECKPOINT_STATE_H

#include "backend/backend.h"
#include "base/help.h"
#include "base/status.h"
#include "report/report.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_state {
    uint64_t step;         /* steps done */
    uint64_t epoch;        /* the epoch under way, from 0 */
    int64_t position;      /* samples of that epoch already used; all of them: its evaluation is still to come */
    struct ls_report done; /* sum over the epoch's steps so far */
    uint64_t seed;         /* what defines the run ... */
    int64_t batch, replicas, accumulate;
    int64_t threads;                /* ... and its bits */
    char identity[320];             /* LS_IDENTITY_ROOM; "": of an older version */
    uint64_t config;                /* checksum of all options that decide the result */
    double best_top1;               /* < 0: none yet */
    uint64_t best_step;             /* 0: none yet */
    struct ls_loss_scale scale;     /* what the next step begins with */
    bool verified;                  /* all processes had these values when it was saved; false: not compared */
    uint64_t model_sum, tensor_sum; /* checksums of model.safetensors and state.safetensors */
};

/* The keys of the file, and what they mean. */
extern const struct ls_help_row ls_state_keys[];

/* Durable. */
enum ls_status ls_state_write(const char *path, const struct ls_state *s);
/* From the file's text; false: reason says why, and nothing is logged. */
bool ls_state_parse(const char *text, size_t size, struct ls_state *s, char *reason, size_t room);

#endif
