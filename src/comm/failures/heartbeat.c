#include "comm/failures/heartbeat.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/group.h"
#include "launch/children/failed_rank.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EVERY 1.0    /* seconds between heartbeats */
#define FAREWELL 1.0 /* seconds at most for the report of a failure to leave */

struct outgoing {
    struct ls_transport_request request;
    struct ls_heartbeat heartbeat;
    bool under_way;
};

struct ls_heartbeats {
    struct ls_transport_request request;
    struct ls_heartbeat heartbeat; /* of the next to arrive */
    bool under_way, reported;      /* reported: this rank's failure was sent */
    struct outgoing *regular;      /* owned; to each rank */
    struct outgoing *last;         /* owned; to each rank: the report of a failure */
};

/* --- the message ------------------------------------------------------------------------------------------------- */

static bool is_duration(double seconds)
{
    return isfinite(seconds) && seconds >= 0;
}

bool ls_heartbeat_valid(const struct ls_heartbeat *h, size_t bytes, int sender, int size)
{
    return bytes == sizeof *h && h->rank == sender && sender >= 0 && sender < size && h->status >= LS_OK &&
           h->status <= LS_INTERRUPTED && h->about >= -1 && h->about < size && h->stage >= LS_STAGE_START &&
           h->stage <= LS_STAGE_END && h->waits >= 0 && h->waits <= size && is_duration(h->age) &&
           is_duration(h->allowed) && is_duration(h->unheard);
}

static struct ls_heartbeat compose(const struct ls_comm *c)
{
    struct ls_position p = ls_comm_where(c, c->rank);
    double left = 1e-9 * (double)(atomic_load(&c->allowed) - ls_clock_ns());
    return (struct ls_heartbeat){.rank = c->rank,
                                 .bucket = p.bucket,
                                 .stage = (int32_t)p.stage,
                                 .waits =
                                     atomic_load(c->segment ? &ls_shm_slot(c->segment, c->local)->waits : &c->waits),
                                 .collective = c->collective,
                                 .mark = c->mark,
                                 .step = p.step,
                                 .age = p.age > 0 ? p.age : 0,
                                 .allowed = left > 0 ? left : 0};
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static bool other_node(const struct ls_comm *c, int rank)
{
    return c->peers[rank].node != c->peers[c->rank].node;
}

static void finish(struct ls_comm *c, struct outgoing *o)
{
    bool done = false;
    if (o->under_way)
        o->under_way = c->channel->test(c->channel_state, &o->request, &done) == LS_OK && !done;
}

/* A rank that has not taken the last one gets no other. */
static void send(struct ls_comm *c, struct outgoing *o, int rank, const struct ls_heartbeat *h)
{
    finish(c, o);
    if (o->under_way)
        return;
    o->heartbeat = *h;
    o->heartbeat.unheard = ls_now() - c->peers[rank].heard;
    o->under_way = c->channel->send(c->channel_state, rank, LS_TAG_HEARTBEAT, &o->heartbeat, sizeof o->heartbeat,
                                    &o->request) == LS_OK;
}

void ls_heartbeat_report(struct ls_comm *c, enum ls_status status, int rank, const char *why)
{
    if (!c->heartbeats || c->heartbeats->reported)
        return;
    struct ls_heartbeat h = compose(c);
    c->heartbeats->reported = true;
    h.status = status == LS_OK ? LS_FAILED : status;
    h.about = rank;
    snprintf(h.why, sizeof h.why, "%s", why);
    for (int r = 0; r < c->size; r++)
        if (other_node(c, r))
            send(c, &c->heartbeats->last[r], r, &h);
}

void ls_heartbeat_report_abort(struct ls_comm *c)
{
    char why[LS_REASON_ROOM];
    if (!c->heartbeats || c->heartbeats->reported || !atomic_load(&c->aborting))
        return;
    pthread_mutex_lock(&c->queue_lock);
    memcpy(why, c->why, sizeof why);
    pthread_mutex_unlock(&c->queue_lock);
    ls_heartbeat_report(c, (enum ls_status)atomic_load(&c->aborting), c->rank, why);
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static enum ls_status receive_next(struct ls_comm *c)
{
    struct ls_heartbeats *all = c->heartbeats;
    LS_TRY(c->channel->receive(c->channel_state, LS_ANY_RANK, LS_TAG_HEARTBEAT, &all->heartbeat, sizeof all->heartbeat,
                               &all->request));
    all->under_way = true;
    return LS_OK;
}

static enum ls_status take(struct ls_comm *c, struct ls_heartbeat *h, const struct ls_transport_request *request)
{
    if (request->too_long || !ls_heartbeat_valid(h, request->bytes, request->peer, c->size))
        return ls_group_lose(c, LS_PEER_LOST,
                             "rank %d sent a damaged heartbeat of %zu bytes: start all ranks with the same version of "
                             "Lockstep",
                             request->peer, request->bytes);
    struct ls_peer *p = &c->peers[h->rank];
    pthread_mutex_lock(&c->queue_lock);
    p->heard = ls_now();
    p->since = p->heard - h->age;
    p->unheard = h->unheard;
    p->collective = h->collective;
    p->step = h->step;
    p->bucket = h->bucket;
    p->stage = (enum ls_stage)h->stage;
    p->waits = h->waits;
    pthread_mutex_unlock(&c->queue_lock);
    ls_deadline_extend(&c->allowed, h->allowed);
    if (h->status == LS_OK)
        return ls_mark_compare(c, h->rank, &h->mark);
    h->why[sizeof h->why - 1] = 0;
    if (h->about >= 0)
        return ls_group_lose(c, LS_PEER_LOST, LS_FAILED_RANK, h->about, c->peers[h->about].host, h->why);
    return ls_group_lose(c, h->status == LS_USAGE ? LS_USAGE : LS_PEER_LOST, "%s", h->why);
}

/* *done: a heartbeat has come, and there may be another. */
static enum ls_status receive_one(struct ls_comm *c, bool *done)
{
    struct ls_heartbeats *all = c->heartbeats;
    enum ls_status st = c->channel->test(c->channel_state, &all->request, done);
    if (st != LS_OK || *done)
        all->under_way = false;
    if (st == LS_PEER_LOST && atomic_load(&c->closing))
        return LS_OK;
    LS_TRY(ls_group_check_peer(c, st, all->request.peer));
    if (!*done)
        return LS_OK;
    st = take(c, &all->heartbeat, &all->request);
    LS_TRY(receive_next(c));
    return st;
}

enum ls_status ls_heartbeat_progress(struct ls_comm *c)
{
    struct ls_heartbeats *all = c->heartbeats;
    double now = ls_now();
    bool done = true;
    if (!all)
        return LS_OK;
    if (now - c->last_heartbeat >= EVERY) {
        struct ls_heartbeat h = compose(c);
        c->last_heartbeat = now;
        for (int r = 0; r < c->size; r++)
            if (other_node(c, r))
                send(c, &all->regular[r], r, &h);
    }
    while (done && all->under_way)
        LS_TRY(receive_one(c, &done));
    return LS_OK;
}

/* --- start and stop ------------------------------------------------------------------------------------------------ */

enum ls_status ls_heartbeat_start(struct ls_comm *c)
{
    c->last_heartbeat = ls_now();
    c->heartbeats = ls_alloc(1, sizeof *c->heartbeats);
    if (!c->heartbeats)
        return LS_FAILED;
    c->heartbeats->regular = ls_alloc((size_t)c->size, sizeof *c->heartbeats->regular);
    c->heartbeats->last = ls_alloc((size_t)c->size, sizeof *c->heartbeats->last);
    if (!c->heartbeats->regular || !c->heartbeats->last)
        return LS_FAILED;
    for (int r = 0; r < c->size; r++)
        c->peers[r].heard = c->peers[r].since = ls_now();
    return receive_next(c);
}

/* Lets the report of a failure leave, for a short time. */
static void flush(struct ls_comm *c)
{
    struct ls_heartbeats *all = c->heartbeats;
    double until = ls_now() + FAREWELL;
    bool left = all->last && all->reported;
    while (left && ls_now() < until) {
        left = false;
        for (int r = 0; r < c->size; r++) {
            finish(c, &all->last[r]);
            left |= all->last[r].under_way;
        }
    }
}

void ls_heartbeat_stop(struct ls_comm *c)
{
    struct ls_heartbeats *all = c->heartbeats;
    if (!all)
        return;
    if (all->last)
        ls_heartbeat_report_abort(c);
    flush(c);
    for (int r = 0; all->regular && all->last && r < c->size; r++) {
        if (all->regular[r].under_way)
            c->channel->cancel(c->channel_state, &all->regular[r].request);
        if (all->last[r].under_way)
            c->channel->cancel(c->channel_state, &all->last[r].request);
    }
    if (all->under_way)
        c->channel->cancel(c->channel_state, &all->request);
    c->stopped_heartbeats = all;
    c->heartbeats = NULL;
}

void ls_heartbeat_release(struct ls_comm *c)
{
    struct ls_heartbeats *all = c->stopped_heartbeats;
    if (!all)
        return;
    ls_free(all->regular);
    ls_free(all->last);
    ls_free(all);
    c->stopped_heartbeats = NULL;
}
