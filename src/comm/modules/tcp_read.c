/* Reading, and matching messages with receives. */
#define _GNU_SOURCE
#include "base/log.h"
#include "comm/modules/tcp_group.h"

#include <errno.h>
#include <sys/socket.h>

bool ls_tcp_grant(struct ls_tcp_group *g, struct ls_transfer *t, int peer, uint64_t id, uint64_t bytes)
{
    if (bytes > t->size) {
        ls_transfer_received(t, peer, bytes, true);
        return ls_tcp_answer(&g->peers[peer], LS_TCP_DENY, id, 0);
    }
    t->stage = LS_TRANSFER_ARRIVING;
    t->size = bytes;
    t->peer = peer;
    t->id = ++g->last_id;
    ls_transfer_queue_add(&g->arriving, t);
    return ls_tcp_answer(&g->peers[peer], LS_TCP_GRANT, id, t->id);
}

static bool open_piece(struct ls_tcp_group *g, int rank, struct ls_tcp_frame *f)
{
    struct ls_transfer *t = ls_transfer_queue_find(&g->arriving, f->head.id, rank);
    f->left = f->head.bytes;
    f->transfer = t;
    f->data = t ? t->data + t->moved : NULL;
    return f->left > 0 && f->left <= LS_TCP_PIECE_MOST && (!t || f->left <= t->size - t->moved);
}

/* A GRANT or DENY. */
static void take_grant(struct ls_tcp_peer *p, const struct ls_tcp_record *r, int rank)
{
    struct ls_transfer *t = ls_transfer_queue_find(&p->asked, r->id, rank);
    if (!t)
        return; /* cancelled */
    ls_transfer_queue_remove(&p->asked, t);
    t->other = r->bytes;
    t->stage = r->kind == LS_TCP_GRANT ? LS_TRANSFER_GRANTED : LS_TRANSFER_DONE;
    if (r->kind == LS_TCP_GRANT)
        ls_transfer_queue_add(&p->granted, t);
}

static bool take_ask(struct ls_tcp_group *g, int rank, const struct ls_tcp_record *r)
{
    if (r->bytes <= LS_TCP_SHORT_MOST)
        return false;
    struct ls_transfer *t = ls_transfer_queue_match(&g->receives, rank, r->tag);
    return t ? ls_tcp_grant(g, t, rank, r->id, r->bytes)
             : ls_unexpected_keep(&g->unexpected, rank, r->tag, r->id, r->bytes, NULL);
}

/* The record is complete. False: it is not valid, or there is no memory. */
static bool open_frame(struct ls_tcp_group *g, int rank)
{
    struct ls_tcp_peer *p = &g->peers[rank];
    struct ls_tcp_frame *f = &p->coming;
    const struct ls_tcp_record *r = &f->head;
    switch (r->kind) {
    case LS_TCP_SHORT:
        f->data = p->box;
        f->left = r->bytes;
        return r->bytes <= LS_TCP_SHORT_MOST;
    case LS_TCP_PIECE:
        return open_piece(g, rank, f);
    case LS_TCP_ASK:
        return take_ask(g, rank, r);
    case LS_TCP_GRANT:
    case LS_TCP_DENY:
        take_grant(p, r, rank);
        return true;
    case LS_TCP_GOODBYE:
        return p->goodbye = true;
    default:
        return false;
    }
}

/* The data is complete. False: there is no memory. */
static bool close_frame(struct ls_tcp_group *g, int rank)
{
    struct ls_tcp_peer *p = &g->peers[rank];
    struct ls_tcp_frame f = p->coming;
    struct ls_transfer *t = f.transfer;
    p->coming = (struct ls_tcp_frame){0};
    if (f.head.kind == LS_TCP_SHORT) {
        t = ls_transfer_queue_match(&g->receives, rank, f.head.tag);
        if (!t)
            return ls_unexpected_keep(&g->unexpected, rank, f.head.tag, 0, f.head.bytes, p->box);
        ls_transfer_take_short(t, rank, p->box, f.head.bytes);
    } else if (t) {
        t->moved += f.head.bytes;
        if (t->moved == t->size) {
            ls_transfer_queue_remove(&g->arriving, t);
            ls_transfer_received(t, rank, t->size, false);
        }
    }
    return true;
}

/* n bytes have come. False: they are not valid, or there is no memory. */
static bool advance(struct ls_tcp_group *g, int rank, size_t n)
{
    struct ls_tcp_frame *f = &g->peers[rank].coming;
    if (f->moved < sizeof f->head) {
        f->moved += n;
        if (f->moved == sizeof f->head && !open_frame(g, rank))
            return false;
    } else {
        f->left -= n;
        f->data = f->data ? f->data + n : NULL;
    }
    return f->moved < sizeof f->head || f->left > 0 || close_frame(g, rank);
}

bool ls_tcp_read(struct ls_tcp_group *g, int rank)
{
    struct ls_tcp_peer *p = &g->peers[rank];
    struct ls_tcp_frame *f = &p->coming;
    bool head = f->moved < sizeof f->head;
    char *to = head ? (char *)&f->head + f->moved : f->data ? f->data : p->box;
    size_t room = head ? sizeof f->head - f->moved : f->left;
    if (!head && !f->data && room > sizeof p->box)
        room = sizeof p->box;
    ssize_t n = recv(p->in, to, room, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    bool good = n > 0 && advance(g, rank, (size_t)n);
    if (n > 0 && !good)
        ls_note("rank %d sent a record that is not valid; its connection is closed", rank);
    if (!good)
        ls_tcp_lose(g, rank);
    return good;
}
