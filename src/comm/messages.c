/* Messages: those of a collective (messages), and those that others post (LS_WORK_SEND, LS_WORK_RECEIVE). */
#include "base/clock.h"
#include "base/log.h"
#include "comm/group.h"

#include <string.h>

/* --- messages ------------------------------------------------------------------------------------------------------ */

/* The first message to or from a rank in a collective goes in an envelope with the mark (C5). What is too long for it
 * follows at once, under a tag of its own. */
static enum ls_status next_message(struct ls_comm *c, int rank, void *data, size_t bytes, bool coming,
                                   struct ls_message **message)
{
    struct ls_envelope *e = &c->envelopes[coming ? c->size + rank : rank];
    if (c->n_messages == c->message_room)
        return ls_fail(LS_FAILED, "a collective needs more than %d messages", c->message_room);
    if (e->collective == c->collective)
        e = NULL;
    *message = &c->messages[c->n_messages++];
    **message = (struct ls_message){
        .peer = rank, .data = data, .bytes = bytes, .envelope = e, .coming = coming, .apart = !e || bytes > LS_PACKED};
    if (e)
        e->collective = c->collective;
    return LS_OK;
}

enum ls_status ls_group_check_peer(struct ls_comm *c, enum ls_status st, int peer)
{
    if (st == LS_PEER_LOST && peer >= 0 && peer < c->size) {
        LS_TRY(ls_group_check(c)); /* perhaps it has said why */
        return ls_group_lose(c, LS_PEER_LOST, "rank %d (host %s) is gone: its connection has ended", peer,
                             c->peers[peer].host);
    }
    return st;
}

static enum ls_status send_envelope(struct ls_comm *c, const struct ls_message *l)
{
    struct ls_envelope *e = l->envelope;
    size_t packed = l->apart ? 0 : l->bytes;
    memcpy(e->room, &c->mark, sizeof c->mark);
    if (packed > 0)
        memcpy(e->room + sizeof c->mark, l->data, packed);
    LS_TRY(c->channel->send(c->channel_state, l->peer, LS_TAG_MARK, e->room, sizeof c->mark + packed, &e->request));
    e->under_way = true;
    return LS_OK;
}

/* It has room for any other, so that a message of another size is never cut off. */
static enum ls_status receive_envelope(struct ls_comm *c, const struct ls_message *l)
{
    struct ls_envelope *e = l->envelope;
    const size_t room = sizeof c->mark + LS_PACKED;
    LS_TRY(c->channel->receive(c->channel_state, l->peer, LS_TAG_MARK, e->room, room, &e->request));
    e->under_way = true;
    return LS_OK;
}

enum ls_status ls_message_send(struct ls_comm *c, int rank, const void *data, size_t bytes)
{
    struct ls_message *l = NULL;
    enum ls_status st;
    LS_TRY(next_message(c, rank, (void *)(uintptr_t)data, bytes, false, &l));
    st = l->envelope ? send_envelope(c, l) : LS_OK;
    if (st == LS_OK && l->apart)
        st = c->channel->send(c->channel_state, rank, LS_TAG_COLLECTIVE, data, bytes, &l->request);
    l->under_way = st == LS_OK;
    return ls_group_check_peer(c, st, rank);
}

enum ls_status ls_message_receive(struct ls_comm *c, int rank, void *data, size_t bytes)
{
    struct ls_message *l = NULL;
    enum ls_status st;
    LS_TRY(next_message(c, rank, data, bytes, true, &l));
    st = l->envelope ? receive_envelope(c, l) : LS_OK;
    if (st == LS_OK && l->apart)
        st = c->channel->receive(c->channel_state, rank, LS_TAG_COLLECTIVE, data, bytes, &l->request);
    l->under_way = st == LS_OK;
    return ls_group_check_peer(c, st, rank);
}

struct stretch {
    int first, last;
};

static void mark_senders(const struct ls_comm *c, const void *context, bool *missing)
{
    const struct stretch *s = context;
    for (int i = s->first; i < s->last; i++)
        if (c->messages[i].under_way)
            missing[c->messages[i].peer] = true;
}

static enum ls_status wrong_length(const struct ls_message *l, size_t found)
{
    return ls_fail(LS_FAILED, "rank %d sent %zu bytes in a collective where %zu were expected; is it another version?",
                   l->peer, found, l->bytes);
}

static enum ls_status open_envelope(struct ls_comm *c, const struct ls_message *l)
{
    const struct ls_envelope *e = l->envelope;
    struct ls_mark its;
    const void *packed;
    size_t bytes;
    if (e->request.too_long || !ls_mark_read(e->room, e->request.bytes, &its, &packed, &bytes))
        return wrong_length(l, e->request.bytes);
    LS_TRY(ls_mark_check(c, l->peer, &its));
    if (bytes != (l->apart ? 0 : l->bytes))
        return wrong_length(l, bytes);
    if (bytes > 0)
        memcpy(l->data, packed, bytes);
    return LS_OK;
}

static enum ls_status test_envelope(struct ls_comm *c, const struct ls_message *l)
{
    struct ls_envelope *e = l->envelope;
    bool done = false;
    LS_TRY(ls_group_check_peer(c, c->channel->test(c->channel_state, &e->request, &done), e->request.peer));
    e->under_way = !done;
    return done && l->coming ? open_envelope(c, l) : LS_OK;
}

/* The envelope has the first word: a message of the wrong length belongs to another collective, and the mark says to
 * which. */
static enum ls_status test_message(struct ls_comm *c, struct ls_message *l)
{
    bool done = !l->apart;
    if (!l->under_way)
        return LS_OK;
    if (l->envelope && l->envelope->under_way)
        LS_TRY(test_envelope(c, l));
    if (l->envelope && l->envelope->under_way)
        return LS_OK;
    if (l->apart)
        LS_TRY(ls_group_check_peer(c, c->channel->test(c->channel_state, &l->request, &done), l->request.peer));
    l->under_way = !done;
    if (done && l->apart && l->coming && (l->request.too_long || l->request.bytes != l->bytes))
        return wrong_length(l, l->request.bytes);
    return LS_OK;
}

enum ls_status ls_messages_wait(struct ls_comm *c, int first, int last)
{
    struct ls_wait p = {.mail = true};
    struct stretch s = {first, last};
    enum ls_status st = LS_OK;
    int last_peer = -1;
    for (;;) {
        int left = 0;
        for (int i = first; i < last && st == LS_OK; i++) {
            bool before = c->messages[i].under_way;
            st = test_message(c, &c->messages[i]);
            left += c->messages[i].under_way;
            if (before && !c->messages[i].under_way && c->messages[i].coming)
                last_peer = c->messages[i].peer;
        }
        if (st != LS_OK || left == 0)
            break;
        LS_TRY_GOTO(end, ls_wait_step(c, &p, mark_senders, &s));
    }
    if (p.since > 0 && last_peer >= 0 && ls_now() - p.since > c->longest_wait) {
        c->longest_wait = ls_now() - p.since;
        c->longest_peer = last_peer;
    }
end:
    ls_wait_end(c, &p);
    return st;
}

void ls_messages_clear(struct ls_comm *c)
{
    for (int i = 0; i < c->n_messages; i++) {
        struct ls_message *l = &c->messages[i];
        if (l->envelope && l->envelope->under_way) {
            c->channel->cancel(c->channel_state, &l->envelope->request);
            l->envelope->under_way = false;
        }
        if (l->under_way && l->apart)
            c->channel->cancel(c->channel_state, &l->request);
    }
    c->n_messages = 0;
}

/* --- posted messages ------------------------------------------------------------------------------------------------ */

_Static_assert(sizeof(struct ls_transport_request) <= sizeof(((struct ls_work *)0)->request_room),
               "a work has room for a transport's request");

static struct ls_transport_request *request_of(struct ls_work *w)
{
    return (struct ls_transport_request *)(void *)w->request_room;
}

static enum ls_status begin(struct ls_comm *c, struct ls_work *w)
{
    w->begun = w->posted;
    if (w->kind == LS_WORK_SEND)
        return c->channel->send(c->channel_state, w->peer, w->tag, w->data, w->bytes, request_of(w));
    return c->channel->receive(c->channel_state, w->peer, w->tag, w->data, w->bytes, request_of(w));
}

static enum ls_status test(struct ls_comm *c, struct ls_work *w, bool *done)
{
    struct ls_transport_request *r = request_of(w);
    *done = false;
    LS_TRY(ls_group_check_peer(c, c->channel->test(c->channel_state, r, done), r->peer));
    if (*done && w->kind == LS_WORK_RECEIVE && r->too_long)
        return ls_fail(LS_FAILED, "a message from rank %d is longer than the %zu bytes made ready for it", r->peer,
                       w->bytes);
    if (*done && w->kind == LS_WORK_RECEIVE) {
        w->peer = r->peer;
        w->bytes = r->bytes;
    }
    return LS_OK;
}

enum ls_status ls_p2p_begin(struct ls_comm *c, struct ls_work *w)
{
    enum ls_status st = ls_group_check_peer(c, begin(c, w), w->peer);
    w->next = NULL;
    return st;
}

bool ls_p2p_test(struct ls_comm *c)
{
    bool moved = false;
    struct ls_work *last = NULL, *next;
    for (struct ls_work *w = c->p2p.head; w; w = next) {
        bool done;
        next = w->next;
        enum ls_status st = test(c, w, &done);
        if (st == LS_OK && !done) {
            last = w;
            continue;
        }
        if (last)
            last->next = next;
        else
            c->p2p.head = next;
        if (c->p2p.tail == w)
            c->p2p.tail = last;
        atomic_fetch_sub(&c->pending, 1);
        ls_work_finish(w, st);
        moved = true;
    }
    return moved;
}

void ls_p2p_cancel_all(struct ls_comm *c, enum ls_status status)
{
    while (c->p2p.head) {
        struct ls_work *w = c->p2p.head;
        c->p2p.head = w->next;
        c->channel->cancel(c->channel_state, request_of(w));
        atomic_fetch_sub(&c->pending, 1);
        ls_work_finish(w, status);
    }
    c->p2p.tail = NULL;
}
