/* Transport `tcp`: messages over one TCP connection between any two processes. They find each other by a rendezvous
 * (rendezvous/rendezvous.h) and prove its key (tcp.h). */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/modules/tcp_group.h"
#include "comm/rendezvous/device.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLOSE_SECONDS 2.0
enum { EVENTS = 32 };

void ls_tcp_lose(struct ls_tcp_group *g, int rank)
{
    struct ls_tcp_peer *p = &g->peers[rank];
    if (p->lost)
        return;
    p->lost = p->mute = true;
    if (p->in >= 0)
        epoll_ctl(g->epoll, EPOLL_CTL_DEL, p->in, NULL);
    if (!p->goodbye && g->any_lost < 0)
        g->any_lost = rank;
}

/* True: something was read or written. */
static bool progress(struct ls_tcp_group *g)
{
    struct epoll_event events[EVENTS];
    bool moved = false;
    ls_tcp_retry(g);
    int n = epoll_wait(g->epoll, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        int rank = (int)events[i].data.u32;
        while (!g->peers[rank].lost && ls_tcp_read(g, rank))
            moved = true;
        moved |= ls_tcp_write(g, rank);
    }
    return moved;
}

/* --- messages --------------------------------------------------------------------------------------------- */

/* The rank that is gone: the peer, or, for a receive from any rank, any. -1: none. */
static int lost_peer(const struct ls_tcp_group *g, int peer)
{
    if (peer < 0)
        return g->any_lost;
    return g->peers[peer].lost || g->peers[peer].mute ? peer : -1;
}

static enum ls_status tcp_send(void *state, int peer, uint32_t tag, const void *data, size_t bytes,
                               struct ls_transport_request *request)
{
    struct ls_tcp_group *g = state;
    struct ls_transfer *t = ls_transfer_of(request);
    *t = (struct ls_transfer){.data = (char *)(uintptr_t)data, .size = bytes, .tag = tag, .peer = peer};
    request->peer = peer;
    request->bytes = bytes;
    if (lost_peer(g, peer) >= 0)
        return LS_PEER_LOST;
    t->id = ++g->last_id;
    ls_transfer_queue_add(&g->peers[peer].sends, t);
    ls_tcp_write(g, peer);
    return LS_OK;
}

static enum ls_status tcp_receive(void *state, int peer, uint32_t tag, void *data, size_t room,
                                  struct ls_transport_request *request)
{
    struct ls_tcp_group *g = state;
    struct ls_transfer *t = ls_transfer_of(request);
    *t = (struct ls_transfer){.data = data, .size = room, .tag = tag, .peer = peer, .stage = LS_TRANSFER_POSTED};
    request->peer = peer;
    request->too_long = false;
    struct ls_unexpected *u = ls_unexpected_find(&g->unexpected, t);
    if (!u) {
        ls_transfer_queue_add(&g->receives, t);
        return LS_OK;
    }
    bool good = true;
    if (u->id)
        good = ls_tcp_grant(g, t, u->peer, u->id, u->bytes);
    else
        ls_transfer_take_short(t, u->peer, u->data, u->bytes);
    ls_tcp_write(g, u->peer);
    ls_unexpected_recycle(&g->unexpected, u);
    return good ? LS_OK : LS_FAILED;
}

/* A message that has arrived counts, even if its sender is gone. */
static enum ls_status tcp_test(void *state, struct ls_transport_request *request, bool *done)
{
    struct ls_tcp_group *g = state;
    const struct ls_transfer *t = ls_transfer_of(request);
    while (t->stage != LS_TRANSFER_DONE && progress(g))
        ;
    *done = t->stage == LS_TRANSFER_DONE;
    int gone = *done ? -1 : lost_peer(g, request->peer);
    if (gone < 0)
        return LS_OK;
    request->peer = gone;
    return LS_PEER_LOST;
}

static void tcp_cancel(void *state, struct ls_transport_request *request)
{
    struct ls_tcp_group *g = state;
    struct ls_transfer *t = ls_transfer_of(request);
    if (t->stage == LS_TRANSFER_DONE)
        return;
    ls_transfer_queue_remove(&g->receives, t);
    ls_transfer_queue_remove(&g->arriving, t);
    for (int i = 0; i < g->size; i++) {
        struct ls_tcp_peer *p = &g->peers[i];
        if (i == t->peer) {
            ls_transfer_queue_remove(&p->sends, t);
            ls_transfer_queue_remove(&p->asked, t);
            ls_transfer_queue_remove(&p->granted, t);
        }
        if (p->going.busy && p->going.transfer == t)
            ls_tcp_orphan(p);
        if (p->coming.transfer == t) {
            p->coming.transfer = NULL;
            p->coming.data = NULL;
        }
    }
    t->stage = LS_TRANSFER_DONE;
}

static int tcp_descriptor(void *state)
{
    struct ls_tcp_group *g = state;
    return progress(g) ? -1 : g->epoll;
}

/* --- close ------------------------------------------------------------------------------------------------ */

/* Every rank sends a goodbye and waits for those of all others before it closes, so that messages under way still arrive. */
static void send_goodbyes(struct ls_tcp_group *g)
{
    double until = ls_now() + CLOSE_SECONDS;
    int left;
    for (int i = 0; i < g->size; i++)
        if (i != g->rank && ls_tcp_answer(&g->peers[i], LS_TCP_GOODBYE, 0, 0))
            ls_tcp_write(g, i);
    do {
        left = 0;
        for (int i = 0; i < g->size; i++) {
            const struct ls_tcp_peer *p = &g->peers[i];
            left += i != g->rank && !p->lost && (!p->goodbye || (p->going.busy && !p->mute));
        }
        struct pollfd waiting = {.fd = g->epoll, .events = POLLIN};
        if (left > 0 && !progress(g))
            poll(&waiting, 1, 100);
    } while (left > 0 && ls_now() < until && g->any_lost < 0);
}

/* Unread data would make the kernel reset the connection, and the peer would lose the last messages. */
static void close_socket(int in, int out)
{
    char box[4096];
    shutdown(out, SHUT_WR);
    while (recv(in, box, sizeof box, MSG_DONTWAIT) > 0)
        ;
    if (out != in)
        close(out);
    close(in);
}

static void tcp_close(void *state, bool graceful)
{
    struct ls_tcp_group *g = state;
    if (graceful && g->peers)
        send_goodbyes(g);
    for (int i = 0; g->peers && i < g->size; i++) {
        if (g->peers[i].in >= 0)
            close_socket(g->peers[i].in, g->peers[i].out);
        ls_free(g->peers[i].answers);
        ls_free(g->peers[i].rest);
    }
    ls_unexpected_release(&g->unexpected);
    if (g->epoll >= 0)
        close(g->epoll);
    ls_tcp_close_listener(&g->listener);
    ls_rendezvous_release(&g->rendezvous);
    ls_free(g->peers);
    ls_free(g);
}

/* --- open ------------------------------------------------------------------------------------------------- */

static enum ls_status add_peer(struct ls_tcp_group *g, int rank, int in, int out)
{
    struct ls_tcp_peer *p = &g->peers[rank];
    int one = 1;
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)rank}, quiet = {.data.u32 = (uint32_t)rank};
    p->in = in;
    p->out = out;
    setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(out, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, in, &e) == 0 &&
        (in == out || epoll_ctl(g->epoll, EPOLL_CTL_ADD, out, &quiet) == 0))
        return LS_OK;
    return ls_fail(LS_FAILED, "the connection to rank %d cannot be watched: %s", rank, strerror(errno));
}

static enum ls_status make_peers(struct ls_tcp_group *g)
{
    g->peers = ls_alloc((size_t)g->size, sizeof *g->peers);
    if (!g->peers)
        return LS_FAILED;
    for (int i = 0; i < g->size; i++) {
        struct ls_tcp_peer *p = &g->peers[i];
        p->in = p->out = -1;
        ls_transfer_queue_init(&p->sends);
        ls_transfer_queue_init(&p->asked);
        ls_transfer_queue_init(&p->granted);
    }
    return LS_OK;
}

static enum ls_status connect_all(struct ls_tcp_group *g, double until)
{
    enum ls_status st;
    int own[2];
    int *sockets = ls_alloc((size_t)g->size, sizeof *sockets);
    if (!sockets)
        return LS_FAILED;
    for (int i = 0; i < g->size; i++)
        sockets[i] = -1;
    st = ls_tcp_connect(&g->rendezvous, &g->listener, until, sockets);
    for (int i = 0; i < g->size; i++)
        if (sockets[i] >= 0 && st == LS_OK)
            st = add_peer(g, i, sockets[i], sockets[i]);
        else if (sockets[i] >= 0)
            close_socket(sockets[i], sockets[i]);
    ls_free(sockets);
    LS_TRY(st);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own) != 0)
        return ls_fail(LS_FAILED, "no pair of sockets: %s", strerror(errno));
    return add_peer(g, g->rank, own[0], own[1]);
}

static enum ls_status tcp_open(struct ls_launch *l, double deadline, void **state)
{
    enum ls_status st;
    struct ls_tcp_group *g = ls_alloc(1, sizeof *g);
    if (!g)
        return LS_FAILED;
    g->any_lost = g->listener.socket = -1;
    g->retry = deadline / 4 < 2 ? 2 : deadline / 4 > 10 ? 10 : deadline / 4;
    ls_transfer_queue_init(&g->receives);
    ls_transfer_queue_init(&g->arriving);
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    LS_TRY_GOTO(out, g->epoll >= 0 ? LS_OK : ls_fail(LS_FAILED, "no epoll: %s", strerror(errno)));
    LS_TRY_GOTO(out, ls_unexpected_init(&g->unexpected, LS_TCP_SHORT_MOST, 0));
    LS_TRY_GOTO(out, ls_tcp_listen(l, &g->listener));
    LS_TRY_GOTO(out,
                ls_rendezvous_run(l, "tcp", g->listener.text, g->listener.bytes, ls_now() + deadline, &g->rendezvous));
    l->rank = g->rank = g->rendezvous.rank;
    l->size = g->size = g->rendezvous.size;
    LS_TRY_GOTO(out, make_peers(g));
    LS_TRY_GOTO(out, connect_all(g, ls_now() + deadline));
    ls_tcp_close_listener(&g->listener);
    ls_rendezvous_clean(&g->rendezvous);
    if (g->rank == 0 && ls_device_has_rdma())
        ls_note("this host has RDMA devices; --transport ucx uses them");
    *state = g;
    return LS_OK;
out:
    tcp_close(g, false);
    return st;
}

const struct ls_transport ls_transport_module = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .send = tcp_send,
    .receive = tcp_receive,
    .test = tcp_test,
    .cancel = tcp_cancel,
    .descriptor = tcp_descriptor,
};
