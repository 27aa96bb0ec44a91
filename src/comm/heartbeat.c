/* What ranks of different nodes tell each other besides their work: once a second where they are, and at once when
 * something has failed. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/group.h"

#include <stdio.h>
#include <string.h>

#define EVERY 1.0    /* seconds */
#define FAREWELL 1.0 /* at most, for the last words to get out */

struct heartbeat {
    int32_t rank, status; /* status: LS_OK, or why tells what happened to rank `about` (-1: why names it) */
    int32_t about, bucket, stage, waits;
    uint64_t collective, step;
    struct ls_mark mark;
    double age, allowed; /* seconds in this position; seconds without a deadline from now on */
    char why[LS_REASON_ROOM];
};

struct outgoing {
    struct ls_transport_request request;
    struct heartbeat heartbeat;
    bool under_way;
};

struct ls_heartbeats {
    struct ls_transport_request request;
    struct heartbeat heartbeat; /* coming */
    bool under_way, told;
    struct outgoing *regular, *last; /* owned; to each rank */
};

static bool away(const struct ls_comm *c, int rank)
{
    return c->peers[rank].node != c->peers[c->rank].node;
}

static void finish(struct ls_comm *c, struct outgoing *o)
{
    bool done = false;
    if (o->under_way)
        o->under_way = c->channel->test(c->channel_state, &o->request, &done) == LS_OK && !done;
}

static void send(struct ls_comm *c, struct outgoing *o, int rank, const struct heartbeat *b)
{
    finish(c, o);
    if (o->under_way)
        return; /* it does not take the last one */
    o->heartbeat = *b;
    o->under_way = c->channel->send(c->channel_state, rank, LS_TAG_HEARTBEAT, &o->heartbeat, sizeof o->heartbeat,
                                    &o->request) == LS_OK;
}

static struct heartbeat compose(const struct ls_comm *c)
{
    struct ls_position p = ls_comm_where(c, c->rank);
    double left = 1e-9 * (double)(atomic_load(&c->allowed) - ls_clock_ns());
    return (struct heartbeat){.rank = c->rank,
                              .bucket = p.bucket,
                              .stage = (int32_t)p.stage,
                              .waits = atomic_load(c->segment ? &ls_shm_slot(c->segment, c->local)->waits : &c->waits),
                              .collective = c->collective,
                              .mark = c->mark,
                              .step = p.step,
                              .age = p.age,
                              .allowed = left > 0 ? left : 0};
}

static void allow(struct ls_comm *c, double seconds)
{
    int64_t until = ls_clock_ns() + (int64_t)(1e9 * seconds), now = atomic_load(&c->allowed);
    while (seconds > 0 && until > now && !atomic_compare_exchange_weak(&c->allowed, &now, until))
        ;
}

static enum ls_status take(struct ls_comm *c, struct heartbeat *b)
{
    if (b->rank < 0 || b->rank >= c->size)
        return LS_OK;
    struct ls_peer *p = &c->peers[b->rank];
    pthread_mutex_lock(&c->queue_lock);
    p->heard = ls_now();
    p->since = p->heard - b->age;
    p->collective = b->collective;
    p->step = b->step;
    p->bucket = b->bucket;
    p->stage = (enum ls_stage)b->stage;
    p->waits = b->waits;
    pthread_mutex_unlock(&c->queue_lock);
    allow(c, b->allowed);
    if (b->status == LS_OK)
        return ls_mark_compare(c, b->rank, &b->mark);
    b->why[sizeof b->why - 1] = 0;
    if (b->about >= 0 && b->about < c->size)
        return ls_group_lose(c, LS_PEER_LOST, "rank %d (host %s) has failed: %.300s", b->about, c->peers[b->about].host,
                             b->why);
    return ls_group_lose(c, b->status == LS_USAGE ? LS_USAGE : LS_PEER_LOST, "%s", b->why);
}

static enum ls_status listen(struct ls_comm *c)
{
    struct ls_heartbeats *box = c->heartbeats;
    LS_TRY(c->channel->receive(c->channel_state, LS_ANY_RANK, LS_TAG_HEARTBEAT, &box->heartbeat, sizeof box->heartbeat,
                               &box->request));
    box->under_way = true;
    return LS_OK;
}

void ls_heartbeat_report_abort(struct ls_comm *c)
{
    char why[LS_REASON_ROOM];
    if (!c->heartbeats || c->heartbeats->told || !atomic_load(&c->aborting))
        return;
    pthread_mutex_lock(&c->queue_lock);
    memcpy(why, c->why, sizeof why);
    pthread_mutex_unlock(&c->queue_lock);
    ls_heartbeat_report(c, (enum ls_status)atomic_load(&c->aborting), c->rank, why);
}

/* One heartbeat, if there is one. */
static enum ls_status hear(struct ls_comm *c, bool *done)
{
    struct ls_heartbeats *box = c->heartbeats;
    enum ls_status st = c->channel->test(c->channel_state, &box->request, done);
    if (st != LS_OK || *done)
        box->under_way = false;
    if (st == LS_PEER_LOST && atomic_load(&c->closing))
        return LS_OK;
    LS_TRY(ls_group_check_peer(c, st, box->request.peer));
    if (!*done)
        return LS_OK;
    st = take(c, &box->heartbeat);
    LS_TRY(listen(c));
    return st;
}

enum ls_status ls_heartbeat_progress(struct ls_comm *c)
{
    struct ls_heartbeats *box = c->heartbeats;
    double now = ls_now();
    bool done = true;
    if (!box)
        return LS_OK;
    if (now - c->last_heartbeat >= EVERY) {
        struct heartbeat b = compose(c);
        c->last_heartbeat = now;
        for (int r = 0; r < c->size; r++)
            if (away(c, r))
                send(c, &box->regular[r], r, &b);
    }
    while (done && box->under_way)
        LS_TRY(hear(c, &done));
    return LS_OK;
}

void ls_heartbeat_report(struct ls_comm *c, enum ls_status status, int rank, const char *why)
{
    if (!c->heartbeats || c->heartbeats->told)
        return;
    struct heartbeat b = compose(c);
    c->heartbeats->told = true;
    b.status = status == LS_OK ? LS_FAILED : status;
    b.about = rank;
    snprintf(b.why, sizeof b.why, "%s", why);
    for (int r = 0; r < c->size; r++)
        if (away(c, r))
            send(c, &c->heartbeats->last[r], r, &b);
}

enum ls_status ls_heartbeat_start(struct ls_comm *c)
{
    if (c->nodes == 1)
        return LS_OK;
    c->heartbeats = ls_alloc(1, sizeof *c->heartbeats);
    if (!c->heartbeats)
        return LS_FAILED;
    c->heartbeats->regular = ls_alloc((size_t)c->size, sizeof *c->heartbeats->regular);
    c->heartbeats->last = ls_alloc((size_t)c->size, sizeof *c->heartbeats->last);
    if (!c->heartbeats->regular || !c->heartbeats->last)
        return LS_FAILED;
    for (int r = 0; r < c->size; r++)
        c->peers[r].heard = c->peers[r].since = ls_now();
    return listen(c);
}

void ls_heartbeat_stop(struct ls_comm *c)
{
    struct ls_heartbeats *box = c->heartbeats;
    double until = ls_now() + FAREWELL;
    if (!box)
        return;
    if (box->last)
        ls_heartbeat_report_abort(c);
    bool left = box->last && box->told;
    while (left && ls_now() < until) {
        left = false;
        for (int r = 0; r < c->size; r++) {
            finish(c, &box->last[r]);
            left |= box->last[r].under_way;
        }
    }
    for (int r = 0; box->regular && box->last && r < c->size; r++) {
        if (box->regular[r].under_way)
            c->channel->cancel(c->channel_state, &box->regular[r].request);
        if (box->last[r].under_way)
            c->channel->cancel(c->channel_state, &box->last[r].request);
    }
    if (box->under_way)
        c->channel->cancel(c->channel_state, &box->request);
    ls_free(box->regular);
    ls_free(box->last);
    ls_free(box);
    c->heartbeats = NULL;
}
