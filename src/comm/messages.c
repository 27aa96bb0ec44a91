/* Messages of a collective. The first message between two ranks in a collective travels in an envelope with the mark
 * (COMM-5). A message that is too long for the envelope follows it under another tag. */
#include "base/system/clock.h"
#include "base/log.h"
#include "comm/group.h"

#include <string.h>

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

static enum ls_status send_envelope(struct ls_comm *c, const struct ls_message *m)
{
    struct ls_envelope *e = m->envelope;
    size_t packed = m->apart ? 0 : m->bytes;
    memcpy(e->room, &c->mark, sizeof c->mark);
    if (packed > 0)
        memcpy(e->room + sizeof c->mark, m->data, packed);
    LS_TRY(c->channel->send(c->channel_state, m->peer, LS_TAG_MARK, e->room, sizeof c->mark + packed, &e->request));
    e->under_way = true;
    return LS_OK;
}

/* There is room for any packed message, so that one of another size is received and reported. */
static enum ls_status receive_envelope(struct ls_comm *c, const struct ls_message *m)
{
    struct ls_envelope *e = m->envelope;
    const size_t room = sizeof c->mark + LS_PACKED;
    LS_TRY(c->channel->receive(c->channel_state, m->peer, LS_TAG_MARK, e->room, room, &e->request));
    e->under_way = true;
    return LS_OK;
}

enum ls_status ls_message_send(struct ls_comm *c, int rank, const void *data, size_t bytes)
{
    struct ls_message *m = NULL;
    enum ls_status st;
    LS_TRY(next_message(c, rank, (void *)(uintptr_t)data, bytes, false, &m));
    st = m->envelope ? send_envelope(c, m) : LS_OK;
    if (st == LS_OK && m->apart)
        st = c->channel->send(c->channel_state, rank, LS_TAG_COLLECTIVE, data, bytes, &m->request);
    m->under_way = st == LS_OK;
    return ls_group_check_peer(c, st, rank);
}

enum ls_status ls_message_receive(struct ls_comm *c, int rank, void *data, size_t bytes)
{
    struct ls_message *m = NULL;
    enum ls_status st;
    LS_TRY(next_message(c, rank, data, bytes, true, &m));
    st = m->envelope ? receive_envelope(c, m) : LS_OK;
    if (st == LS_OK && m->apart)
        st = c->channel->receive(c->channel_state, rank, LS_TAG_COLLECTIVE, data, bytes, &m->request);
    m->under_way = st == LS_OK;
    return ls_group_check_peer(c, st, rank);
}

struct interval {
    int first, last;
};

static void mark_senders(const struct ls_comm *c, const void *context, bool *missing)
{
    const struct interval *s = context;
    for (int i = s->first; i < s->last; i++)
        if (c->messages[i].under_way)
            missing[c->messages[i].peer] = true;
}

static enum ls_status wrong_length(const struct ls_message *m, size_t found)
{
    return ls_fail(LS_FAILED, "rank %d sent %zu bytes in a collective where %zu were expected; is it another version?",
                   m->peer, found, m->bytes);
}

static enum ls_status open_envelope(struct ls_comm *c, const struct ls_message *m)
{
    const struct ls_envelope *e = m->envelope;
    struct ls_mark its;
    const void *packed;
    size_t bytes;
    if (e->request.too_long || !ls_mark_read(e->room, e->request.bytes, &its, &packed, &bytes))
        return wrong_length(m, e->request.bytes);
    LS_TRY(ls_mark_check(c, m->peer, &its));
    if (bytes != (m->apart ? 0 : m->bytes))
        return wrong_length(m, bytes);
    if (bytes > 0)
        memcpy(m->data, packed, bytes);
    return LS_OK;
}

static enum ls_status test_envelope(struct ls_comm *c, const struct ls_message *m)
{
    struct ls_envelope *e = m->envelope;
    bool done = false;
    enum ls_status st = c->channel->test(c->channel_state, &e->request, &done);
    LS_TRY(ls_group_check_peer(c, st, e->request.peer));
    e->under_way = !done;
    return done && m->coming ? open_envelope(c, m) : LS_OK;
}

/* The envelope is checked first: a message of the wrong length belongs to another collective, and the mark identifies
 * that one. */
static enum ls_status test_message(struct ls_comm *c, struct ls_message *m)
{
    bool done = !m->apart;
    if (!m->under_way)
        return LS_OK;
    if (m->envelope && m->envelope->under_way)
        LS_TRY(test_envelope(c, m));
    if (m->envelope && m->envelope->under_way)
        return LS_OK;
    if (m->apart) {
        enum ls_status st = c->channel->test(c->channel_state, &m->request, &done);
        LS_TRY(ls_group_check_peer(c, st, m->request.peer));
    }
    m->under_way = !done;
    if (done && m->apart && m->coming && (m->request.too_long || m->request.bytes != m->bytes))
        return wrong_length(m, m->request.bytes);
    return LS_OK;
}

enum ls_status ls_messages_wait(struct ls_comm *c, int first, int last)
{
    struct ls_wait w = {.for_messages = true};
    struct interval s = {first, last};
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
        LS_TRY_GOTO(end, ls_wait_step(c, &w, mark_senders, &s));
    }
    if (w.since > 0 && last_peer >= 0 && ls_now() - w.since > c->longest_wait) {
        c->longest_wait = ls_now() - w.since;
        c->longest_peer = last_peer;
    }
end:
    ls_wait_end(c, &w);
    return st;
}

void ls_messages_clear(struct ls_comm *c)
{
    for (int i = 0; i < c->n_messages; i++) {
        struct ls_message *m = &c->messages[i];
        if (m->envelope && m->envelope->under_way) {
            c->channel->cancel(c->channel_state, &m->envelope->request);
            m->envelope->under_way = false;
        }
        if (m->under_way && m->apart)
            c->channel->cancel(c->channel_state, &m->request);
    }
    c->n_messages = 0;
}
