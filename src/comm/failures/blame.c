/* Finds the rank that holds up the others, and the words for it (COMM-3). */
#include "base/system/clock.h"
#include "base/log.h"
#include "comm/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A rank of another node is silent when no heartbeat came for this many seconds; one was due every second. */
#define SILENT_REMOTE 2.5
/* A rank of this node is silent when its `alive` time is this old; it is written twice a second. */
#define SILENT_LOCAL 1.2
/* A heartbeat this old is late. */
#define HEARTBEAT_LATE 1.5
/* What a heartbeat reports of the other direction may be a second older than the heartbeat. Where each rank has last heard
 * from this one that long ago, the next heartbeats are awaited. */
#define UNHEARD_DOUBT 2.0
#define UNHEARD_SLACK 1.0
/* A rank that starts, saves or evaluates may take this many deadlines. */
#define LONG_WORK 20

static bool same_node(const struct ls_comm *c, int rank)
{
    return c->peers[rank].node == c->peers[c->rank].node;
}

/* --- names ------------------------------------------------------------------------------------------------------ */

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

/* What the missing ranks were to do: "come to bucket 2 of step 7". */
static void describe_work(const struct ls_comm *c, char *text, size_t room)
{
    const struct ls_work *w = c->current;
    uint64_t step = w && w->step == 0 ? ls_comm_where(c, c->rank).step : w ? w->step : 0;
    if (!w)
        snprintf(text, room, "connect");
    else if (w->kind <= LS_WORK_COLLECT && w->bucket >= 0)
        snprintf(text, room, "come to bucket %d of step %" PRIu64, w->bucket, step);
    else if (w->kind == LS_WORK_SEND || w->kind == LS_WORK_RECEIVE)
        snprintf(text, room, "%s a message (tag %u, step %" PRIu64 ")", w->kind == LS_WORK_SEND ? "take" : "send",
                 w->tag, step);
    else
        snprintf(text, room, "come to the %s at step %" PRIu64, ls_work_name(w->kind), step);
}

/* "rank 2 (host b)", "ranks 1 (host a), 2 (host b)": those marked in c->missing. */
static void describe_ranks(const struct ls_comm *c, char *text, size_t room)
{
    size_t used = 0;
    int count = 0, written = 0;
    for (int r = 0; r < c->size; r++)
        count += c->missing[r];
    used = (size_t)snprintf(text, room, "rank%s ", count == 1 ? "" : "s");
    for (int r = 0; r < c->size && used < room; r++)
        if (c->missing[r]) {
            int n = snprintf(text + used, room - used, "%s%d (host %s%s)", written++ ? ", " : "", r, c->peers[r].host,
                             c->peers[r].title);
            used += n > 0 ? (size_t)n : 0;
        }
}

/* The text is sent to every rank, so it names the rank that observed this. */
void ls_blame_describe(const struct ls_comm *c, int rank, char *text, size_t room)
{
    struct ls_position p = ls_comm_where(c, rank);
    double heard = ls_now() - c->peers[rank].heard;
    if (!same_node(c, rank) && heard > SILENT_REMOTE && p.stage == LS_STAGE_START)
        snprintf(text, room, "rank %d last heard from it %.0f s ago, when it was starting", c->rank, heard);
    else if (!same_node(c, rank) && heard > SILENT_REMOTE)
        snprintf(text, room, "rank %d last heard from it %.0f s ago, when it was %s in step %" PRIu64, c->rank, heard,
                 ls_stage_name(p.stage), p.step);
    else if (p.stage == LS_STAGE_START)
        snprintf(text, room, "it was still starting %.0f s ago", p.age);
    else
        snprintf(text, room, "it was last seen %s in step %" PRIu64 " %.0f s ago", ls_stage_name(p.stage), p.step,
                 p.age);
}

/* --- what is known of a rank ------------------------------------------------------------------------------------ */

/* Seconds since the rank last gave a sign of life. */
static double quiet(const struct ls_comm *c, int rank)
{
    const struct ls_peer *p = &c->peers[rank];
    if (rank == c->rank)
        return 0;
    if (!same_node(c, rank))
        return ls_now() - p->heard;
    return c->segment ? 1e-9 * (double)(ls_clock_ns() - atomic_load(&ls_shm_slot(c->segment, p->local)->alive)) : 0;
}

/* Seconds after which a quiet rank is silent. */
static double silence(const struct ls_comm *c, int rank)
{
    double least = same_node(c, rank) ? SILENT_LOCAL : SILENT_REMOTE;
    return c->o.deadline / 2 > least ? c->o.deadline / 2 : least;
}

/* A silent rank does not run or cannot be reached. A rank that kept others waiting for the deadline has been quiet for
 * about as long; a shorter silence is that of a busy machine. */
static bool silent(const struct ls_comm *c, int rank)
{
    return quiet(c, rank) > silence(c, rank);
}

/* Starting (which may measure kernels), saving and evaluating take long. A rank that does one of them and gives signs of
 * life is not blamed. */
static bool excused(const struct ls_comm *c, int rank)
{
    struct ls_position p = ls_comm_where(c, rank);
    bool long_work = p.stage == LS_STAGE_START || p.stage == LS_STAGE_SAVE || p.stage == LS_STAGE_EVALUATE;
    return long_work && !silent(c, rank) && p.age < LONG_WORK * c->o.deadline;
}

/* The rank has not yet begun the collective in which this rank waits. */
static bool behind(const struct ls_comm *c, int rank)
{
    const struct ls_peer *p = &c->peers[rank];
    bool collective = c->current && c->current->kind < LS_WORK_SEND;
    if (!collective || rank == c->rank)
        return false;
    if (!same_node(c, rank))
        return p->collective < c->collective;
    return c->segment && atomic_load(&ls_shm_slot(c->segment, p->local)->collective) < c->collective;
}

/* The rank for which `rank` waits; -1: none. */
static int waits_for(const struct ls_comm *c, int rank)
{
    const struct ls_peer *p = &c->peers[rank];
    int waits = p->waits;
    if (same_node(c, rank))
        waits = c->segment ? atomic_load(&ls_shm_slot(c->segment, p->local)->waits) : 0;
    return waits <= c->size ? waits - 1 : -1;
}

/* --- whom to blame ---------------------------------------------------------------------------------------------- */

typedef bool test_rank(const struct ls_comm *c, int rank);

/* If any of these ranks (NULL: all) passes the test, c->missing becomes the set of those that do. */
static bool select_missing(struct ls_comm *c, const bool *among, test_rank *test)
{
    bool found = false;
    for (int r = 0; r < c->size; r++)
        found |= (!among || among[r]) && test(c, r);
    for (int r = 0; found && r < c->size; r++)
        c->missing[r] = (!among || among[r]) && test(c, r);
    return found;
}

/* Follows "A waits for B" from this rank to the last one. absent: only through ranks that have not begun the collective.
 * In a cycle one rank is stalled and its "waits for" is stale: *cycle is set, and the rank that was quiet longest is
 * returned. */
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

/* Seconds since any rank of another node was heard, when all of them are silent and there are at least two other nodes:
 * this node's network is down more likely than all of theirs. 0: that is not so. */
static double cut_off(const struct ls_comm *c)
{
    double least = 0;
    for (int r = 0; r < c->size && c->nodes > 2; r++) {
        if (same_node(c, r))
            continue;
        if (!silent(c, r))
            return 0;
        if (least == 0 || quiet(c, r) < least)
            least = quiet(c, r);
    }
    return least;
}

/* There are at least two other nodes, and nothing shows that a rank on them has heard this one within `seconds`. */
static bool unheard_by_all(const struct ls_comm *c, double seconds)
{
    for (int r = 0; r < c->size; r++)
        if (!same_node(c, r) && c->peers[r].unheard + quiet(c, r) < seconds)
            return false;
    return c->nodes > 2;
}

/* A heartbeat is late, and its rank may turn out to be silent as well. */
static bool more_may_be_silent(const struct ls_comm *c)
{
    for (int r = 0; r < c->size; r++)
        if (!same_node(c, r) && !silent(c, r) && quiet(c, r) > HEARTBEAT_LATE)
            return true;
    return false;
}

/* Replaces c->missing by the ranks to blame. They are silent, or have not begun the collective, or are where the chain of
 * waiting ranks ends. False: this is not certain yet. In a cycle, while heartbeats are late, or when a rank has only just
 * come to its position, a later look decides. */
static bool find_cause(struct ls_comm *c, double waited)
{
    bool cycle = false, clear = true, absent = select_missing(c, NULL, behind);
    memset(c->ends, 0, (size_t)c->size * sizeof *c->ends);
    for (int r = 0; r < c->size; r++)
        if (c->missing[r])
            c->ends[chain_end(c, r, absent, &cycle)] = true;
    if (select_missing(c, c->ends, silent) || select_missing(c, NULL, silent))
        return !more_may_be_silent(c) && !unheard_by_all(c, UNHEARD_DOUBT);
    memcpy(c->missing, c->ends, (size_t)c->size * sizeof *c->missing);
    for (int r = 0; r < c->size; r++)
        if (c->ends[r]) {
            clear &= waited > SILENT_REMOTE || same_node(c, r);
            clear &= absent || ls_comm_where(c, r).age > c->o.deadline / 2;
        }
    return clear && !cycle && !unheard_by_all(c, UNHEARD_DOUBT);
}

enum ls_status ls_blame_network(struct ls_comm *c, double seconds)
{
    return ls_group_lose(
        c, LS_PEER_LOST,
        "rank %d (host %s) has not heard from any other host for %.3g s: its network is down, or all others are",
        c->rank, c->peers[c->rank].host, seconds);
}

/* The ranks marked in c->missing did not do `what` in time. */
static enum ls_status name_missing(struct ls_comm *c, const char *what)
{
    char who[160], where[128], it[32] = "", waits[48] = "";
    int first = -1, count = 0;
    for (int r = 0; r < c->size; r++)
        if (c->missing[r]) {
            first = first < 0 ? r : first;
            count++;
        }
    if (first < 0)
        return ls_group_lose(c, LS_PEER_LOST, "the group did not %s within %.3g s", what, c->o.deadline);
    if (cut_off(c) > 0)
        return ls_blame_network(c, cut_off(c));
    if (unheard_by_all(c, silence(c, first) + UNHEARD_SLACK))
        return ls_group_lose(c, LS_PEER_LOST,
                             "no other host hears rank %d (host %s): packets that it sends do not arrive", c->rank,
                             c->peers[c->rank].host);
    describe_ranks(c, who, sizeof who);
    ls_blame_describe(c, first, where, sizeof where);
    if (count > 1)
        snprintf(it, sizeof it, "rank %d: ", first);
    if (!silent(c, first) && waits_for(c, first) >= 0) /* perhaps the link between these two has failed */
        snprintf(waits, sizeof waits, ", and waits for rank %d", waits_for(c, first));
    return ls_group_lose(c, LS_PEER_LOST, "%s did not %s within %.3g s; %s%s%s", who, what, c->o.deadline, it, where,
                         waits);
}

bool ls_blame_excused(const struct ls_comm *c)
{
    bool any = false, all = true;
    for (int r = 0; r < c->size; r++) {
        any |= c->missing[r];
        all &= !c->missing[r] || excused(c, r);
    }
    return any && all;
}

enum ls_status ls_blame(struct ls_comm *c, double beyond)
{
    char what[96];
    /* After this time a rank that has stopped is silent. */
    double grace = c->o.deadline / 2 > SILENT_REMOTE ? c->o.deadline / 2 : SILENT_REMOTE;
    if (!find_cause(c, c->o.deadline + beyond) && beyond < grace)
        return LS_OK;
    if (ls_blame_excused(c))
        return LS_OK;
    describe_work(c, what, sizeof what);
    return name_missing(c, what);
}

/* --- a wait outside this folder (ls_comm_overdue) ------------------------------------------------------------------ */

static bool computes(enum ls_stage stage)
{
    return stage >= LS_STAGE_COMPUTE && stage <= LS_STAGE_UPDATE;
}

/* The rank has been before this rank's step for longer than the deadline, or is silent. Ranks save and evaluate between
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
        atomic_store(&c->asked, true); /* the driver answers: only it may send */
    return ls_comm_broken(c);
}

enum ls_status ls_blame_overdue(struct ls_comm *c)
{
    char what[64];
    double least = c->nodes > 1 && c->o.deadline < SILENT_REMOTE ? SILENT_REMOTE : c->o.deadline;
    if (!atomic_exchange(&c->asked, false) || c->current)
        return LS_OK;
    struct ls_position me = ls_comm_where(c, c->rank);
    if (me.age < least || !select_missing(c, NULL, late)) /* this rank has gone on, or no rank is late */
        return LS_OK;
    snprintf(what, sizeof what, "come through step %" PRIu64, me.step);
    return name_missing(c, what);
}
