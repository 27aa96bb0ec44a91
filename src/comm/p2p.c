/* Point-to-point messages: LS_WORK_SEND and LS_WORK_RECEIVE. */
#include "base/log.h"
#include "comm/group.h"

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
    enum ls_status st = c->channel->test(c->channel_state, r, done);
    LS_TRY(ls_group_check_peer(c, st, r->peer)); /* test sets the peer of a receive from any rank */
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
        ls_work_trace(c, w);
        ls_usage_count(c, w, 0);
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
