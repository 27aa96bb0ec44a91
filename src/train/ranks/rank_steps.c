/* --per-rank: the steps of every rank, in RUN/ranks/rank-N.jsonl. A rank keeps its steps in memory; rank 0 gathers them
 * before each checkpoint and at the end of an epoch, in rounds of a fixed size, and writes all files. */
#include "base/files/file.h"
#include "base/memory.h"
#include "exec/rank_reduce.h"
#include "train/ranks/ranks.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUND = 128 /* steps of each rank */ };

static char *path_of(const struct ls_trainer *t, int rank)
{
    return ls_format("%s/ranks/rank-%d.jsonl", t->run, rank);
}

/* --- open --------------------------------------------------------------------------------------------------------- */

static int size_of(const struct ls_trainer *t)
{
    return t->engine.comm ? ls_comm_size(t->engine.comm) : 1;
}

/* Cuts the files of all ranks that there are to the steps up to the checkpoint; a run may go on with fewer ranks. */
static enum ls_status cut_files(const struct ls_trainer *t)
{
    enum ls_status st = LS_OK;
    bool there = true;
    for (int rank = 0; st == LS_OK && (there || rank < size_of(t)); rank++) {
        struct ls_metrics file = {0};
        char *path = path_of(t, rank);
        there = path && ls_file_exists(path);
        if (!path)
            st = LS_FAILED;
        else if (there)
            st = ls_metrics_open(&file, path, t->resumed ? (int64_t)t->state.step : -1, 0);
        ls_metrics_close(&file);
        ls_free(path);
    }
    return st;
}

static enum ls_status open_folder(const struct ls_trainer *t)
{
    char *folder = ls_format("%s/ranks", t->run);
    if (!folder)
        return LS_FAILED;
    enum ls_status st = t->ranks.every_step ? ls_dir_make(folder) : LS_OK;
    if (st == LS_OK && ls_file_is_dir(folder))
        st = cut_files(t);
    ls_free(folder);
    return st;
}

enum ls_status ls_rank_steps_open(struct ls_trainer *t)
{
    struct ls_ranks *ranks = &t->ranks;
    /* Servers may carry a worker past the step at which it would save. */
    int64_t most = t->steps_per_epoch, every = t->engine.strategy->servers ? 0 : t->o->checkpoint_every;
    if (t->root && t->run)
        LS_TRY(open_folder(t));
    if (!ranks->every_step)
        return LS_OK;
    ranks->room = (every > 0 && every < most ? every : most) + 2; /* reports may be a step late */
    ranks->kept = ls_alloc((size_t)ranks->room, sizeof *ranks->kept);
    ranks->round = ls_alloc((size_t)size_of(t) * ROUND, sizeof *ranks->round);
    return ranks->kept && ranks->round ? LS_OK : LS_FAILED;
}

/* --- keeping ------------------------------------------------------------------------------------------------------ */

static double wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void ls_rank_steps_keep(struct ls_ranks *ranks, const struct ls_report *own)
{
    if (!ranks->every_step || ranks->n_kept == ranks->room)
        return;
    ranks->kept[ranks->n_kept++] = (struct ls_rank_step){
        .step = own->step,
        .epoch = own->epoch,
        .samples = own->samples,
        .loss = own->loss,
        .top1 = own->top1,
        .top5 = own->top5,
        .seconds = own->seconds,
        .input = own->input_seconds,
        .compute = own->compute_seconds,
        .exposed = own->wait_seconds - own->late_seconds,
        .late = own->late_seconds,
        .update = own->update_seconds,
        .time = wall_clock(),
    };
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void write_step(FILE *out, int rank, const struct ls_rank_step *s)
{
    fprintf(out,
            "{\"kind\": \"step\", \"step\": %" PRId64 ", \"epoch\": %" PRId64 ", \"rank\": %d, \"samples\": %" PRId64,
            s->step, s->epoch + 1, rank, s->samples);
    ls_metrics_put_real(out, "loss", s->samples > 0 ? s->loss : NAN);
    ls_metrics_put_real(out, "top1", s->samples > 0 ? s->top1 : NAN);
    ls_metrics_put_real(out, "top5", s->samples > 0 ? s->top5 : NAN);
    ls_metrics_put_time(out, s->time);
    ls_metrics_put_real(out, "seconds", s->seconds);
    ls_metrics_put_real(out, "input_seconds", s->input);
    ls_metrics_put_real(out, "compute_seconds", s->compute);
    ls_metrics_put_real(out, "exposed_seconds", s->exposed);
    ls_metrics_put_real(out, "late_seconds", s->late);
    ls_metrics_put_real(out, "update_seconds", s->update);
    fputs("}\n", out);
}

/* Unused places of a round have step 0. */
static enum ls_status write_round(const struct ls_trainer *t, int rank, const struct ls_rank_step *steps)
{
    struct ls_metrics file = {.path = path_of(t, rank)};
    enum ls_status st = file.path ? ls_file_append(file.path, &file.file) : LS_FAILED;
    for (int i = 0; st == LS_OK && i < ROUND && steps[i].step > 0; i++)
        write_step(file.file, rank, &steps[i]);
    if (st == LS_OK)
        st = ls_metrics_sync(&file);
    enum ls_status closed = ls_metrics_close(&file);
    return st != LS_OK ? st : closed;
}

enum ls_status ls_rank_steps_gather(struct ls_trainer *t)
{
    struct ls_ranks *ranks = &t->ranks;
    struct ls_comm *comm = t->engine.comm;
    int64_t most = 0;
    if (!ranks->every_step)
        return LS_OK;
    LS_TRY(ls_rank_reduce_most(comm, ranks->n_kept, &most));
    for (int64_t at = 0; at < most; at += ROUND) {
        int64_t left = ranks->n_kept - at, n = left < 0 ? 0 : left < ROUND ? left : ROUND;
        struct ls_rank_step *mine = ranks->round + (comm ? (size_t)ls_comm_rank(comm) : 0) * ROUND;
        memset(mine, 0, ROUND * sizeof *mine);
        if (n > 0)
            memcpy(mine, ranks->kept + at, (size_t)n * sizeof *mine);
        if (comm)
            LS_TRY(ls_comm_allgather(comm, mine, ROUND * sizeof *mine, ranks->round));
        for (int rank = 0; t->root && rank < size_of(t); rank++)
            if (ranks->round[(size_t)rank * ROUND].step > 0)
                LS_TRY(write_round(t, rank, ranks->round + (size_t)rank * ROUND));
    }
    ranks->n_kept = 0;
    return LS_OK;
}
