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
    double late = w->last_wait + w->stall;
    add(&c->late_ns, late < seconds ? late : seconds);
}

/* Seconds that the spans from..to and start..end have in common, for a rank that was waited for in the first. */
static void add_overlap(struct ls_comm *c, int rank, double from, double to, double start, double end)
{
    if (rank >= 0 && rank != c->rank)
        add(&c->peers[rank].waited_ns, (to < end ? to : end) - (from > start ? from : start));
}

/* The last rank came `last_wait` seconds after the collective began here. A rank that stood still in it did so before the
 * end. A thread that began to wait later waited for the rest. */
void ls_usage_waited(struct ls_comm *c, const struct ls_work *w, double start, double end)
{
    add(&c->waited_ns, end - start);
    if (w->kind >= LS_WORK_SEND || w->status != LS_OK)
        return;
    add_overlap(c, w->last_rank, w->begun, w->begun + w->last_wait, start, end);
    add_overlap(c, w->stall_rank, w->done - w->stall, w->done, start, end);
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
