/* Waiting for others, and what is said when they do not come (C3). */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/log.h"
#include "comm/group.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A thread that waits for its own work has nothing better to do for a moment. The communication thread shares its core
 * with the compute and gives it up at once. */
#define SPIN_HELPER 30e-6
#define SPIN_THREAD 2e-6
#define SPIN_LEAST 12   /* looks */
#define LOOK 0.1        /* seconds of sleep between looks for the dead */
#define NAP_LEAST 20e-6 /* between questions to a library that rings no doorbell */
#define NAP_MOST 100e-6
/* A rank of another node that was not heard of for so long is silent. */
#define SILENT 2.5
/* And one of this node, where each process says twice a second that it runs. */
#define STILL 1.2

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* --- saying it -------------------------------------------------------------------------------------------------- */

const char *ls_work_name(enum ls_work_kind kind)
{
    static const char *const names[] = {
        [LS_WORK_ALLREDUCE] = "allreduce", [LS_WORK_REDUCE] = "reduce",       [LS_WORK_SCATTER] = "scatter",
        [LS_WORK_COLLECT] = "collect",     [LS_WORK_BROADCAST] = "broadcast", [LS_WORK_ALLGATHER] = "allgather",
        [LS_WORK_BARRIER] = "barrier",     [LS_WORK_SEND] = "send",           [LS_WORK_RECEIVE] = "receive",
    };
    return kind >= 0 && (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown work";
}

const char *ls_stage_name(enum ls_stage stage)
{
    static const char *const names[] = {
        [LS_STAGE_START] = "starting",
        [LS_STAGE_INPUT] = "waiting for input",
        [LS_STAGE_COMPUTE] = "computing",
        [LS_STAGE_REDUCE] = "waiting for the network",
        [LS_STAGE_UPDATE] = "updating weights",
        [LS_STAGE_EVALUATE] = "evaluating",
        [LS_STAGE_SAVE] = "saving",
        [LS_STAGE_END] = "ending",
    };
    return stage >= 0 && (size_t)stage < sizeof names / sizeof *names ? names[stage] : "lost";
}

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
    set_broken(c, status);
    if (c->segment)
        ls_shm_segment_fail(c->segment, -1, status, why);
    ls_heartbeat_report(c, status, -1, why);
    return ls_fail(status, "%s", why);
}

/* Somebody else has said it. */
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
    enum ls_status st = h->rank < 0 && h->status == LS_USAGE ? LS_USAGE : LS_PEER_LOST; /* all have, or one */
    set_broken(c, st);
    if (h->rank < 0)
        return ls_fail(st, "%s", why);
    return ls_fail(LS_PEER_LOST, "rank %d (host %s) has failed: %s", h->rank, c->peers[h->rank].host, why);
}

/* What everyone is waited for at. */
static void describe_work(const struct ls_comm *c, char *text, size_t room)
{
    const struct ls_work *w = c->current;
    if (!w)
        snprintf(text, room, "connect");
    else if (w->kind <= LS_WORK_COLLECT && w->bucket >= 0)
        snprintf(text, room, "come to bucket %d of step %" PRIu64, w->bucket, w->step);
    else if (w->kind == LS_WORK_SEND || w->kind == LS_WORK_RECEIVE)
        snprintf(text, room, "%s a message (tag %u, step %" PRIu64 ")", w->kind == LS_WORK_SEND ? "take" : "send",
                 w->tag, w->step);
    else
        snprintf(text, room, "come to the %s at step %" PRIu64, ls_work_name(w->kind), w->step);
}

static void describe_ranks(const struct ls_comm *c, char *text, size_t room)
{
    size_t used = 0;
    int count = 0, said = 0;
    for (int r = 0; r < c->size; r++)
        count += c->missing[r];
    used = (size_t)snprintf(text, room, "rank%s ", count == 1 ? "" : "s");
    for (int r = 0; r < c->size && used < room; r++)
        if (c->missing[r]) {
            int n = snprintf(text + used, room - used, "%s%d (host %s)", said++ ? ", " : "", r, c->peers[r].host);
            used += n > 0 ? (size_t)n : 0;
        }
}

static void describe_position(const struct ls_comm *c, int rank, char *text, size_t room)
{
    struct ls_position p = ls_comm_where(c, rank);
    if (p.stage == LS_STAGE_START)
        snprintf(text, room, "it was still starting %.0f s ago", p.age);
    else if (c->peers[rank].node != c->peers[c->rank].node && ls_now() - c->peers[rank].heard > SILENT)
        snprintf(text, room, "it was last heard of %.0f s ago, %s step %" PRIu64 " since %.0f s",
                 ls_now() - c->peers[rank].heard, ls_stage_name(p.stage), p.step, p.age);
    else
        snprintf(text, room, "it was last seen %s step %" PRIu64 " %.0f s ago", ls_stage_name(p.stage), p.step, p.age);
}

/* Seconds since its process was last seen to run. */
static double quiet(const struct ls_comm *c, int rank)
{
    const struct ls_peer *p = &c->peers[rank];
    if (rank == c->rank)
        return 0;
    if (p->node != c->peers[c->rank].node)
        return ls_now() - p->heard;
    return c->segment ? 1e-9 * (double)(ls_clock_ns() - atomic_load(&ls_shm_slot(c->segment, p->local)->alive)) : 0;
}

/* Is its process known not to run? One that has kept others waiting for the deadline is quiet for about as long; a short
 * silence is only that of a busy machine. */
static bool silent(const struct ls_comm *c, int rank)
{
    double least = c->peers[rank].node == c->peers[c->rank].node ? STILL : SILENT;
    return quiet(c, rank) > (c->o.deadline / 2 > least ? c->o.deadline / 2 : least);
}

/* Starting (which may measure kernels), saving and evaluating take as long as they take, within reason: a rank that does
 * one of them and is seen to run is not blamed. */
static bool excused(const struct ls_comm *c, int rank)
{
    const double patience = 20; /* deadlines */
    struct ls_position p = ls_comm_where(c, rank);
    bool long_work = p.stage == LS_STAGE_START || p.stage == LS_STAGE_SAVE || p.stage == LS_STAGE_EVALUATE;
    return long_work && !silent(c, rank) && p.age < patience * c->o.deadline;
}

/* Has it not yet come to the collective that this rank is in? */
static bool behind(const struct ls_comm *c, int rank)
{
    const struct ls_peer *p = &c->peers[rank];
    bool collective = c->current && c->current->kind < LS_WORK_SEND;
    if (!collective || rank == c->rank)
        return false;
    if (p->node != c->peers[c->rank].node)
        return p->collective < c->collective;
    return c->segment && atomic_load(&ls_shm_slot(c->segment, p->local)->collective) < c->collective;
}

static int waits_for(const struct ls_comm *c, int rank)
{
    const struct ls_peer *p = &c->peers[rank];
    int waits = p->waits;
    if (p->node == c->peers[c->rank].node)
        waits = c->segment ? atomic_load(&ls_shm_slot(c->segment, p->local)->waits) : 0;
    return waits <= c->size ? waits - 1 : -1;
}

/* Mark the culprits among these (NULL: all), if there are any. */
static bool mark(struct ls_comm *c, const bool *among, bool (*culprit)(const struct ls_comm *c, int rank))
{
    bool found = false;
    for (int r = 0; r < c->size; r++)
        found |= (!among || among[r]) && culprit(c, r);
    for (int r = 0; found && r < c->size; r++)
        c->missing[r] = (!among || among[r]) && culprit(c, r);
    return found;
}

/* Where the chain ends that begins at this rank; absent: among those who are behind. In a cycle each says that it waits
 * for the next, but one of them has stopped since: the one that has been quiet for longest. cycle: this was so. */
static int chain_end(const struct ls_comm *c, int rank, bool absent, bool *cycle)
{
    int quietest = rank;
    for (int links = 0; links < c->size; links++) {
        int next = waits_for(c, rank);
        if (next < 0 || (absent && !behind(c, next)))
            return rank;
        if (next == c->rank)
            break;
        rank = next;
        if (quiet(c, rank) > quiet(c, quietest))
            quietest = rank;
    }
    *cycle = true;
    return quietest;
}

/* The rank waited for may itself be waiting. Those to name are at the end of the chain, and do not run, or are not even
 * here, or hold up all others. False: that does not show yet, because of a cycle, because heartbeats tell it only later,
 * or because who runs may just be between two waits. */
static bool look_further(struct ls_comm *c, double waited)
{
    bool cycle = false, clear = true, absent = mark(c, NULL, behind);
    memset(c->ends, 0, (size_t)c->size * sizeof *c->ends);
    for (int r = 0; r < c->size; r++)
        if (c->missing[r])
            c->ends[chain_end(c, r, absent, &cycle)] = true;
    if (mark(c, c->ends, silent) || mark(c, NULL, silent))
        return true;
    memcpy(c->missing, c->ends, (size_t)c->size * sizeof *c->missing);
    for (int r = 0; r < c->size; r++)
        if (c->ends[r]) {
            clear &= waited > SILENT || c->peers[r].node == c->peers[c->rank].node;
            clear &= absent || ls_comm_where(c, r).age > c->o.deadline / 2;
        }
    return clear && !cycle;
}

/* The marked ones did not do this in time. */
static enum ls_status name_missing(struct ls_comm *c, const char *what)
{
    char who[160], where[128], it[32] = "";
    int first = -1, count = 0;
    for (int r = 0; r < c->size; r++)
        if (c->missing[r]) {
            first = first < 0 ? r : first;
            count++;
        }
    if (first < 0)
        return ls_group_lose(c, LS_PEER_LOST, "the group did not %s within %.3g s", what, c->o.deadline);
    describe_ranks(c, who, sizeof who);
    describe_position(c, first, where, sizeof where);
    if (count > 1)
        snprintf(it, sizeof it, "rank %d: ", first);
    return ls_group_lose(c, LS_PEER_LOST, "%s did not %s within %.3g s; %s%s", who, what, c->o.deadline, it, where);
}

enum ls_status ls_group_blame(struct ls_comm *c, double beyond)
{
    char at[96];
    int count = 0, pardoned = 0;
    double grace = c->o.deadline / 2 > SILENT ? c->o.deadline / 2 : SILENT; /* by then those who stopped are silent */
    if (!look_further(c, c->o.deadline + beyond) && beyond < grace)
        return LS_OK;
    for (int r = 0; r < c->size; r++)
        if (c->missing[r]) {
            count++;
            pardoned += excused(c, r);
        }
    if (count > 0 && pardoned == count)
        return LS_OK;
    describe_work(c, at, sizeof at);
    return name_missing(c, at);
}

/* --- waiting for something else ----------------------------------------------------------------------------------- */

static bool computes(enum ls_stage stage)
{
    return stage >= LS_STAGE_COMPUTE && stage <= LS_STAGE_UPDATE;
}

/* Has it for long not come to the step that this rank waits in, or does it not run? Ranks save and evaluate between
 * steps, under the number of the next. */
static bool late(const struct ls_comm *c, int rank)
{
    struct ls_position p = ls_comm_where(c, rank), me = ls_comm_where(c, c->rank);
    bool before = p.step < me.step || (p.step == me.step && computes(me.stage) && !computes(p.stage));
    return rank != c->rank && p.age > c->o.deadline && (before || silent(c, rank)) && !excused(c, rank);
}

enum ls_status ls_comm_overdue(struct ls_comm *c, double waited)
{
    double now = ls_now();
    if (now > ls_group_limit(c, now - waited))
        atomic_store(&c->asked, true); /* of the driver, who alone can tell all */
    return ls_comm_broken(c);
}

/* By now this rank may have gone on: then the question is void. */
static enum ls_status answer(struct ls_comm *c)
{
    char what[64];
    double least = c->nodes > 1 && c->o.deadline < SILENT ? SILENT : c->o.deadline; /* heartbeats come late */
    if (!atomic_exchange(&c->asked, false) || c->current)
        return LS_OK;
    struct ls_position me = ls_comm_where(c, c->rank);
    if (me.age < least || !mark(c, NULL, late))
        return LS_OK;
    snprintf(what, sizeof what, "come through step %" PRIu64, me.step);
    return name_missing(c, what);
}

/* --- looking --------------------------------------------------------------------------------------------------- */

static enum ls_status look_for_dead(struct ls_comm *c)
{
    for (int r = 0; c->segment && r < c->size; r++) {
        const struct ls_peer *p = &c->peers[r];
        if (p->node != c->peers[c->rank].node || !ls_shm_peer_gone(c->segment, p->local))
            continue;
        if (ls_shm_segment_failed(c->segment)) /* it may have said why before it went */
            return adopt(c);
        char where[128];
        describe_position(c, r, where, sizeof where);
        return ls_group_lose(c, LS_PEER_LOST, "rank %d (pid %d on host %s) is gone; %s", r, (int)p->pid, p->host,
                             where);
    }
    return LS_OK;
}

/* A rank that waits for anyone has nobody to name. But one that hears of no other for longer than the deadline, while they
 * would tell once a second where they are, is cut off. Those who can be named are named first. */
static enum ls_status look_for_company(struct ls_comm *c, double now)
{
    double heard = 0, gap = now - c->watched;
    if (!c->heartbeats || c->locals > 1 || atomic_load(&c->closing))
        return LS_OK;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && c->peers[r].heard > heard)
            heard = c->peers[r].heard;
    if (heard > c->heard || c->company == 0)
        c->company = now;
    else if (gap > LOOK + LS_STOPPED)
        c->company += gap;
    c->heard = heard;
    if (now < ls_group_limit(c, c->company) + SILENT)
        return LS_OK;
    return ls_group_lose(
        c, LS_PEER_LOST,
        "rank %d (host %s) has heard of no other rank for %.3g s; its network is down, or all others are", c->rank,
        c->peers[c->rank].host, now - c->company);
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
    if (now - c->watched >= LOOK) {
        LS_TRY(look_for_company(c, now));
        c->watched = now;
        LS_TRY(look_for_dead(c));
        LS_TRY(ls_mark_look(c));
    }
    LS_TRY(ls_heartbeat_progress(c));
    return answer(c);
}

double ls_group_limit(const struct ls_comm *c, double since)
{
    int64_t allowed = atomic_load(&c->allowed);
    if (c->segment) {
        int64_t there = atomic_load(&c->segment->head->allowed);
        allowed = there > allowed ? there : allowed;
    }
    double later = 1e-9 * (double)allowed;
    return (later > since ? later : since) + c->o.deadline;
}

/* --- waiting ---------------------------------------------------------------------------------------------------- */

static bool any_missing(struct ls_comm *c, ls_missing *missing, const void *context)
{
    bool any = false, all_excused = true;
    memset(c->missing, 0, (size_t)c->size * sizeof *c->missing);
    missing(c, context, c->missing);
    for (int r = 0; r < c->size; r++) {
        any |= c->missing[r];
        all_excused &= !c->missing[r] || excused(c, r);
    }
    return any && !all_excused;
}

static enum ls_status look_around(struct ls_comm *c, struct ls_wait *p, ls_missing *missing, const void *context)
{
    LS_TRY(ls_group_check(c));
    double beyond = ls_now() - ls_group_limit(c, p->since);
    if (beyond < 0 || !any_missing(c, missing, context))
        return LS_OK;
    return ls_group_blame(c, beyond);
}

void ls_group_wake(struct ls_comm *c)
{
    uint64_t one = 1;
    ls_doorbell_wake(c->doorbell); /* with a fence in it */
    if (atomic_load_explicit(&c->polling, memory_order_relaxed) && write(c->event, &one, sizeof one) < 0)
        ls_note("the communication thread was not woken: %s", strerror(errno));
}

uint32_t ls_group_prepare_sleep(struct ls_comm *c, enum ls_sleep how, bool mail)
{
    if (mail && c->event >= 0)
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

static void sleep_a_little(struct ls_comm *c, const struct ls_wait *p)
{
    bool asks = c->polled && c->event < 0 ? p->mail || c->p2p.head : c->polled && !p->mail && c->p2p.head;
    ls_group_sleep(c, p->rung, asks ? p->nap : LOOK);
}

/* Time in which this process did not run (a debugger, a suspended machine) is nobody else's fault. */
static double look_at_clock(struct ls_wait *p)
{
    double now = ls_now();
    if (p->since == 0)
        p->since = now;
    if (p->seen > 0 && now - p->seen > LOOK + LS_STOPPED)
        p->since += now - p->seen;
    p->seen = now;
    return now;
}

/* So that others can tell who holds up whom. */
static void say_whom(struct ls_comm *c, ls_missing *missing, const void *context)
{
    int rank = 0;
    any_missing(c, missing, context);
    while (rank < c->size && !c->missing[rank])
        rank++;
    ls_group_waits(c, rank < c->size ? rank : -1);
}

enum ls_status ls_wait_step(struct ls_comm *c, struct ls_wait *p, ls_missing *missing, const void *context)
{
    if (p->prepared) {
        sleep_a_little(c, p);
        look_at_clock(p);
        p->prepared = false;
        p->steps = 0;
        return look_around(c, p, missing, context);
    }
    double now = look_at_clock(p);
    if (p->steps++ == 0) {
        p->began = now;
        p->nap = p->nap == 0 ? NAP_LEAST : p->nap < NAP_MOST ? 1.5 * p->nap : NAP_MOST;
    }
    if (ls_p2p_progress(c))
        return LS_OK;
    double spun = now - p->began;
    if (p->steps < SPIN_LEAST || spun < (c->driver == 1 ? SPIN_HELPER : SPIN_THREAD)) {
        if (c->crowded || spun > SPIN_THREAD)
            sched_yield(); /* whoever is waited for may want this core */
        else
            relax();
        return LS_OK;
    }
    if (!p->said)
        say_whom(c, missing, context);
    p->said = true;
    p->rung = ls_group_prepare_sleep(c, LS_ASLEEP, p->mail);
    p->prepared = true;
    return LS_OK;
}

void ls_wait_end(struct ls_comm *c, struct ls_wait *p)
{
    if (p->prepared)
        ls_group_cancel_sleep(c);
    if (p->said)
        ls_group_waits(c, -1);
    p->prepared = p->said = false;
}
