/* Waiting with a deadline, and the checks that every wait makes (COMM-3). */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "comm/group.h"
#include "launch/children/failed_rank.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Seconds of spinning before a sleep. A thread that waits for its own work has nothing else to do. The communication
 * thread shares its core with the computation. */
#define SPIN_HELPER 30e-6
#define SPIN_THREAD 2e-6
#define SPIN_LEAST 12   /* tests of the condition */
#define LOOK 0.1        /* seconds of sleep between checks */
#define NAP_LEAST 20e-6 /* seconds between polls of a transport without a descriptor */
#define NAP_MOST 100e-6
/* Heartbeats come once a second; this many seconds are added before a rank counts itself as cut off. */
#define CUT_OFF_SLACK 2.5

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* --- the end of a group ------------------------------------------------------------------------------------------ */

static void set_broken(struct ls_comm *c, enum ls_status status)
{
    int none = LS_OK;
    atomic_compare_exchange_strong(&c->broken, &none, (int)status);
}

enum ls_status ls_group_lose(struct ls_comm *c, enum ls_status status, const char *format, ...)
{
    char why[LS_REASON_ROOM];
    va_list args;
    if (atomic_load(&c->broken))
        return (enum ls_status)atomic_load(&c->broken);
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    /* `broken` comes last: a thread that sees it may end the process at once. */
    ls_fail(status, "%s", why);
    if (c->segment)
        ls_shm_segment_fail(c->segment, -1, status, why);
    ls_heartbeat_report(c, status, -1, why);
    set_broken(c, status);
    return status;
}

/* Takes over the failure that another rank of this node has written into the segment. */
static enum ls_status adopt(struct ls_comm *c)
{
    const struct ls_shm_head *h = c->segment->head;
    char why[LS_REASON_ROOM];
    memcpy(why, h->why, sizeof why);
    why[sizeof why - 1] = 0;
    ls_heartbeat_report(c, h->status, h->rank, why);
    if (h->rank == c->rank) {
        set_broken(c, h->status);
        return h->status;
    }
    /* Misuse that involves all ranks (rank -1) stays misuse. The failure of one rank is a lost peer to the others. */
    enum ls_status st = h->rank < 0 && h->status == LS_USAGE ? LS_USAGE : LS_PEER_LOST;
    if (h->rank < 0)
        ls_fail(st, "%s", why);
    else
        ls_fail(st, LS_FAILED_RANK, h->rank, c->peers[h->rank].host, why);
    set_broken(c, st);
    return st;
}

/* --- checks ------------------------------------------------------------------------------------------------------ */

static enum ls_status find_dead(struct ls_comm *c)
{
    for (int r = 0; c->segment && r < c->size; r++) {
        const struct ls_peer *p = &c->peers[r];
        if (p->node != c->peers[c->rank].node || !ls_shm_peer_gone(c->segment, p->local))
            continue;
        if (ls_shm_segment_failed(c->segment)) /* it gave the reason before it ended */
            return adopt(c);
        char where[128];
        ls_blame_describe(c, r, where, sizeof where);
        return ls_group_lose(c, LS_PEER_LOST, "rank %d (pid %d on host %s%s) is gone; %s", r, (int)p->pid, p->host,
                             p->title, where);
    }
    return LS_OK;
}

/* A rank that waits for a message of any rank has no rank to blame. When no heartbeat of any rank comes for longer than
 * the deadline, this rank is cut off. The slack lets waits that can blame a rank do so first. */
static enum ls_status find_cut_off(struct ls_comm *c, double now)
{
    double heard = 0, gap = now - c->checked;
    if (!c->heartbeats || c->locals > 1 || atomic_load(&c->closing))
        return LS_OK;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && c->peers[r].heard > heard)
            heard = c->peers[r].heard;
    if (heard > c->heard || c->heard_since == 0)
        c->heard_since = now;
    else if (gap > LOOK + LS_STOPPED)
        c->heard_since += gap;
    c->heard = heard;
    return now < ls_group_limit(c, c->heard_since) + CUT_OFF_SLACK ? LS_OK : ls_blame_network(c, now - c->heard_since);
}

void ls_group_alive(struct ls_comm *c)
{
    if (c->segment)
        atomic_store_explicit(&ls_shm_slot(c->segment, c->local)->alive, ls_clock_ns(), memory_order_relaxed);
}

void ls_group_waits(struct ls_comm *c, int rank)
{
    _Atomic int32_t *waits = c->segment ? &ls_shm_slot(c->segment, c->local)->waits : &c->waits;
    atomic_store_explicit(waits, rank < 0 ? 0 : rank + 1, memory_order_relaxed);
}

enum ls_status ls_group_check(struct ls_comm *c)
{
    ls_group_alive(c);
    if (atomic_load(&c->broken))
        return (enum ls_status)atomic_load(&c->broken);
    if (c->segment && ls_shm_segment_failed(c->segment))
        return adopt(c);
    double now = ls_now();
    if (now - c->checked >= LOOK) {
        LS_TRY(find_cut_off(c, now));
        c->checked = now;
        LS_TRY(find_dead(c));
        LS_TRY(ls_mark_look(c));
    }
    LS_TRY(ls_heartbeat_progress(c));
    return ls_blame_overdue(c);
}

enum ls_status ls_group_check_peer(struct ls_comm *c, enum ls_status st, int peer)
{
    if (st != LS_PEER_LOST)
        return st;
    LS_TRY(ls_group_check(c)); /* it may have given the reason */
    if (peer >= 0 && peer < c->size)
        return ls_group_lose(c, LS_PEER_LOST, "rank %d (host %s%s) is gone: its connection has ended", peer,
                             c->peers[peer].host, c->peers[peer].title);
    return ls_group_lose(c, LS_PEER_LOST, "the connection to another rank has ended");
}

double ls_group_limit(const struct ls_comm *c, double since)
{
    int64_t allowed = atomic_load(&c->allowed);
    if (c->segment) {
        int64_t shared = atomic_load(&c->segment->head->allowed);
        allowed = shared > allowed ? shared : allowed;
    }
    double later = 1e-9 * (double)allowed;
    return (later > since ? later : since) + c->o.deadline;
}

void ls_deadline_extend(_Atomic int64_t *allowed, double seconds)
{
    const double most = 1e8; /* three years */
    if (!(seconds > 0))      /* NaN as well */
        return;
    int64_t until = ls_clock_ns() + (int64_t)(1e9 * (seconds < most ? seconds : most)), now = atomic_load(allowed);
    while (until > now && !atomic_compare_exchange_weak(allowed, &now, until))
        ;
}

/* --- sleeping ---------------------------------------------------------------------------------------------------- */

void ls_group_wake(struct ls_comm *c)
{
    uint64_t one = 1;
    ls_doorbell_wake(c->doorbell); /* contains a fence */
    if (atomic_load_explicit(&c->polling, memory_order_relaxed) && write(c->event, &one, sizeof one) < 0)
        ls_note("the communication thread was not woken: %s", strerror(errno));
}

uint32_t ls_group_prepare_sleep(struct ls_comm *c, enum ls_sleep how, bool for_messages)
{
    if (for_messages && c->event >= 0)
        atomic_store(&c->polling, true);
    return ls_doorbell_prepare(c->doorbell, c->driver, how);
}

void ls_group_cancel_sleep(struct ls_comm *c)
{
    atomic_store_explicit(&c->polling, false, memory_order_relaxed);
    ls_doorbell_cancel(c->doorbell, c->driver);
}

void ls_group_sleep(struct ls_comm *c, uint32_t rung, double seconds)
{
    uint64_t count;
    if (!atomic_load_explicit(&c->polling, memory_order_relaxed)) {
        ls_doorbell_sleep(c->doorbell, c->driver, rung, seconds);
        return;
    }
    struct pollfd fds[2] = {{.fd = c->event, .events = POLLIN}, {.events = POLLIN}};
    fds[1].fd = c->channel->descriptor(c->channel_state);
    if (fds[1].fd >= 0 && poll(fds, 2, (int)(1e3 * seconds)) > 0 && fds[0].revents &&
        read(c->event, &count, sizeof count) < 0)
        ls_note("a wake-up call could not be read: %s", strerror(errno));
    ls_group_cancel_sleep(c);
}

/* A transport without a descriptor is polled again soon when a message is under way. */
static void sleep_once(struct ls_comm *c, const struct ls_wait *w)
{
    bool polls =
        c->polled && c->event < 0 ? w->for_messages || c->p2p.head : c->polled && !w->for_messages && c->p2p.head;
    ls_group_sleep(c, w->rung, polls ? w->nap : LOOK);
}

/* --- waiting ----------------------------------------------------------------------------------------------------- */

static void find_missing(struct ls_comm *c, ls_missing *missing, const void *context)
{
    memset(c->missing, 0, (size_t)c->size * sizeof *c->missing);
    missing(c, context, c->missing);
}

static bool any_missing(const struct ls_comm *c)
{
    bool any = false;
    for (int r = 0; r < c->size; r++)
        any |= c->missing[r];
    return any;
}

static enum ls_status check_deadline(struct ls_comm *c, const struct ls_wait *w, ls_missing *missing,
                                     const void *context)
{
    LS_TRY(ls_group_check(c));
    double beyond = ls_now() - ls_group_limit(c, w->since);
    if (beyond < 0)
        return LS_OK;
    find_missing(c, missing, context);
    return any_missing(c) && !ls_blame_excused(c) ? ls_blame(c, beyond) : LS_OK;
}

/* Time in which this process was stopped (by a debugger, by a suspended machine) does not count. */
static double read_clock(struct ls_wait *w)
{
    double now = ls_now();
    if (w->since == 0)
        w->since = now;
    if (w->seen > 0 && now - w->seen > LOOK + LS_STOPPED)
        w->since += now - w->seen;
    w->seen = now;
    return now;
}

/* Publishes the first missing rank, so that other ranks can follow the chain. */
static void publish_wait(struct ls_comm *c, ls_missing *missing, const void *context)
{
    int rank = 0;
    find_missing(c, missing, context);
    while (rank < c->size && !c->missing[rank])
        rank++;
    ls_group_waits(c, rank < c->size ? rank : -1);
}

enum ls_status ls_wait_step(struct ls_comm *c, struct ls_wait *w, ls_missing *missing, const void *context)
{
    if (w->prepared) {
        sleep_once(c, w);
        read_clock(w);
        w->prepared = false;
        w->steps = 0;
        return check_deadline(c, w, missing, context);
    }
    double now = read_clock(w);
    if (w->steps++ == 0) {
        w->began = now;
        w->nap = w->nap == 0 ? NAP_LEAST : w->nap < NAP_MOST ? 1.5 * w->nap : NAP_MOST;
    }
    if (ls_p2p_progress(c))
        return LS_OK;
    double spun = now - w->began;
    if (w->steps < SPIN_LEAST || spun < (c->driver == 1 ? SPIN_HELPER : SPIN_THREAD)) {
        if (c->crowded || spun > SPIN_THREAD)
            sched_yield(); /* the missing rank may need this core */
        else
            relax();
        return LS_OK;
    }
    if (!w->published)
        publish_wait(c, missing, context);
    w->published = true;
    w->rung = ls_group_prepare_sleep(c, LS_ASLEEP, w->for_messages);
    w->prepared = true;
    return LS_OK;
}

void ls_wait_end(struct ls_comm *c, struct ls_wait *w)
{
    if (w->prepared)
        ls_group_cancel_sleep(c);
    if (w->published)
        ls_group_waits(c, -1);
    w->prepared = w->published = false;
}
