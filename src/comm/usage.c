/* Counts calls, bytes and seconds of collectives and messages, and the seconds that threads wait for them. */
#include "comm/group.h"

static void add(_Atomic int64_t *sum, double seconds)
{
    if (seconds > 0)
        atomic_fetch_add_explicit(sum, (int64_t)(1e9 * seconds), memory_order_relaxed);
}

static double seconds_of(const _Atomic int64_t *ns)
{
    return 1e-9 * (double)atomic_load_explicit(ns, memory_order_relaxed);
}

void ls_usage_count(struct ls_comm *c, const struct ls_work *w, double seconds)
{
    atomic_fetch_add_explicit(&c->used[w->kind].calls, 1, memory_order_relaxed);
    if (w->kind != LS_WORK_BARRIER)
        atomic_fetch_add_explicit(&c->used[w->kind].bytes, w->bytes, memory_order_relaxed);
    if (w->kind >= LS_WORK_SEND)
        return;
    add(&c->used[w->kind].ns, seconds);
    add(&c->late_ns, w->last_wait < seconds ? w->last_wait : seconds);
}

/* The last rank came `last_wait` seconds after the collective began here. A thread that began to wait later waited for that
 * rank for the rest of them. */
void ls_usage_waited(struct ls_comm *c, const struct ls_work *w, double start, double end)
{
    add(&c->waited_ns, end - start);
    if (w->kind >= LS_WORK_SEND || w->status != LS_OK || w->last_rank < 0 || w->last_rank == c->rank)
        return;
    double came = w->begun + w->last_wait, from = w->begun > start ? w->begun : start;
    add(&c->peers[w->last_rank].waited_ns, (came < end ? came : end) - from);
}

void ls_comm_usage(const struct ls_comm *c, struct ls_comm_usage *u)
{
    for (int k = 0; k < LS_WORK_KINDS; k++)
        u->kinds[k] = (struct ls_kind_usage){
            .calls = atomic_load_explicit(&c->used[k].calls, memory_order_relaxed),
            .bytes = atomic_load_explicit(&c->used[k].bytes, memory_order_relaxed),
            .seconds = seconds_of(&c->used[k].ns),
        };
    u->late = seconds_of(&c->late_ns);
    u->waited = ls_comm_waited(c);
}

double ls_comm_waited(const struct ls_comm *c)
{
    return seconds_of(&c->waited_ns);
}

void ls_comm_waited_for(const struct ls_comm *c, double *seconds)
{
    for (int rank = 0; rank < c->size; rank++)
        seconds[rank] = seconds_of(&c->peers[rank].waited_ns);
}
