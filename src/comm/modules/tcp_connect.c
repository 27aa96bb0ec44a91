/* Every rank connects to all lower ranks and accepts connections of all higher ones (tcp_handshake.c).
 *
 * A rank may have several addresses. Some may lead nowhere, or to a process of another host. All are tried at once, and
 * again until the time is up; the first that gives the right answer is used.
 *
 * Then every rank sends one number over each connection: READY when it is connected to all, otherwise the rank that it
 * cannot reach. So all ranks name that rank, those that have reached it as well. */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/modules/tcp_handshake.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define TRY_SECONDS 2.0 /* for one attempt: TCP repeats a lost SYN after 1, 3, 7 ... seconds only */
#define RETRY_SECONDS 0.2
#define GRACE 1.0 /* seconds: the rank that cannot reach another one reports first */
#define READY UINT32_MAX

static int endpoints_of(const struct ls_rendezvous *m, int rank)
{
    size_t bytes = m->address[rank].bytes;
    return bytes < 4 + LS_TCP_ENDPOINT || bytes > 4 + LS_TCP_ENDPOINTS * LS_TCP_ENDPOINT
               ? 0
               : (int)((bytes - 4) / LS_TCP_ENDPOINT);
}

static void set_address(struct ls_tcp_handshake *c, const uint8_t *text, int i)
{
    const uint8_t *at = text + 4 + i * LS_TCP_ENDPOINT;
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
    ls_tcp_set_port(&c->to, port);
}

static enum ls_status set_up(struct ls_tcp_connecting *o)
{
    int n = LS_TCP_UNPROVEN;
    for (int r = 0; r < o->m->rank; r++)
        n += endpoints_of(o->m, r);
    o->handshakes = ls_alloc((size_t)n, sizeof *o->handshakes);
    o->polled = ls_alloc((size_t)(1 + n + o->m->size), sizeof *o->polled);
    o->why = ls_alloc((size_t)o->m->size, sizeof *o->why);
    o->reports = ls_alloc((size_t)o->m->size, sizeof *o->reports);
    if (!o->handshakes || !o->polled || !o->why || !o->reports)
        return LS_FAILED;
    for (; o->n < n; o->n++) {
        ls_wire_init(&o->handshakes[o->n].w, -1);
        o->handshakes[o->n].rank = -1;
    }
    struct ls_tcp_handshake *c = o->handshakes + LS_TCP_UNPROVEN;
    for (int r = 0; r < o->m->rank; r++)
        for (int i = 0; i < endpoints_of(o->m, r); i++, c++) {
            c->rank = r;
            set_address(c, o->m->address[r].data, i);
        }
    return LS_OK;
}

static void try_again(struct ls_tcp_connecting *o)
{
    double now = ls_now();
    for (struct ls_tcp_handshake *c = o->handshakes + LS_TCP_UNPROVEN; c < o->handshakes + o->n; c++) {
        if (o->sockets[c->rank] >= 0)
            continue;
        if (c->w.fd >= 0 && c->state != LS_TCP_CONFIRMED && now - c->since > TRY_SECONDS) {
            if (c->state == LS_TCP_CONNECTING)
                o->why[c->rank] = ETIMEDOUT;
            ls_tcp_drop(c);
        }
        if (c->w.fd < 0 && now - c->since > RETRY_SECONDS)
            ls_tcp_begin(o, c);
    }
}

static bool has_reported(const struct ls_tcp_connecting *o, int rank)
{
    return o->reports[rank].got == sizeof o->reports[rank].bytes;
}

static void send_report(const struct ls_tcp_connecting *o, uint32_t number)
{
    uint8_t bytes[4];
    ls_put32(bytes, number);
    for (int r = 0; r < o->m->size; r++)
        if (o->sockets[r] >= 0 && send(o->sockets[r], bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            ls_note("rank %d got no report about the connections of rank %d: %s", r, o->m->rank, strerror(errno));
}

static enum ls_status read_report(struct ls_tcp_connecting *o, int rank)
{
    struct ls_tcp_report *report = &o->reports[rank];
    ssize_t n = recv(o->sockets[rank], report->bytes + report->got, sizeof report->bytes - report->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return LS_OK;
    if (n <= 0)
        return ls_fail(LS_PEER_LOST, "rank %d is gone: its connection ended while the ranks were connecting", rank);
    report->got += (size_t)n;
    uint32_t unreached = ls_get32(report->bytes);
    if (!has_reported(o, rank) || unreached == READY)
        return LS_OK;
    send_report(o, unreached);
    return ls_fail(LS_PEER_LOST,
                   "rank %" PRIu32 " came to the rendezvous, but rank %d has no connection to it; does a firewall drop "
                   "packets between the two hosts?",
                   unreached, rank);
}

/* Those that have not reported are polled; a connection that is quiet afterwards belongs to the transport. */
static enum ls_status read_reports(struct ls_tcp_connecting *o, const struct pollfd *polled)
{
    for (int r = 0; r < o->m->size; r++)
        if (polled[r].fd >= 0 && polled[r].revents)
            LS_TRY(read_report(o, r));
    return LS_OK;
}

static enum ls_status poll_all(struct ls_tcp_connecting *o)
{
    struct pollfd *connected = o->polled + 1 + o->n;
    try_again(o);
    o->polled[0] = (struct pollfd){.fd = o->listener, .events = POLLIN};
    for (int r = 0; r < o->m->size; r++)
        connected[r] = (struct pollfd){.fd = has_reported(o, r) ? -1 : o->sockets[r], .events = POLLIN};
    for (int i = 0; i < o->n; i++) {
        const struct ls_tcp_handshake *c = &o->handshakes[i];
        o->polled[i + 1] = (struct pollfd){.fd = c->w.fd, .events = c->state == LS_TCP_CONNECTING ? POLLOUT : POLLIN};
    }
    int most = (int)(1000 * RETRY_SECONDS), left = ls_wire_timeout_ms(o->until);
    poll(o->polled, (nfds_t)(1 + o->n + o->m->size), left < most ? left : most);
    LS_TRY(read_reports(o, connected));
    for (int i = 0; i < o->n; i++) /* a handshake may have closed another one */
        if (o->handshakes[i].w.fd >= 0 && o->handshakes[i].w.fd == o->polled[i + 1].fd && o->polled[i + 1].revents)
            LS_TRY(ls_tcp_advance(o, &o->handshakes[i]));
    if (o->polled[0].revents)
        ls_tcp_accept(o);
    return LS_OK;
}

static int missing(const struct ls_tcp_connecting *o)
{
    for (int r = 0; r < o->m->size; r++)
        if (r != o->m->rank && o->sockets[r] < 0)
            return r;
    return -1;
}

/* A rank whose report has not come; -1: none. */
static int unreported(const struct ls_tcp_connecting *o)
{
    for (int r = 0; r < o->m->size; r++)
        if (r != o->m->rank && !has_reported(o, r))
            return r;
    return -1;
}

static enum ls_status not_reached(const struct ls_tcp_connecting *o, int rank, double waited)
{
    char where[64] = "no address";
    for (const struct ls_tcp_handshake *c = o->handshakes + LS_TCP_UNPROVEN; c < o->handshakes + o->n; c++)
        if (c->rank == rank) {
            ls_wire_name((const struct sockaddr *)&c->to, c->length, where);
            snprintf(where + strlen(where), sizeof where - strlen(where), ", port %d", ntohs(ls_tcp_port(&c->to)));
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

static void release(struct ls_tcp_connecting *o)
{
    for (int i = 0; i < o->n; i++)
        ls_wire_release(&o->handshakes[i].w);
    ls_free(o->handshakes);
    ls_free(o->polled);
    ls_free(o->why);
    ls_free(o->reports);
}

static enum ls_status connect_to_all(struct ls_tcp_connecting *o)
{
    double begun = ls_now();
    int rank;
    while ((rank = missing(o)) >= 0) {
        LS_TRY(poll_all(o));
        if (missing(o) == rank && ls_now() > o->until) {
            send_report(o, (uint32_t)rank);
            return not_reached(o, rank, ls_now() - begun);
        }
    }
    send_report(o, READY);
    return LS_OK;
}

static enum ls_status wait_for_all(struct ls_tcp_connecting *o)
{
    double begun = ls_now();
    int rank;
    o->until = (o->until > begun ? o->until : begun) + GRACE;
    while ((rank = unreported(o)) >= 0) {
        LS_TRY(poll_all(o));
        if (unreported(o) == rank && ls_now() > o->until) {
            send_report(o, (uint32_t)rank);
            return ls_fail(LS_PEER_LOST, "rank %d connected, but did not report within %.3g s that it is ready", rank,
                           ls_now() - begun);
        }
    }
    return LS_OK;
}

enum ls_status ls_tcp_connect(const struct ls_rendezvous *m, const struct ls_tcp_listener *listener, double until,
                              int *sockets)
{
    enum ls_status st;
    struct ls_tcp_connecting o = {.m = m, .listener = listener->socket, .sockets = sockets, .until = until};
    LS_TRY_GOTO(out, set_up(&o));
    LS_TRY_GOTO(out, connect_to_all(&o));
    LS_TRY_GOTO(out, wait_for_all(&o));
out:
    release(&o);
    return st;
}
