#include "exec/step_usage.h"
#include "base/memory.h"

#include <string.h>

enum ls_status ls_step_usage_init(struct ls_step_usage *u, const struct ls_comm *comm)
{
    *u = (struct ls_step_usage){0};
    if (!comm)
        return LS_OK;
    size_t size = (size_t)ls_comm_size(comm);
    u->seen_for = ls_alloc(size, sizeof *u->seen_for);
    u->waited_for = ls_alloc(size, sizeof *u->waited_for);
    u->now_for = ls_alloc(size, sizeof *u->now_for);
    return u->seen_for && u->waited_for && u->now_for ? LS_OK : LS_FAILED;
}

void ls_step_usage_release(struct ls_step_usage *u)
{
    ls_free(u->seen_for);
    ls_free(u->waited_for);
    ls_free(u->now_for);
    *u = (struct ls_step_usage){0};
}

void ls_step_usage_skip(struct ls_step_usage *u, const struct ls_comm *comm)
{
    if (!comm)
        return;
    ls_comm_usage(comm, &u->seen);
    ls_comm_waited_for(comm, u->seen_for);
}

void ls_comm_usage_add(struct ls_comm_usage *sum, const struct ls_comm_usage *now, const struct ls_comm_usage *before)
{
    for (int k = 0; k < LS_WORK_KINDS; k++) {
        sum->kinds[k].calls += now->kinds[k].calls - before->kinds[k].calls;
        sum->kinds[k].bytes += now->kinds[k].bytes - before->kinds[k].bytes;
        sum->kinds[k].seconds += now->kinds[k].seconds - before->kinds[k].seconds;
    }
    sum->late += now->late - before->late;
    sum->waited += now->waited - before->waited;
}

/* Seconds of collectives, without waiting for late ranks. */
static double transfer(const struct ls_comm_usage *u)
{
    double sum = 0;
    for (int k = 0; k < LS_WORK_SEND; k++)
        sum += u->kinds[k].seconds;
    return sum - u->late;
}

void ls_step_usage_take(struct ls_step_usage *u, const struct ls_comm *comm, struct ls_report *r)
{
    struct ls_comm_usage now, step = {0};
    r->wait_seconds = r->late_seconds = r->hidden_seconds = 0;
    if (!comm)
        return;
    ls_comm_usage(comm, &now);
    ls_comm_waited_for(comm, u->now_for);
    ls_comm_usage_add(&step, &now, &u->seen);
    ls_comm_usage_add(&u->spent, &now, &u->seen);
    for (int rank = 0; rank < ls_comm_size(comm); rank++) {
        r->late_seconds += u->now_for[rank] - u->seen_for[rank];
        u->waited_for[rank] += u->now_for[rank] - u->seen_for[rank];
        u->seen_for[rank] = u->now_for[rank];
    }
    u->seen = now;
    double hidden = transfer(&step) - (step.waited - r->late_seconds);
    r->wait_seconds = step.waited;
    r->hidden_seconds = hidden > 0 ? hidden : 0;
}

void ls_step_usage_clear(struct ls_step_usage *u, const struct ls_comm *comm)
{
    u->spent = (struct ls_comm_usage){0};
    if (comm)
        memset(u->waited_for, 0, (size_t)ls_comm_size(comm) * sizeof *u->waited_for);
}
