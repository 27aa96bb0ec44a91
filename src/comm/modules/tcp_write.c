/* Writing: SHORT and ASK leave in the order of their sends and before pieces, so that a long message delays no short
 * one. */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/memory.h"
#include "comm/modules/tcp_group.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CHECK_SECONDS 0.1 /* between looks at what was not acknowledged */

bool ls_tcp_answer(struct ls_tcp_peer *p, enum ls_tcp_kind kind, uint64_t id, uint64_t other)
{
    if (p->n_answers == p->answer_room) {
        size_t room = p->answer_room ? 2 * p->answer_room : 16;
        struct ls_tcp_record *more = ls_alloc(room, sizeof *more);
        if (!more)
            return false;
        if (p->n_answers > 0)
            memcpy(more, p->answers, p->n_answers * sizeof *more);
        ls_free(p->answers);
        p->answers = more;
        p->answer_room = room;
    }
    p->answers[p->n_answers++] = (struct ls_tcp_record){.kind = kind, .id = id, .bytes = other};
    return true;
}

static void begin_send(struct ls_tcp_peer *p, struct ls_tcp_frame *f, struct ls_transfer *t)
{
    bool is_short = t->size <= LS_TCP_SHORT_MOST;
    ls_transfer_queue_remove(&p->sends, t);
    f->head = (struct ls_tcp_record){
        .kind = is_short ? LS_TCP_SHORT : LS_TCP_ASK, .tag = t->tag, .id = t->id, .bytes = t->size};
    f->transfer = is_short ? t : NULL;
    if (!is_short) {
        t->stage = LS_TRANSFER_ASKED;
        ls_transfer_queue_add(&p->asked, t);
    }
}

static void begin_piece(struct ls_tcp_peer *p, struct ls_tcp_frame *f, struct ls_transfer *t)
{
    uint64_t left = t->size - t->moved;
    ls_transfer_queue_remove(&p->granted, t);
    f->head = (struct ls_tcp_record){
        .kind = LS_TCP_PIECE, .id = t->other, .bytes = left < LS_TCP_PIECE_MOST ? left : LS_TCP_PIECE_MOST};
    f->transfer = t;
}

/* Chooses the next frame; false: there is none. */
static bool next_frame(struct ls_tcp_peer *p)
{
    struct ls_tcp_frame *f = &p->going;
    *f = (struct ls_tcp_frame){.busy = true};
    if (p->n_answers > 0) {
        f->head = p->answers[0];
        memmove(p->answers, p->answers + 1, --p->n_answers * sizeof *p->answers);
    } else if (p->sends.head)
        begin_send(p, f, p->sends.head);
    else if (p->granted.head)
        begin_piece(p, f, p->granted.head);
    else
        f->busy = false;
    if (f->transfer) {
        f->data = f->transfer->data + f->transfer->moved;
        f->left = f->head.bytes;
    }
    return f->busy;
}

static void end_frame(struct ls_tcp_peer *p)
{
    struct ls_transfer *t = p->going.transfer;
    p->going.busy = false;
    if (!t)
        return;
    t->moved += p->going.head.bytes;
    if (t->moved < t->size)
        ls_transfer_queue_add(&p->granted, t);
    else
        t->stage = LS_TRANSFER_DONE;
}

/* False: the socket takes no more now. */
static bool write_some(struct ls_tcp_peer *p)
{
    struct ls_tcp_frame *f = &p->going;
    struct iovec parts[2] = {{(char *)&f->head + f->moved, sizeof f->head - f->moved}, {f->data, f->left}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = f->left > 0 ? 2 : 1};
    ssize_t n = sendmsg(p->out, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0) {
        p->mute = errno != EAGAIN && errno != EWOULDBLOCK; /* what the peer sent before is still read */
        return false;
    }
    p->written += (uint64_t)n;
    size_t head = (size_t)n < parts[0].iov_len ? (size_t)n : parts[0].iov_len;
    f->moved += head;
    f->data = f->left > 0 ? f->data + ((size_t)n - head) : NULL;
    f->left -= (size_t)n - head;
    if (f->moved == sizeof f->head && f->left == 0)
        end_frame(p);
    return true;
}

static void watch(struct ls_tcp_group *g, int rank, bool writing)
{
    struct ls_tcp_peer *p = &g->peers[rank];
    if (p->watched == writing || p->lost)
        return;
    struct epoll_event e = {.events = (p->in == p->out ? EPOLLIN : 0u) | (writing ? EPOLLOUT : 0u),
                            .data.u32 = (uint32_t)rank};
    epoll_ctl(g->epoll, EPOLL_CTL_MOD, p->out, &e);
    p->watched = writing;
}

bool ls_tcp_write(struct ls_tcp_group *g, int rank)
{
    struct ls_tcp_peer *p = &g->peers[rank];
    bool moved = false, more = true;
    while (more && !p->mute && (p->going.busy || next_frame(p))) {
        more = write_some(p);
        moved |= more;
    }
    watch(g, rank, p->going.busy && !p->mute);
    return moved;
}

void ls_tcp_orphan(struct ls_tcp_peer *p)
{
    struct ls_tcp_frame *f = &p->going;
    f->transfer = NULL;
    if (f->left == 0)
        return;
    if (!p->rest)
        p->rest = ls_alloc(LS_TCP_PIECE_MOST, 1);
    if (p->rest)
        f->data = memcpy(p->rest, f->data, f->left);
    else
        p->mute = true;
}

/* --- outages ---------------------------------------------------------------------------------------------- */

/* While a network is down, TCP doubles the time before each further attempt, so that a run could miss its deadline though
 * the network came back in time. The kernel makes an attempt no later than the connection's TCP_USER_TIMEOUT, at which it
 * would give up. A timeout that always lies one step ahead makes it try at every step and never give up. A step is 2 s at
 * least, because this process may get no processor for a while. */
static void retry_one(struct ls_tcp_peer *p, double now, double step)
{
    int unacknowledged = 0;
    unsigned timeout = 0;
    if (ioctl(p->out, SIOCOUTQ, &unacknowledged) != 0)
        return;
    uint64_t through = p->written - (uint64_t)unacknowledged;
    bool moves = unacknowledged == 0 || through != p->acknowledged;
    p->acknowledged = through;
    if (moves)
        p->stalled = now;
    if (moves && !p->retrying)
        return;
    if (!moves)
        timeout = (unsigned)(1e3 * (now - p->stalled + step));
    p->retrying = !moves;
    setsockopt(p->out, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
}

void ls_tcp_retry(struct ls_tcp_group *g)
{
    double now = ls_now();
    if (now - g->checked < CHECK_SECONDS)
        return;
    g->checked = now;
    for (int i = 0; i < g->size; i++)
        if (i != g->rank && !g->peers[i].mute)
            retry_one(&g->peers[i], now, g->retry);
}
