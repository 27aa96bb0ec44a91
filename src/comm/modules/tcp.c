/* Transport `tcp`: messages over one TCP connection between any two processes, which found each other by a rendezvous
 * (rendezvous.h) and have proved its key (tcp.h). A short message travels at once. A long one is asked for first and sent in
 * pieces once the receiver has a place for it, as in shm_transport.c:
 *
 *     sender                 receiver
 *     SHORT  bytes  ----->   into a posted receive, or kept until there is one
 *     ASK    size   ----->
 *            <-----  GRANT   once a receive is posted; DENY: it has no room
 *     PIECE  bytes  ----->   ... until all is there
 *
 * SHORT and ASK go out in the order of their sends and ahead of pieces, so that a long message delays no short one. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/device.h"
#include "comm/modules/tcp.h"
#include "comm/transport.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CLOSE_SECONDS 2.0
#define LOOK_SECONDS 0.1 /* between looks at what was not acknowledged */
enum kind { SHORT = 1, ASK, GRANT, DENY, PIECE, GOODBYE };
enum { SHORT_MOST = 32768, PIECE_MOST = 262144, EVENTS = 32 };

struct record {
    uint32_t kind, tag;
    uint64_t id;    /* ASK, GRANT, DENY: the send's; PIECE: the receive's */
    uint64_t bytes; /* ASK: of the message; GRANT: the receive's id; SHORT, PIECE: of what follows */
};

enum stage { NEW, ASKED, GRANTED, POSTED, ARRIVING, DONE };

/* A request of struct ls_transport_request, in its words. */
struct __attribute__((may_alias)) mail {
    struct mail *next;
    char *data;
    uint64_t size, moved; /* bytes of the message (a receive: its room, until matched) */
    uint64_t id, other;   /* ours; the other side's */
    uint32_t tag;
    int32_t peer; /* -1: any */
    uint32_t stage;
};
_Static_assert(sizeof(struct mail) <= sizeof(((struct ls_transport_request *)0)->words), "a mail fits a request");

struct queue {
    struct mail *head, **end;
};

/* A message that came before its receive. */
struct kept {
    struct kept *next;
    uint64_t bytes, id; /* id: of an ASK; 0: the bytes are here */
    uint32_t tag;
    int32_t peer;
    char data[SHORT_MOST];
};

/* What is being written or read: a record, and what follows it. */
struct frame {
    struct record head;
    size_t moved;      /* bytes of the head */
    char *data;        /* NULL when reading: into the box, from its beginning */
    size_t left;       /* of what follows */
    struct mail *mail; /* whose data it is, NULL: none */
    bool busy;
};

struct peer {
    int in, out;                    /* owned; the same socket, but for the own rank; -1: none */
    bool lost, goodbye, mute;       /* mute: nothing can be sent any more */
    bool watched;                   /* for room to write */
    bool hurried;                   /* see hurry() */
    uint64_t written, acknowledged; /* bytes */
    double stalled;                 /* since when nothing more was acknowledged */
    struct frame coming, going;
    struct queue sends, asked, granted;
    struct record *answers; /* owned; GRANT, DENY and GOODBYE to be sent */
    size_t n_answers, answer_room;
    char *rest;           /* owned; of a send that was given up half-way */
    char box[SHORT_MOST]; /* for the short message that is coming, or for what counts for nothing */
};

struct group {
    struct ls_rendezvous meeting;
    struct ls_tcp_listener door;
    struct peer *peers; /* owned; size of them */
    struct queue receives, arriving;
    struct kept *kept, **kept_end, *spare; /* owned */
    uint64_t last_id;
    double looked, step;             /* step: seconds at most between two attempts to send something again */
    int epoll, rank, size, any_lost; /* any_lost: a rank, -1: none */
};

static struct mail *mail_of(struct ls_transport_request *r)
{
    return (struct mail *)(void *)r->words;
}

static struct ls_transport_request *request_of(struct mail *m)
{
    return (struct ls_transport_request *)(void *)m; /* words come first */
}

static void queue_init(struct queue *q)
{
    *q = (struct queue){NULL, &q->head};
}

static void queue_add(struct queue *q, struct mail *m)
{
    m->next = NULL;
    *q->end = m;
    q->end = &m->next;
}

static bool queue_remove(struct queue *q, const struct mail *m)
{
    for (struct mail **at = &q->head; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            if (!*at)
                q->end = at;
            return true;
        }
    return false;
}

static struct mail *queue_find(struct queue *q, uint64_t id, int peer)
{
    struct mail *m = q->head;
    while (m && (m->id != id || m->peer != peer))
        m = m->next;
    return m;
}

/* The peer is gone. One that has said goodbye was expected to go. */
static void lose(struct group *g, int rank)
{
    struct peer *p = &g->peers[rank];
    if (p->lost)
        return;
    p->lost = p->mute = true;
    if (p->in >= 0)
        epoll_ctl(g->epoll, EPOLL_CTL_DEL, p->in, NULL);
    if (!p->goodbye && g->any_lost < 0)
        g->any_lost = rank;
}

/* --- writing ---------------------------------------------------------------------------------------------- */

static bool answer(struct peer *p, enum kind kind, uint64_t id, uint64_t other)
{
    if (p->n_answers == p->answer_room) {
        size_t room = p->answer_room ? 2 * p->answer_room : 16;
        struct record *more = ls_alloc(room, sizeof *more);
        if (!more)
            return false;
        if (p->n_answers > 0)
            memcpy(more, p->answers, p->n_answers * sizeof *more);
        ls_free(p->answers);
        p->answers = more;
        p->answer_room = room;
    }
    p->answers[p->n_answers++] = (struct record){.kind = kind, .id = id, .bytes = other};
    return true;
}

/* Choose what goes out next; false: nothing. */
static bool next_frame(struct peer *p)
{
    struct frame *f = &p->going;
    struct mail *m;
    *f = (struct frame){.busy = true};
    if (p->n_answers > 0) {
        f->head = p->answers[0];
        memmove(p->answers, p->answers + 1, --p->n_answers * sizeof *p->answers);
    } else if ((m = p->sends.head)) {
        bool is_short = m->size <= SHORT_MOST;
        queue_remove(&p->sends, m);
        f->head = (struct record){.kind = is_short ? SHORT : ASK, .tag = m->tag, .id = m->id, .bytes = m->size};
        f->mail = is_short ? m : NULL;
        if (!is_short) {
            m->stage = ASKED;
            queue_add(&p->asked, m);
        }
    } else if ((m = p->granted.head)) {
        uint64_t left = m->size - m->moved;
        queue_remove(&p->granted, m);
        f->head = (struct record){.kind = PIECE, .id = m->other, .bytes = left < PIECE_MOST ? left : PIECE_MOST};
        f->mail = m;
    } else
        f->busy = false;
    if (f->mail) {
        f->data = f->mail->data + f->mail->moved;
        f->left = f->head.bytes;
    }
    return f->busy;
}

static void end_frame(struct peer *p)
{
    struct frame *f = &p->going;
    struct mail *m = f->mail;
    f->busy = false;
    if (!m)
        return;
    m->moved += f->head.bytes;
    if (m->moved < m->size)
        queue_add(&p->granted, m);
    else
        m->stage = DONE;
}

/* False: it takes no more now. */
static bool write_some(struct peer *p)
{
    struct frame *f = &p->going;
    struct iovec parts[2] = {{(char *)&f->head + f->moved, sizeof f->head - f->moved}, {f->data, f->left}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = f->left > 0 ? 2 : 1};
    ssize_t n = sendmsg(p->out, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0) {
        p->mute = errno != EAGAIN && errno != EWOULDBLOCK; /* reading finds the end, after the last words */
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

static void watch(struct group *g, int rank, bool writing)
{
    struct peer *p = &g->peers[rank];
    if (p->watched == writing || p->lost)
        return;
    struct epoll_event e = {.events = (p->in == p->out ? EPOLLIN : 0u) | (writing ? EPOLLOUT : 0u),
                            .data.u32 = (uint32_t)rank};
    epoll_ctl(g->epoll, EPOLL_CTL_MOD, p->out, &e);
    p->watched = writing;
}

static bool write_all(struct group *g, int rank)
{
    struct peer *p = &g->peers[rank];
    bool moved = false, more = true;
    while (more && !p->mute && (p->going.busy || next_frame(p))) {
        more = write_some(p);
        moved |= more;
    }
    watch(g, rank, p->going.busy && !p->mute);
    return moved;
}

/* --- matching --------------------------------------------------------------------------------------------- */

static void finish_receive(struct mail *m, int peer, uint64_t bytes, bool too_long)
{
    struct ls_transport_request *r = request_of(m);
    r->peer = peer;
    r->bytes = bytes;
    r->too_long = too_long;
    m->stage = DONE;
}

/* A posted receive meets a long message: ask for it. */
static bool grant(struct group *g, struct mail *m, int peer, uint64_t id, uint64_t bytes)
{
    if (bytes > m->size) {
        finish_receive(m, peer, bytes, true);
        return answer(&g->peers[peer], DENY, id, 0);
    }
    m->stage = ARRIVING;
    m->size = bytes;
    m->peer = peer;
    m->id = ++g->last_id;
    queue_add(&g->arriving, m);
    return answer(&g->peers[peer], GRANT, id, m->id);
}

static struct mail *posted(struct group *g, int peer, uint32_t tag)
{
    struct mail *m = g->receives.head;
    while (m && ((m->peer != peer && m->peer >= 0) || m->tag != tag))
        m = m->next;
    if (m)
        queue_remove(&g->receives, m);
    return m;
}

static bool keep(struct group *g, int peer, const struct record *r, const char *data)
{
    struct kept *k = g->spare ? g->spare : ls_alloc(1, sizeof *k);
    if (!k)
        return false;
    if (g->spare)
        g->spare = k->next;
    k->next = NULL;
    k->bytes = r->bytes;
    k->id = r->kind == ASK ? r->id : 0;
    k->tag = r->tag;
    k->peer = peer;
    if (data)
        memcpy(k->data, data, r->bytes);
    *g->kept_end = k;
    g->kept_end = &k->next;
    return true;
}

static void take_short(struct mail *m, int peer, uint64_t bytes, const char *data)
{
    if (bytes > 0 && bytes <= m->size)
        memcpy(m->data, data, bytes);
    finish_receive(m, peer, bytes, bytes > m->size);
}

/* The oldest kept message for this receive, taken out of the list. */
static struct kept *find_kept(struct group *g, const struct mail *m)
{
    for (struct kept **at = &g->kept; *at; at = &(*at)->next) {
        struct kept *k = *at;
        if ((m->peer >= 0 && m->peer != k->peer) || m->tag != k->tag)
            continue;
        *at = k->next;
        if (!k->next)
            g->kept_end = at;
        return k;
    }
    return NULL;
}

/* --- reading ---------------------------------------------------------------------------------------------- */

static bool open_piece(struct group *g, int rank, struct frame *f)
{
    struct mail *m = queue_find(&g->arriving, f->head.id, rank);
    f->left = f->head.bytes;
    f->mail = m;
    f->data = m ? m->data + m->moved : NULL;
    return f->left > 0 && f->left <= PIECE_MOST && (!m || f->left <= m->size - m->moved);
}

static void hear_grant(struct peer *p, const struct record *r, int rank)
{
    struct mail *m = queue_find(&p->asked, r->id, rank);
    if (!m)
        return; /* it was given up */
    queue_remove(&p->asked, m);
    m->other = r->bytes;
    m->stage = r->kind == GRANT ? GRANTED : DONE;
    if (r->kind == GRANT)
        queue_add(&p->granted, m);
}

/* The record is whole. False: no process of ours sends that. */
static bool open_frame(struct group *g, int rank)
{
    struct peer *p = &g->peers[rank];
    struct frame *f = &p->coming;
    const struct record *r = &f->head;
    struct mail *m;
    switch (r->kind) {
    case SHORT:
        f->data = p->box;
        f->left = r->bytes;
        return r->bytes <= SHORT_MOST;
    case PIECE:
        return open_piece(g, rank, f);
    case ASK:
        m = posted(g, rank, r->tag);
        return r->bytes > SHORT_MOST && (m ? grant(g, m, rank, r->id, r->bytes) : keep(g, rank, r, NULL));
    case GRANT:
    case DENY:
        hear_grant(p, r, rank);
        return true;
    case GOODBYE:
        return p->goodbye = true;
    default:
        return false;
    }
}

static bool close_frame(struct group *g, int rank)
{
    struct peer *p = &g->peers[rank];
    struct frame f = p->coming;
    struct mail *m = f.mail;
    p->coming = (struct frame){0};
    if (f.head.kind == SHORT) {
        m = posted(g, rank, f.head.tag);
        if (!m)
            return keep(g, rank, &f.head, p->box);
        take_short(m, rank, f.head.bytes, p->box);
    } else if (m) {
        m->moved += f.head.bytes;
        if (m->moved == m->size) {
            queue_remove(&g->arriving, m);
            finish_receive(m, rank, m->size, false);
        }
    }
    return true;
}

/* What came; false: no process of ours sends that, or there is no memory for it. */
static bool advance(struct group *g, int rank, size_t n)
{
    struct frame *f = &g->peers[rank].coming;
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

/* False: there is nothing more now. */
static bool read_some(struct group *g, int rank)
{
    struct peer *p = &g->peers[rank];
    struct frame *f = &p->coming;
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
        ls_note("rank %d sent what is no message; it is given up", rank);
    if (!good)
        lose(g, rank);
    return good;
}

/* While a cable is out, TCP waits twice as long before each further attempt, so that a run could miss its deadline though
 * the cable was back in time. The kernel makes an attempt no later than a connection's TCP_USER_TIMEOUT, at which it would
 * give up. A timeout that is always a step away makes it try again at every step, and never give up. */
static void hurry(struct peer *p, double now, double step)
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
    if (moves && !p->hurried)
        return;
    if (!moves)
        timeout = (unsigned)(1e3 * (now - p->stalled + step));
    p->hurried = !moves;
    setsockopt(p->out, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
}

static void hurry_all(struct group *g)
{
    double now = ls_now();
    if (now - g->looked < LOOK_SECONDS)
        return;
    g->looked = now;
    for (int i = 0; i < g->size; i++)
        if (i != g->rank && !g->peers[i].mute)
            hurry(&g->peers[i], now, g->step);
}

/* Whatever can move; false: nothing did. */
static bool move(struct group *g)
{
    hurry_all(g);
    struct epoll_event events[EVENTS];
    bool moved = false;
    int n = epoll_wait(g->epoll, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        int rank = (int)events[i].data.u32;
        while (!g->peers[rank].lost && read_some(g, rank))
            moved = true;
        moved |= write_all(g, rank);
    }
    return moved;
}

/* --- the transport ---------------------------------------------------------------------------------------- */

/* Known to be gone: the peer, or anyone when anyone is waited for. */
static int lost_peer(const struct group *g, int peer)
{
    if (peer < 0)
        return g->any_lost;
    return g->peers[peer].lost || g->peers[peer].mute ? peer : -1;
}

static enum ls_status tcp_send(void *state, int peer, uint32_t tag, const void *data, size_t bytes,
                               struct ls_transport_request *request)
{
    struct group *g = state;
    struct mail *m = mail_of(request);
    *m = (struct mail){.data = (char *)(uintptr_t)data, .size = bytes, .tag = tag, .peer = peer, .stage = NEW};
    request->peer = peer;
    request->bytes = bytes;
    if (lost_peer(g, peer) >= 0)
        return LS_PEER_LOST;
    m->id = ++g->last_id;
    queue_add(&g->peers[peer].sends, m);
    write_all(g, peer);
    return LS_OK;
}

static enum ls_status tcp_receive(void *state, int peer, uint32_t tag, void *data, size_t room,
                                  struct ls_transport_request *request)
{
    struct group *g = state;
    struct mail *m = mail_of(request);
    *m = (struct mail){.data = data, .size = room, .tag = tag, .peer = peer, .stage = POSTED};
    request->peer = peer;
    request->too_long = false;
    struct kept *k = find_kept(g, m);
    if (!k) {
        queue_add(&g->receives, m);
        return LS_OK;
    }
    bool good = true;
    if (k->id)
        good = grant(g, m, k->peer, k->id, k->bytes);
    else
        take_short(m, k->peer, k->bytes, k->data);
    write_all(g, k->peer);
    k->next = g->spare;
    g->spare = k;
    return good ? LS_OK : LS_FAILED;
}

/* What has arrived counts, even from a peer that is gone by now. */
static enum ls_status tcp_test(void *state, struct ls_transport_request *request, bool *done)
{
    struct group *g = state;
    const struct mail *m = mail_of(request);
    while (m->stage != DONE && move(g))
        ;
    *done = m->stage == DONE;
    int gone = *done ? -1 : lost_peer(g, request->peer);
    if (gone < 0)
        return LS_OK;
    request->peer = gone;
    return LS_PEER_LOST;
}

/* The rest of a frame that is half out goes from a copy. */
static void orphan(struct peer *p)
{
    struct frame *f = &p->going;
    f->mail = NULL;
    if (f->left == 0)
        return;
    if (!p->rest)
        p->rest = ls_alloc(PIECE_MOST, 1);
    if (p->rest)
        f->data = memcpy(p->rest, f->data, f->left);
    else
        p->mute = true;
}

static void tcp_cancel(void *state, struct ls_transport_request *request)
{
    struct group *g = state;
    struct mail *m = mail_of(request);
    if (m->stage == DONE)
        return;
    queue_remove(&g->receives, m);
    queue_remove(&g->arriving, m);
    for (int i = 0; i < g->size; i++) {
        struct peer *p = &g->peers[i];
        if (i == m->peer) {
            queue_remove(&p->sends, m);
            queue_remove(&p->asked, m);
            queue_remove(&p->granted, m);
        }
        if (p->going.busy && p->going.mail == m)
            orphan(p);
        if (p->coming.mail == m) {
            p->coming.mail = NULL;
            p->coming.data = NULL;
        }
    }
    m->stage = DONE;
}

static int tcp_descriptor(void *state)
{
    struct group *g = state;
    return move(g) ? -1 : g->epoll;
}

/* --- beginning and end ------------------------------------------------------------------------------------ */

static enum ls_status join_up(struct group *g, int rank, int in, int out)
{
    struct peer *p = &g->peers[rank];
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

static enum ls_status make_peers(struct group *g)
{
    g->peers = ls_alloc((size_t)g->size, sizeof *g->peers);
    if (!g->peers)
        return LS_FAILED;
    for (int i = 0; i < g->size; i++) {
        struct peer *p = &g->peers[i];
        p->in = p->out = -1;
        queue_init(&p->sends);
        queue_init(&p->asked);
        queue_init(&p->granted);
    }
    return LS_OK;
}

static enum ls_status connect_all(struct group *g, double until)
{
    enum ls_status st;
    int own[2];
    int *sockets = ls_alloc((size_t)g->size, sizeof *sockets);
    if (!sockets)
        return LS_FAILED;
    for (int i = 0; i < g->size; i++)
        sockets[i] = -1;
    st = ls_tcp_connect(&g->meeting, &g->door, until, sockets);
    for (int i = 0; i < g->size; i++)
        if (sockets[i] >= 0 && st == LS_OK)
            st = join_up(g, i, sockets[i], sockets[i]);
        else if (sockets[i] >= 0)
            close(sockets[i]);
    ls_free(sockets);
    LS_TRY(st);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own) != 0)
        return ls_fail(LS_FAILED, "no pair of sockets: %s", strerror(errno));
    return join_up(g, g->rank, own[0], own[1]);
}

/* Nobody closes before everybody has said goodbye: what is under way then was meant to arrive. */
static void part(struct group *g)
{
    double until = ls_now() + CLOSE_SECONDS;
    int left;
    for (int i = 0; i < g->size; i++)
        if (i != g->rank && answer(&g->peers[i], GOODBYE, 0, 0))
            write_all(g, i);
    do {
        left = 0;
        for (int i = 0; i < g->size; i++) {
            const struct peer *p = &g->peers[i];
            left += i != g->rank && !p->lost && (!p->goodbye || (p->going.busy && !p->mute));
        }
        struct pollfd waiting = {.fd = g->epoll, .events = POLLIN};
        if (left > 0 && !move(g))
            poll(&waiting, 1, 100);
    } while (left > 0 && ls_now() < until && g->any_lost < 0);
}

/* The last words must not be lost to a reset, which unread data would cause. */
static void hang_up(struct peer *p)
{
    if (p->in < 0)
        return;
    shutdown(p->out, SHUT_WR);
    while (recv(p->in, p->box, sizeof p->box, MSG_DONTWAIT) > 0)
        ;
    if (p->out != p->in)
        close(p->out);
    close(p->in);
}

static void tcp_close(void *state, bool graceful)
{
    struct group *g = state;
    if (graceful && g->peers)
        part(g);
    for (int i = 0; g->peers && i < g->size; i++) {
        hang_up(&g->peers[i]);
        ls_free(g->peers[i].answers);
        ls_free(g->peers[i].rest);
    }
    struct kept *lists[] = {g->kept, g->spare};
    for (int i = 0; i < 2; i++)
        for (struct kept *k = lists[i], *next; k; k = next) {
            next = k->next;
            ls_free(k);
        }
    if (g->epoll >= 0)
        close(g->epoll);
    ls_tcp_close_listener(&g->door);
    ls_rendezvous_release(&g->meeting);
    ls_free(g->peers);
    ls_free(g);
}

static enum ls_status tcp_open(struct ls_launch *l, double deadline, void **state)
{
    enum ls_status st;
    struct group *g = ls_alloc(1, sizeof *g);
    if (!g)
        return LS_FAILED;
    g->any_lost = g->door.listener = -1;
    g->step = deadline / 8 < 1 ? 1 : deadline / 8 > 10 ? 10 : deadline / 8;
    g->kept_end = &g->kept;
    queue_init(&g->receives);
    queue_init(&g->arriving);
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    LS_TRY_GOTO(out, g->epoll >= 0 ? LS_OK : ls_fail(LS_FAILED, "no epoll: %s", strerror(errno)));
    LS_TRY_GOTO(out, ls_tcp_listen(l, &g->door));
    LS_TRY_GOTO(out, ls_rendezvous_run(l, "tcp", g->door.text, g->door.bytes, ls_now() + deadline, &g->meeting));
    l->rank = g->rank = g->meeting.rank;
    l->size = g->size = g->meeting.size;
    LS_TRY_GOTO(out, make_peers(g));
    LS_TRY_GOTO(out, connect_all(g, ls_now() + deadline));
    ls_tcp_close_listener(&g->door);
    ls_rendezvous_clean(&g->meeting);
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
