/* A rank other than 0 in a rendezvous over TCP: connects to rank 0, proves the token, sends its address and waits for the
 * table. */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/owner.h"
#include "comm/rendezvous/wire.h"
#include "launch/children/failed_rank.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RETRY_SECONDS 0.1
/* Seconds beyond the deadline: rank 0 may have begun later, and its message names the missing ranks. */
#define GRACE 5.0

struct joining {
    const struct ls_launch *l;
    struct ls_rendezvous *m;
    struct ls_wire w;
    double begun, until;
    uint8_t nonce[LS_NONCE];
    bool welcome; /* rank 0 has proved the token; before, it may close the connection to make room for another */
    bool again;   /* it did: connect again */
};

static void pause_for(double seconds)
{
    struct timespec t = {.tv_nsec = (long)(1e9 * seconds)};
    nanosleep(&t, NULL);
}

/* --- connecting ------------------------------------------------------------------------------------------ */

/* 0, or the error. */
static int try_connect(const struct addrinfo *a, double until, int *connected)
{
    int error = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof error;
    if (fd < 0)
        return errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS)
        error = errno;
    else {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        double limit = ls_now() + 3 < until ? ls_now() + 3 : until;
        while (poll(&p, 1, ls_wire_timeout_ms(limit)) <= 0 && ls_now() < limit)
            ;
        if (p.revents == 0)
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0)
            error = errno;
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    *connected = fd;
    return 0;
}

/* Rank 0 may start later than this process. */
static enum ls_status connect_to_host(struct joining *v)
{
    struct addrinfo *list;
    int why = ETIMEDOUT, fd = -1;
    LS_TRY(ls_wire_resolve(v->l->address, v->l->port, 0, &list));
    while (fd < 0 && ls_now() < v->until) {
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
            why = try_connect(a, v->until, &fd);
        if (fd < 0)
            pause_for(RETRY_SECONDS);
    }
    freeaddrinfo(list);
    if (fd < 0)
        return ls_fail(LS_PEER_LOST, "rank 0 did not come to %s:%d within %.0f s: %s", v->l->address, v->l->port,
                       v->until - v->begun, strerror(why));
    v->w.fd = fd;
    return LS_OK;
}

/* --- exchange --------------------------------------------------------------------------------------------- */

static enum ls_status no_answer(struct joining *v, enum ls_wire_state state)
{
    const char *host = v->l->address;
    int port = v->l->port;
    v->again = state == LS_WIRE_GONE && !v->welcome && ls_now() < v->until;
    if (v->again)
        return LS_PEER_LOST;
    if (state == LS_WIRE_GONE)
        return ls_fail(LS_PEER_LOST, "rank 0 at %s:%d went away before all had come; its own message says why", host,
                       port);
    if (state == LS_WIRE_MORE)
        return ls_fail(LS_PEER_LOST, "rank 0 at %s:%d did not answer within %.0f s", host, port, ls_now() - v->begun);
    return ls_fail(LS_USAGE,
                   "%s:%d answers, but not as Lockstep's rank 0; is another program on that port? "
                   "Give --master-port",
                   host, port);
}

/* The message is text from a peer that has proved nothing: only printable characters are shown. */
static enum ls_status refused(struct joining *v)
{
    char text[LS_TEXT_LIMIT + 1];
    size_t n = 0;
    bool ours = v->w.length >= 4 && ls_get32(v->w.body) == LS_USAGE;
    for (size_t i = 4; i < v->w.length && n < LS_TEXT_LIMIT; i++)
        text[n++] = isprint(v->w.body[i]) ? (char)v->w.body[i] : '?';
    text[n] = 0;
    return ls_fail(ours ? LS_USAGE : LS_PEER_LOST, LS_REFUSED_RANK, v->l->address, v->l->port, v->m->rank, text);
}

static enum ls_status expect(struct joining *v, enum ls_frame kind, size_t least, size_t most)
{
    enum ls_wire_state state = ls_wire_wait(&v->w, most, v->until);
    if (state == LS_WIRE_FRAME && v->w.kind == LS_FRAME_REFUSE)
        return refused(v);
    if (state == LS_WIRE_FRAME && (v->w.kind != kind || v->w.length < least))
        state = LS_WIRE_JUNK;
    return state == LS_WIRE_FRAME ? LS_OK : no_answer(v, state);
}

static enum ls_status send_frame(struct joining *v, enum ls_frame kind, const void *body, size_t bytes)
{
    return ls_wire_write(&v->w, kind, body, bytes, v->until) ? LS_OK : no_answer(v, LS_WIRE_GONE);
}

static size_t token_bytes(const struct joining *v)
{
    return v->l->token ? strlen(v->l->token) : 0;
}

static enum ls_status prove(const struct joining *v, const char *purpose, const struct ls_proof_part *parts,
                            uint8_t proof[LS_PROOF])
{
    return ls_proof_make(v->l->token ? v->l->token : "", token_bytes(v), purpose, parts, proof);
}

static enum ls_status join(struct joining *v)
{
    uint8_t body[8 + LS_NONCE + LS_PROOF], theirs[LS_NONCE], proof[LS_PROOF];
    LS_TRY(expect(v, LS_FRAME_CHALLENGE, LS_NONCE, LS_NONCE));
    if (!v->l->token && !ls_owner_is_same_user(v->w.fd))
        return ls_fail(LS_USAGE,
                       "rank 0 at %s:%d is another user's; give all ranks another --master-port, or set "
                       "LOCKSTEP_TOKEN to the same text for all",
                       v->l->address, v->l->port);
    memcpy(theirs, v->w.body, LS_NONCE);
    LS_TRY(ls_proof_random(v->nonce, LS_NONCE));
    ls_put32(body, (uint32_t)v->m->rank);
    ls_put32(body + 4, (uint32_t)v->m->size);
    memcpy(body + 8, v->nonce, LS_NONCE);
    const struct ls_proof_part parts[] = {{theirs, LS_NONCE}, {body, 8 + LS_NONCE}, {NULL, 0}};
    LS_TRY(prove(v, "join", parts, body + 8 + LS_NONCE));
    LS_TRY(send_frame(v, LS_FRAME_JOIN, body, sizeof body));
    LS_TRY(expect(v, LS_FRAME_WELCOME, LS_PROOF, LS_PROOF));
    LS_TRY(prove(v, "welcome", parts, proof));
    if (!ls_proof_same(proof, v->w.body))
        return ls_fail(LS_PEER_LOST, "%s:%d does not know the token; nothing was told to it", v->l->address,
                       v->l->port);
    v->welcome = true;
    return LS_OK;
}

static enum ls_status join_host(struct joining *v)
{
    enum ls_status st;
    do {
        if (v->again)
            pause_for(RETRY_SECONDS);
        v->again = false;
        ls_wire_release(&v->w);
        LS_TRY(connect_to_host(v));
        st = join(v);
    } while (v->again);
    return st;
}

static enum ls_status give_address(struct joining *v)
{
    const struct ls_address *own = &v->m->address[v->m->size];
    uint8_t *body = ls_alloc(LS_PROOF + own->bytes, 1);
    if (!body)
        return LS_FAILED;
    memcpy(body + LS_PROOF, own->data, own->bytes);
    const struct ls_proof_part parts[] = {{v->nonce, LS_NONCE}, {own->data, own->bytes}, {NULL, 0}};
    enum ls_status st = prove(v, "address", parts, body);
    if (st == LS_OK)
        st = send_frame(v, LS_FRAME_ADDRESS, body, LS_PROOF + own->bytes);
    ls_free(body);
    return st;
}

/* The proof, the nonce of the key and the list of table.c. */
static enum ls_status read_table(struct joining *v)
{
    uint8_t proof[LS_PROOF];
    const uint8_t *p = v->w.body + LS_PROOF, *end = v->w.body + v->w.length;
    const struct ls_proof_part parts[] = {{v->nonce, LS_NONCE}, {p, (size_t)(end - p)}, {NULL, 0}};
    LS_TRY(prove(v, "table", parts, proof));
    if (!ls_proof_same(proof, v->w.body))
        return ls_fail(LS_PEER_LOST, "%s:%d: the list of processes was changed on its way", v->l->address, v->l->port);
    const struct ls_proof_part seed[] = {{p, LS_NONCE}, {NULL, 0}};
    LS_TRY(prove(v, "key", seed, v->m->key));
    p += LS_NONCE;
    bool whole;
    LS_TRY(ls_rendezvous_read_table(v->m, p, (size_t)(end - p), &whole));
    return whole ? LS_OK : ls_fail(LS_PEER_LOST, "%s:%d: the list of processes is cut off", v->l->address, v->l->port);
}

enum ls_status ls_rendezvous_join(const struct ls_launch *launch, double until, struct ls_rendezvous *m)
{
    enum ls_status st;
    struct joining v = {.l = launch, .m = m, .begun = ls_now(), .until = until};
    ls_wire_init(&v.w, -1);
    LS_TRY_GOTO(out, join_host(&v));
    LS_TRY_GOTO(out, give_address(&v));
    v.until = ls_now() + (until - v.begun) + GRACE;
    LS_TRY_GOTO(out, expect(&v, LS_FRAME_TABLE, LS_PROOF + LS_NONCE,
                            LS_PROOF + LS_NONCE + (size_t)m->size * (4 + LS_ADDRESS_LIMIT)));
    LS_TRY_GOTO(out, read_table(&v));
out:
    ls_wire_release(&v.w);
    return st;
}
