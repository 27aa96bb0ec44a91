/* Every rank connects to all lower ones and is connected to by all higher ones. The words between two of them:
 *
 *     lower rank                       higher rank
 *                          <-----      CALL     both ranks, a nonce
 *     ANSWER  nonce, proof  ----->
 *                          <-----      CONFIRM  proof
 *     TAKEN                 ----->
 *
 * A rank may have several addresses, of which some lead nowhere or to a process of another host. All are tried at once,
 * and again until the time is up; the first whose answer is right is used. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/device.h"
#include "comm/modules/tcp.h"
#include "comm/rendezvous/wire.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STRANGERS 64    /* accepted connections at once that have proved nothing yet */
#define TRY_SECONDS 2.0 /* for one attempt: a lost packet is sent again after 1, 3, 7 ... seconds only */
#define RETRY_SECONDS 0.2
#define PLACES_MOST 16 /* addresses of one rank */
enum { PLACE = 17 /* bytes: a family and an address */, CALL = 8 + LS_NONCE, ANSWER = LS_NONCE + LS_PROOF };

/* --- listening ------------------------------------------------------------------------------------------- */

static enum ls_status listen_at(const struct sockaddr *address, socklen_t length, int *listener)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, address, length) != 0 || listen(fd, 1024) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        errno = why;
        return LS_FAILED;
    }
    *listener = fd;
    return LS_OK;
}

/* Reachable as it stands: an address of a link alone means nothing on another host. */
static bool is_place(const struct sockaddr *a)
{
    if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6))
        return false;
    return a->sa_family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static void add_place(struct ls_tcp_listener *d, const struct sockaddr *a)
{
    uint8_t *at = d->text + d->bytes;
    if (d->bytes + PLACE > 4 + PLACES_MOST * PLACE)
        return;
    at[0] = a->sa_family == AF_INET ? 4 : 6;
    if (a->sa_family == AF_INET)
        memcpy(at + 1, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    else
        memcpy(at + 1, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
    d->bytes += PLACE;
}

static void add_all_places(struct ls_tcp_listener *d, bool four_only)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return;
    for (int inner = 0; inner < 2; inner++) /* the addresses of other hosts' networks first */
        for (struct ifaddrs *i = all; i; i = i->ifa_next)
            if (is_place(i->ifa_addr) && (i->ifa_flags & IFF_UP) && ls_wire_is_loopback(i->ifa_addr) == (inner == 1) &&
                (!four_only || i->ifa_addr->sa_family == AF_INET))
                add_place(d, i->ifa_addr);
    freeifaddrs(all);
}

static enum ls_status listen_everywhere(struct ls_tcp_listener *d)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET};
    bool four_only = listen_at((struct sockaddr *)&six, sizeof six, &d->listener) != LS_OK;
    if (four_only)
        LS_TRY(listen_at((struct sockaddr *)&four, sizeof four, &d->listener));
    add_all_places(d, four_only);
    return LS_OK;
}

static void set_port(struct sockaddr_storage *a, uint16_t port)
{
    if (a->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)a)->sin_port = port;
    else
        ((struct sockaddr_in6 *)(void *)a)->sin6_port = port;
}

static uint16_t get_port(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET ? ((const struct sockaddr_in *)(const void *)a)->sin_port
                                   : ((const struct sockaddr_in6 *)(const void *)a)->sin6_port;
}

enum ls_status ls_tcp_listen(const struct ls_launch *l, struct ls_tcp_listener *d)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    enum ls_status st;
    *d = (struct ls_tcp_listener){.listener = -1, .bytes = 4};
    d->text = ls_alloc(4 + PLACES_MOST * PLACE, 1);
    if (!d->text)
        return LS_FAILED;
    if (l->kind == LS_LAUNCH_TCP && ls_device_address(l, &own)) {
        set_port(&own, 0);
        st = listen_at((struct sockaddr *)&own,
                       own.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6),
                       &d->listener);
        add_place(d, (struct sockaddr *)&own);
    } else
        st = listen_everywhere(d);
    if (st != LS_OK || getsockname(d->listener, (struct sockaddr *)&own, &length) != 0)
        return ls_fail(LS_FAILED, "this process cannot listen for the others: %s", strerror(errno));
    ls_put32(d->text, ntohs(get_port(&own)));
    return LS_OK;
}

void ls_tcp_close_listener(struct ls_tcp_listener *d)
{
    if (d->listener >= 0)
        close(d->listener);
    ls_free(d->text);
    *d = (struct ls_tcp_listener){.listener = -1};
}

/* --- calls ----------------------------------------------------------------------------------------------- */

struct call {
    struct ls_wire w; /* fd -1: none */
    enum { CONNECTING, CALLED, CONFIRMED, ACCEPTED, ANSWERED } state;
    int rank;     /* whom it leads to; -1: an accepted one that has not said */
    double since; /* of this attempt; without a connection: when it ended */
    uint8_t call[CALL], answer[LS_NONCE];
    struct sockaddr_storage to; /* of a call to another */
    socklen_t length;
};

struct office {
    const struct ls_rendezvous *m;
    int listener, *sockets;
    struct call *calls;    /* owned; STRANGERS accepted ones, then one for each address of each lower rank */
    int n, *why;           /* why: owned; of each rank, the last error */
    struct pollfd *polled; /* owned; one more than calls */
    double until;
};

static void drop(struct call *c)
{
    ls_wire_release(&c->w);
    c->since = ls_now();
}

static enum ls_status prove(const struct office *o, const char *purpose, const struct call *c, uint8_t proof[LS_PROOF])
{
    const struct ls_part parts[] = {{c->call, CALL}, {c->answer, LS_NONCE}, {NULL, 0}};
    return ls_proof_make(o->m->key, LS_PROOF, purpose, parts, proof);
}

/* The connection is made: it belongs to the transport now, and further ones to that rank are not needed. */
static void take(struct office *o, struct call *c)
{
    int rank = c->rank;
    o->sockets[rank] = c->w.fd;
    c->w.fd = -1;
    for (int i = 0; i < o->n; i++)
        if (o->calls[i].rank == rank)
            drop(&o->calls[i]);
}

static void begin(struct office *o, struct call *c)
{
    int fd = socket(c->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    c->since = ls_now();
    if (fd < 0 || (connect(fd, (struct sockaddr *)&c->to, c->length) != 0 && errno != EINPROGRESS)) {
        o->why[c->rank] = errno;
        if (fd >= 0)
            close(fd);
        return;
    }
    ls_wire_init(&c->w, fd);
    c->state = CONNECTING;
}

static enum ls_status call_up(struct office *o, struct call *c)
{
    int error = 0;
    socklen_t n = sizeof error;
    if (getsockopt(c->w.fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error != 0) {
        o->why[c->rank] = error;
        drop(c);
        return LS_OK;
    }
    ls_put32(c->call, (uint32_t)o->m->rank);
    ls_put32(c->call + 4, (uint32_t)c->rank);
    LS_TRY(ls_proof_random(c->call + 8, LS_NONCE));
    c->state = CALLED;
    c->w.limit = ANSWER;
    if (!ls_wire_write(&c->w, LS_FRAME_CALL, c->call, CALL, 0))
        drop(c);
    return LS_OK;
}

static enum ls_status hear_answer(struct office *o, struct call *c)
{
    uint8_t proof[LS_PROOF];
    memcpy(c->answer, c->w.body, LS_NONCE);
    LS_TRY(prove(o, "answer", c, proof));
    bool right = ls_proof_same(proof, c->w.body + LS_NONCE);
    for (int i = 0; i < o->n && right; i++) /* one at a time may be confirmed */
        right = o->calls[i].rank != c->rank || o->calls[i].w.fd < 0 || o->calls[i].state != CONFIRMED;
    LS_TRY(prove(o, "confirm", c, proof));
    c->state = CONFIRMED;
    c->w.limit = 0;
    if (!right || !ls_wire_write(&c->w, LS_FRAME_CONFIRM, proof, LS_PROOF, 0))
        drop(c);
    return LS_OK;
}

static enum ls_status hear_call(struct office *o, struct call *c)
{
    uint8_t body[ANSWER];
    uint32_t from = ls_get32(c->w.body), to = ls_get32(c->w.body + 4);
    memcpy(c->call, c->w.body, CALL);
    LS_TRY(ls_proof_random(c->answer, LS_NONCE));
    LS_TRY(prove(o, "answer", c, body + LS_NONCE));
    memcpy(body, c->answer, LS_NONCE);
    c->state = ANSWERED;
    c->w.limit = LS_PROOF;
    bool ours = to == (uint32_t)o->m->rank && from > to && from < (uint32_t)o->m->size && o->sockets[from] < 0;
    if (!ours || !ls_wire_write(&c->w, LS_FRAME_ANSWER, body, ANSWER, 0))
        drop(c);
    return LS_OK;
}

static enum ls_status hear_confirm(struct office *o, struct call *c)
{
    uint8_t proof[LS_PROOF];
    int from = (int)ls_get32(c->call);
    LS_TRY(prove(o, "confirm", c, proof));
    if (!ls_proof_same(proof, c->w.body) || o->sockets[from] >= 0 ||
        !ls_wire_write(&c->w, LS_FRAME_TAKEN, NULL, 0, 0)) {
        drop(c);
        return LS_OK;
    }
    c->rank = from;
    take(o, c);
    c->rank = -1;
    return LS_OK;
}

static enum ls_status hear(struct office *o, struct call *c)
{
    static const struct {
        enum ls_frame kind;
        size_t bytes;
    } awaited[] = {[CALLED] = {LS_FRAME_ANSWER, ANSWER},
                   [CONFIRMED] = {LS_FRAME_TAKEN, 0},
                   [ACCEPTED] = {LS_FRAME_CALL, CALL},
                   [ANSWERED] = {LS_FRAME_CONFIRM, LS_PROOF}};
    if (c->state == CONNECTING)
        return call_up(o, c);
    enum ls_wire_state state = ls_wire_read(&c->w);
    if (state == LS_WIRE_MORE)
        return LS_OK;
    if (state != LS_WIRE_FRAME || c->w.kind != awaited[c->state].kind || c->w.length != awaited[c->state].bytes) {
        drop(c);
        return LS_OK;
    }
    switch (c->state) {
    case CALLED:
        return hear_answer(o, c);
    case ACCEPTED:
        return hear_call(o, c);
    case ANSWERED:
        return hear_confirm(o, c);
    case CONNECTING:
    case CONFIRMED:
        break;
    }
    take(o, c);
    return LS_OK;
}

/* A free place for an accepted connection, or that of the oldest which has sent nothing. */
static struct call *place(struct office *o)
{
    struct call *best = o->calls;
    for (struct call *c = o->calls; c < o->calls + STRANGERS; c++) {
        if (c->w.fd < 0)
            return c;
        bool silent = c->state == ACCEPTED, other = best->state == ACCEPTED;
        if ((silent && !other) || (silent == other && c->since < best->since))
            best = c;
    }
    drop(best);
    return best;
}

static void accept_some(struct office *o)
{
    for (int i = 0; i < STRANGERS / 2; i++) {
        int fd = accept4(o->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct call *c = place(o);
        *c = (struct call){.rank = -1, .state = ACCEPTED, .since = ls_now()};
        ls_wire_init(&c->w, fd);
        c->w.limit = CALL;
    }
}

/* --- all together ---------------------------------------------------------------------------------------- */

static int places_of(const struct ls_rendezvous *m, int rank)
{
    size_t bytes = m->address[rank].bytes;
    return bytes < 4 + PLACE || bytes > 4 + PLACES_MOST * PLACE ? 0 : (int)((bytes - 4) / PLACE);
}

static void aim(struct call *c, const uint8_t *text, int i)
{
    const uint8_t *at = text + 4 + i * PLACE;
    uint16_t port = htons((uint16_t)ls_get32(text));
    if (at[0] == 4) {
        struct sockaddr_in *four = (struct sockaddr_in *)(void *)&c->to;
        four->sin_family = AF_INET;
        memcpy(&four->sin_addr, at + 1, 4);
        c->length = sizeof *four;
    } else {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&c->to;
        six->sin6_family = AF_INET6;
        memcpy(&six->sin6_addr, at + 1, 16);
        c->length = sizeof *six;
    }
    set_port(&c->to, port);
}

static enum ls_status set_up(struct office *o)
{
    int n = STRANGERS;
    for (int r = 0; r < o->m->rank; r++)
        n += places_of(o->m, r);
    o->calls = ls_alloc((size_t)n, sizeof *o->calls);
    o->polled = ls_alloc((size_t)n + 1, sizeof *o->polled);
    o->why = ls_alloc((size_t)o->m->size, sizeof *o->why);
    if (!o->calls || !o->polled || !o->why)
        return LS_FAILED;
    for (; o->n < n; o->n++) {
        ls_wire_init(&o->calls[o->n].w, -1);
        o->calls[o->n].rank = -1;
    }
    struct call *c = o->calls + STRANGERS;
    for (int r = 0; r < o->m->rank; r++)
        for (int i = 0; i < places_of(o->m, r); i++, c++) {
            c->rank = r;
            aim(c, o->m->address[r].data, i);
        }
    return LS_OK;
}

static void try_again(struct office *o)
{
    double now = ls_now();
    for (struct call *c = o->calls + STRANGERS; c < o->calls + o->n; c++) {
        if (o->sockets[c->rank] >= 0)
            continue;
        if (c->w.fd >= 0 && c->state != CONFIRMED && now - c->since > TRY_SECONDS) {
            if (c->state == CONNECTING)
                o->why[c->rank] = ETIMEDOUT;
            drop(c);
        }
        if (c->w.fd < 0 && now - c->since > RETRY_SECONDS)
            begin(o, c);
    }
}

static enum ls_status round_of_all(struct office *o)
{
    try_again(o);
    o->polled[0] = (struct pollfd){.fd = o->listener, .events = POLLIN};
    for (int i = 0; i < o->n; i++) {
        const struct call *c = &o->calls[i];
        o->polled[i + 1] = (struct pollfd){.fd = c->w.fd, .events = c->state == CONNECTING ? POLLOUT : POLLIN};
    }
    int most = (int)(1000 * RETRY_SECONDS), left = ls_wire_timeout_ms(o->until);
    poll(o->polled, (nfds_t)o->n + 1, left < most ? left : most);
    for (int i = 0; i < o->n; i++) /* one that another has closed meanwhile is asked in vain, and only that */
        if (o->calls[i].w.fd >= 0 && o->calls[i].w.fd == o->polled[i + 1].fd && o->polled[i + 1].revents)
            LS_TRY(hear(o, &o->calls[i]));
    if (o->polled[0].revents)
        accept_some(o);
    return LS_OK;
}

static int missing(const struct office *o)
{
    for (int r = 0; r < o->m->size; r++)
        if (r != o->m->rank && o->sockets[r] < 0)
            return r;
    return -1;
}

static enum ls_status not_reached(const struct office *o, int rank, double waited)
{
    char where[64] = "no address";
    for (const struct call *c = o->calls + STRANGERS; c < o->calls + o->n; c++)
        if (c->rank == rank) {
            ls_wire_name((const struct sockaddr *)&c->to, c->length, where);
            snprintf(where + strlen(where), sizeof where - strlen(where), ", port %d", ntohs(get_port(&c->to)));
            break;
        }
    if (rank > o->m->rank)
        return ls_fail(LS_PEER_LOST,
                       "rank %d came to the rendezvous, but did not connect to rank %d within %.3g s; does a firewall "
                       "drop packets between the two hosts?",
                       rank, o->m->rank, waited);
    return ls_fail(LS_PEER_LOST,
                   "rank %d came to the rendezvous, but rank %d cannot connect to it (%s) within %.3g s: %s; does a "
                   "firewall drop packets between the two hosts?",
                   rank, o->m->rank, where, waited, o->why[rank] ? strerror(o->why[rank]) : "it does not answer");
}

static void release(struct office *o)
{
    for (int i = 0; i < o->n; i++)
        ls_wire_release(&o->calls[i].w);
    ls_free(o->calls);
    ls_free(o->polled);
    ls_free(o->why);
}

enum ls_status ls_tcp_connect(const struct ls_rendezvous *m, const struct ls_tcp_listener *door, double until,
                              int *sockets)
{
    enum ls_status st;
    double begun = ls_now();
    struct office o = {.m = m, .listener = door->listener, .sockets = sockets, .until = until};
    LS_TRY_GOTO(out, set_up(&o));
    while (missing(&o) >= 0) {
        LS_TRY_GOTO(out, round_of_all(&o));
        if (missing(&o) >= 0 && ls_now() > until)
            LS_TRY_GOTO(out, not_reached(&o, missing(&o), ls_now() - begun));
    }
out:
    release(&o);
    return st;
}
