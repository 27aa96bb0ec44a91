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

struct beat {
    int32_t rank, status; /* status: LS_OK, or why tells what happened to rank `about` (-1: why names it) */
    int32_t about, bucket, phase, waits;
    uint64_t collective, step;
    struct ls_mark mark;
    double age, allowed; /* seconds in this position; seconds without a deadline from now on */
    char why[LS_BOARD_WHY];
};

struct outgoing {
    struct ls_transport_request request;
    struct beat beat;
    bool under_way;
};

struct ls_beat_box {
    struct ls_transport_request request;
    struct beat beat; /* coming */
    bool under_way, told;
    struct outgoing *beats, *words; /* owned; to each rank */
};

static bool away(const struct ls_comm *c, int rank)
{
    return c->peers[rank].node != c->peers[c->rank].node;
}

static void finish(struct ls_comm *c, struct outgoing *o)
{
    bool done = false;
    if (o->under_way)
        o->under_way = c->post->test(c->post_state, &o->request, &done) == LS_OK && !done;
}

static void send(struct ls_comm *c, struct outgoing *o, int rank, const struct beat *b)
{
    finish(c, o);
    if (o->under_way)
        return; /* it does not take the last one */
    o->beat = *b;
    o->under_way = c->post->send(c->post_state, rank, LS_TAG_BEAT, &o->beat, sizeof o->beat, &o->request) == LS_OK;
}

static struct beat compose(const struct ls_comm *c)
{
    struct ls_position p = ls_comm_where(c, c->rank);
    double left = 1e-9 * (double)(atomic_load(&c->allowed) - ls_clock_ns());
    return (struct beat){.rank = c->rank,
                         .bucket = p.bucket,
                         .phase = (int32_t)p.phase,
                         .waits = atomic_load(c->board ? &ls_board_seat(c->board, c->local)->waits : &c->waits),
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

static enum ls_status take(struct ls_comm *c, struct beat *b)
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
    p->phase = (enum ls_stage)b->phase;
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
    struct ls_beat_box *box = c->beats;
    LS_TRY(c->post->receive(c->post_state, LS_ANY_RANK, LS_TAG_BEAT, &box->beat, sizeof box->beat, &box->request));
    box->under_way = true;
    return LS_OK;
}

void ls_beats_abort(struct ls_comm *c)
{
    char why[LS_BOARD_WHY];
    if (!c->beats || c->beats->told || !atomic_load(&c->aborting))
        return;
    pthread_mutex_lock(&c->queue_lock);
    memcpy(why, c->why, sizeof why);
    pthread_mutex_unlock(&c->queue_lock);
    ls_beats_tell(c, (enum ls_status)atomic_load(&c->aborting), c->rank, why);
}

/* One beat, if there is one. */
static enum ls_status hear(struct ls_comm *c, bool *done)
{
    struct ls_beat_box *box = c->beats;
    enum ls_status st = c->post->test(c->post_state, &box->request, done);
    if (st != LS_OK || *done)
        box->under_way = false;
    if (st == LS_PEER_LOST && atomic_load(&c->closing))
        return LS_OK;
    LS_TRY(ls_group_heard(c, st, box->request.peer));
    if (!*done)
        return LS_OK;
    st = take(c, &box->beat);
    LS_TRY(listen(c));
    return st;
}

enum ls_status ls_beats_move(struct ls_comm *c)
{
    struct ls_beat_box *box = c->beats;
    double now = ls_now();
    bool done = true;
    if (!box)
        return LS_OK;
    if (now - c->beaten >= EVERY) {
        struct beat b = compose(c);
        c->beaten = now;
        for (int r = 0; r < c->size; r++)
            if (away(c, r))
                send(c, &box->beats[r], r, &b);
    }
    while (done && box->under_way)
        LS_TRY(hear(c, &done));
    return LS_OK;
}

void ls_beats_tell(struct ls_comm *c, enum ls_status status, int rank, const char *why)
{
    if (!c->beats || c->beats->told)
        return;
    struct beat b = compose(c);
    c->beats->told = true;
    b.status = status == LS_OK ? LS_FAILED : status;
    b.about = rank;
    snprintf(b.why, sizeof b.why, "%s", why);
    for (int r = 0; r < c->size; r++)
        if (away(c, r))
            send(c, &c->beats->words[r], r, &b);
}

enum ls_status ls_beats_start(struct ls_comm *c)
{
    if (c->nodes == 1)
        return LS_OK;
    c->beats = ls_alloc(1, sizeof *c->beats);
    if (!c->beats)
        return LS_FAILED;
    c->beats->beats = ls_alloc((size_t)c->size, sizeof *c->beats->beats);
    c->beats->words = ls_alloc((size_t)c->size, sizeof *c->beats->words);
    if (!c->beats->beats || !c->beats->words)
        return LS_FAILED;
    for (int r = 0; r < c->size; r++)
        c->peers[r].heard = c->peers[r].since = ls_now();
    return listen(c);
}

void ls_beats_stop(struct ls_comm *c)
{
    struct ls_beat_box *box = c->beats;
    double until = ls_now() + FAREWELL;
    if (!box)
        return;
    if (box->words)
        ls_beats_abort(c);
    bool left = box->words && box->told;
    while (left && ls_now() < until) {
        left = false;
        for (int r = 0; r < c->size; r++) {
            finish(c, &box->words[r]);
            left |= box->words[r].under_way;
        }
    }
    for (int r = 0; box->beats && box->words && r < c->size; r++) {
        if (box->beats[r].under_way)
            c->post->cancel(c->post_state, &box->beats[r].request);
        if (box->words[r].under_way)
            c->post->cancel(c->post_state, &box->words[r].request);
    }
    if (box->under_way)
        c->post->cancel(c->post_state, &box->request);
    ls_free(box->beats);
    ls_free(box->words);
    ls_free(box);
    c->beats = NULL;
}
