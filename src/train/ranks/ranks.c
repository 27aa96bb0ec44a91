#include "train/ranks/ranks.h"
#include "base/memory.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)LS_RANK_KINDS == (int)LS_WORK_KINDS, "a rank's line counts every kind of work");

static int size_of(const struct ls_trainer *t)
{
    return t->engine.comm ? ls_comm_size(t->engine.comm) : 1;
}

static const char *host_of(const struct ls_trainer *t, int rank, char own[256])
{
    if (t->engine.comm)
        return ls_comm_host(t->engine.comm, rank);
    if (gethostname(own, 255) != 0)
        snprintf(own, 256, "unknown");
    own[255] = 0;
    return own;
}

/* --- open and close ----------------------------------------------------------------------------------------------- */

enum ls_status ls_ranks_open(struct ls_trainer *t)
{
    struct ls_ranks *r = &t->ranks;
    size_t size = (size_t)size_of(t);
    r->lines = ls_alloc(size, sizeof *r->lines);
    r->totals = ls_alloc(size, sizeof *r->totals);
    r->waited = ls_alloc(size, sizeof *r->waited);
    if (!r->lines || !r->totals || !r->waited)
        return LS_FAILED;
    return ls_rank_steps_open(t);
}

void ls_ranks_close(struct ls_ranks *r)
{
    ls_free(r->lines);
    ls_free(r->totals);
    ls_free(r->waited);
    ls_free(r->kept);
    ls_free(r->round);
    *r = (struct ls_ranks){0};
}

/* --- adding up ---------------------------------------------------------------------------------------------------- */

void ls_ranks_add(struct ls_trainer *t, const struct ls_report *r)
{
    struct ls_ranks *ranks = &t->ranks;
    struct ls_report own = *r;
    if (r->seconds <= 0)
        return;
    if (r->step > 0) {
        ls_totals_report(&t->stepper.own, &own);
        ls_rank_steps_keep(ranks, &own);
        ranks->first = ranks->first > 0 ? ranks->first : r->seconds;
        ranks->steps++;
    } else { /* a server counts the steps that it served */
        ranks->steps += (int64_t)(t->stepper.outcome.next_step - t->state.step);
    }
    ls_report_add(&ranks->sum, &own);
}

/* This rank's line; begins new sums. */
static struct ls_rank_line take_line(struct ls_trainer *t)
{
    struct ls_ranks *ranks = &t->ranks;
    struct ls_step_usage *used = &t->stepper.usage;
    struct ls_rank_line line = ls_rank_line_of(&ranks->sum, ranks->steps, used->waited_for, size_of(t));
    line.first = ranks->first;
    for (int k = 0; k < LS_WORK_KINDS; k++)
        line.kinds[k] = (struct ls_rank_kind){used->spent.kinds[k].calls, used->spent.kinds[k].bytes};
    line.on_gpu = ls_gpu_mean(&t->gpu, &ranks->gpu_before, &line.gpu) || ls_gpu_last(&t->gpu, &line.gpu);
    ls_gpu_sums(&t->gpu, &ranks->gpu_before);
    ls_step_usage_clear(used, t->engine.comm);
    ranks->sum = (struct ls_report){0};
    ranks->steps = 0;
    return line;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static enum ls_status write_lines(struct ls_trainer *t)
{
    struct ls_ranks *ranks = &t->ranks;
    const char *names[LS_RANK_KINDS];
    char own[256];
    for (int k = 0; k < LS_RANK_KINDS; k++)
        names[k] = ls_work_name((enum ls_work_kind)k);
    for (int rank = 0; rank < size_of(t); rank++) {
        const struct ls_rank_line *line = &ranks->lines[rank];
        LS_TRY(ls_rank_line_write(&t->metrics, (int64_t)t->state.step, (int64_t)t->state.epoch, rank,
                                  host_of(t, rank, own), names, line));
        ls_rank_line_add(&ranks->totals[rank], line);
        if (line->waited_for >= 0 && line->waited_for < size_of(t))
            ranks->waited[line->waited_for] += line->waited_for_seconds;
    }
    return LS_OK;
}

enum ls_status ls_ranks_write(struct ls_trainer *t)
{
    struct ls_ranks *ranks = &t->ranks;
    struct ls_rank_line mine = take_line(t);
    bool any = false;
    LS_TRY(ls_rank_steps_gather(t));
    if (t->engine.comm)
        LS_TRY(ls_comm_allgather(t->engine.comm, &mine, sizeof mine, ranks->lines));
    else
        ranks->lines[0] = mine;
    for (int rank = 0; rank < size_of(t); rank++)
        any = any || ranks->lines[rank].steps > 0;
    return any && t->root ? write_lines(t) : LS_OK;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void say_rank(const struct ls_trainer *t, int rank)
{
    const struct ls_rank_line *l = &t->ranks.totals[rank];
    double share = l->seconds > 0 ? 100 / l->seconds : 0;
    char own[256], waits[16] = "-", loss[32] = "-"; /* a server has no samples */
    if (l->waited_for >= 0)
        snprintf(waits, sizeof waits, "%d", (int)l->waited_for);
    if (l->samples > 0)
        snprintf(loss, sizeof loss, "%.4f", l->loss);
    ls_trainer_say(t, "  %4d  %-16s %9s %11.6f %6.1f%% %6.1f%% %6.1f%% %6.1f%% %6.1f%%  %9s", rank,
                   host_of(t, rank, own), loss, ls_rank_line_pace(l), share * l->input, share * l->compute,
                   share * l->exposed, share * l->late, share * l->update, waits);
}

void ls_ranks_say(const struct ls_trainer *t)
{
    const struct ls_ranks *ranks = &t->ranks;
    int size = size_of(t), late = ls_rank_straggler(ranks->totals, ranks->waited, size);
    char own[256];
    if (!t->root)
        return;
    if (late >= 0) {
        double each = ranks->waited[late] / (size - 1), seconds = ranks->totals[late].seconds;
        ls_trainer_say(t,
                       "Rank %d (%s) is slow: the other ranks waited for it %.1f s, %.0f%% of the time of all steps.",
                       late, host_of(t, late, own), each, seconds > 0 ? 100 * each / seconds : 0);
    }
    if (late < 0 && !ranks->every_step)
        return;
    ls_trainer_say(t,
                   "  rank  host                  loss s/iteration   input compute exposed    late  update  waits for");
    for (int rank = 0; rank < size; rank++)
        say_rank(t, rank);
}
