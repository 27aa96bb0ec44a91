/* The measurements of every rank: rank 0 gathers them at the end of an epoch and of a job, and writes a line for each rank
 * (report/metrics/rank_line.h). With --per-rank it also gathers every rank's steps and writes them to RUN/ranks/rank-N.jsonl.
 *
 * Gathering is a collective between steps: all ranks call these functions at the same places. */
#ifndef LS_TRAIN_RANKS_H
#define LS_TRAIN_RANKS_H

#include "report/metrics/rank_line.h"

struct ls_trainer;

/* A step of one rank, for --per-rank. */
struct ls_rank_step {
    int64_t step, epoch; /* epoch counts from 0 */
    int64_t samples;     /* of this rank, as are loss, top1 and top5 */
    double loss, top1, top5;
    double seconds, input, compute, exposed, late, update;
    double time; /* when it was reported; seconds since 1970 */
};

struct ls_ranks {
    struct ls_report sum; /* of this rank's steps since the last line; loss and samples are its own */
    int64_t steps;        /* number of these steps */
    double first;         /* seconds of the first step of the job, which is slow; 0: none yet */
    struct ls_gpu_sums gpu_before;
    struct ls_rank_line *lines; /* owned; one a rank, of the last gathering */
    /* rank 0's; owned; one a rank */
    struct ls_rank_line *totals; /* of the job */
    double *waited;              /* seconds that the others waited for this rank */
    /* --per-rank */
    bool every_step;           /* as rank 0 was told */
    struct ls_rank_step *kept; /* owned; steps that are not gathered yet */
    int64_t n_kept, room;
    struct ls_rank_step *round; /* owned; of all ranks */
};

/* Takes all memory. Rank 0 also removes what RUN/ranks has of steps after a checkpoint that is resumed. */
enum ls_status ls_ranks_open(struct ls_trainer *t);
void ls_ranks_close(struct ls_ranks *r);
/* Adds what ls_step reported, a server's service included. */
void ls_ranks_add(struct ls_trainer *t, const struct ls_report *r);
/* Gathers the sums of all ranks and begins new ones; rank 0 writes the lines. Where no rank has made a step since the last
 * lines, none are written. */
enum ls_status ls_ranks_write(struct ls_trainer *t);
/* The end of a job on rank 0: with --per-rank a table of all ranks; otherwise that table where a rank is clearly late. */
void ls_ranks_say(const struct ls_trainer *t);

/* rank_steps.c, with --per-rank. keep: a step of this rank. gather: rank 0 writes the steps that all ranks have kept. */
enum ls_status ls_rank_steps_open(struct ls_trainer *t);
void ls_rank_steps_keep(struct ls_ranks *ranks, const struct ls_report *own);
enum ls_status ls_rank_steps_gather(struct ls_trainer *t);

#endif
