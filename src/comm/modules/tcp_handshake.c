/* The handshake of two ranks:
 *
 *     lower rank                       higher rank
 *                          <-----      CALL     both ranks, a nonce
 *     ANSWER  nonce, proof  ----->
 *                          <-----      CONFIRM  proof
 *     TAKEN                 -----> */
#define _GNU_SOURCE
#include "comm/modules/tcp_handshake.h"
#include "base/system/clock.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER = LS_NONCE + LS_PROOF };

void ls_tcp_drop(struct ls_tcp_handshake *c)
{
    ls_wire_release(&c->w);
    c->since = ls_now();
}

static enum ls_status prove(const struct ls_tcp_connecting *o, const char *purpose, const struct ls_tcp_handshake *c,
                            uint8_t proof[LS_PROOF])
{
    const struct ls_proof_part parts[] = {{c->call, LS_TCP_CALL}, {c->answer, LS_NONCE}, {NULL, 0}};
    return ls_proof_make(o->m->key, LS_PROOF, purpose, parts, proof);
}

/* The connection is ready: it belongs to the transport now, and other attempts for that rank end. */
static void keep(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c)
{
    int rank = c->rank;
    o->sockets[rank] = c->w.fd;
    c->w.fd = -1;
    for (int i = 0; i < o->n; i++)
        if (o->handshakes[i].rank == rank)
            ls_tcp_drop(&o->handshakes[i]);
}

void ls_tcp_begin(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c)
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
    c->state = LS_TCP_CONNECTING;
}

static enum ls_status send_call(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c)
{
    int error = 0;
    socklen_t n = sizeof error;
    if (getsockopt(c->w.fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error != 0) {
        o->why[c->rank] = error;
        ls_tcp_drop(c);
        return LS_OK;
    }
    ls_put32(c->call, (uint32_t)o->m->rank);
    ls_put32(c->call + 4, (uint32_t)c->rank);
    LS_TRY(ls_proof_random(c->call + 8, LS_NONCE));
    c->state = LS_TCP_CALLED;
    c->w.limit = ANSWER;
    if (!ls_wire_write(&c->w, LS_FRAME_CALL, c->call, LS_TCP_CALL, 0))
        ls_tcp_drop(c);
    return LS_OK;
}

static enum ls_status take_answer(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c)
{
    uint8_t proof[LS_PROOF];
    memcpy(c->answer, c->w.body, LS_NONCE);
    LS_TRY(prove(o, "answer", c, proof));
    bool right = ls_proof_same(proof, c->w.body + LS_NONCE);
    for (int i = 0; i < o->n && right; i++) /* only one of a rank is confirmed */
        right =
            o->handshakes[i].rank != c->rank || o->handshakes[i].w.fd < 0 || o->handshakes[i].state != LS_TCP_CONFIRMED;
    LS_TRY(prove(o, "confirm", c, proof));
    c->state = LS_TCP_CONFIRMED;
    c->w.limit = 0;
    if (!right || !ls_wire_write(&c->w, LS_FRAME_CONFIRM, proof, LS_PROOF, 0))
        ls_tcp_drop(c);
    return LS_OK;
}

static enum ls_status take_call(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c)
{
    uint8_t body[ANSWER];
    uint32_t from = ls_get32(c->w.body), to = ls_get32(c->w.body + 4);
    memcpy(c->call, c->w.body, LS_TCP_CALL);
    LS_TRY(ls_proof_random(c->answer, LS_NONCE));
    LS_TRY(prove(o, "answer", c, body + LS_NONCE));
    memcpy(body, c->answer, LS_NONCE);
    c->state = LS_TCP_ANSWERED;
    c->w.limit = LS_PROOF;
    bool ours = to == (uint32_t)o->m->rank && from > to && from < (uint32_t)o->m->size && o->sockets[from] < 0;
    if (!ours || !ls_wire_write(&c->w, LS_FRAME_ANSWER, body, ANSWER, 0))
        ls_tcp_drop(c);
    return LS_OK;
}

static enum ls_status take_confirm(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c)
{
    uint8_t proof[LS_PROOF];
    int from = (int)ls_get32(c->call);
    LS_TRY(prove(o, "confirm", c, proof));
    if (!ls_proof_same(proof, c->w.body) || o->sockets[from] >= 0 ||
        !ls_wire_write(&c->w, LS_FRAME_TAKEN, NULL, 0, 0)) {
        ls_tcp_drop(c);
        return LS_OK;
    }
    c->rank = from;
    keep(o, c);
    c->rank = -1;
    return LS_OK;
}

enum ls_status ls_tcp_advance(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c)
{
    static const struct {
        enum ls_frame kind;
        size_t bytes;
    } awaited[] = {[LS_TCP_CALLED] = {LS_FRAME_ANSWER, ANSWER},
                   [LS_TCP_CONFIRMED] = {LS_FRAME_TAKEN, 0},
                   [LS_TCP_ACCEPTED] = {LS_FRAME_CALL, LS_TCP_CALL},
                   [LS_TCP_ANSWERED] = {LS_FRAME_CONFIRM, LS_PROOF}};
    if (c->state == LS_TCP_CONNECTING)
        return send_call(o, c);
    enum ls_wire_state state = ls_wire_read(&c->w);
    if (state == LS_WIRE_MORE)
        return LS_OK;
    if (state != LS_WIRE_FRAME || c->w.kind != awaited[c->state].kind || c->w.length != awaited[c->state].bytes) {
        ls_tcp_drop(c);
        return LS_OK;
    }
    switch (c->state) {
    case LS_TCP_CALLED:
        return take_answer(o, c);
    case LS_TCP_ACCEPTED:
        return take_call(o, c);
    case LS_TCP_ANSWERED:
        return take_confirm(o, c);
    case LS_TCP_CONNECTING:
    case LS_TCP_CONFIRMED:
        break;
    }
    keep(o, c);
    return LS_OK;
}

/* For an accepted connection: a free entry, or that of the oldest connection which has sent nothing. */
static struct ls_tcp_handshake *free_handshake(struct ls_tcp_connecting *o)
{
    struct ls_tcp_handshake *best = o->handshakes;
    for (struct ls_tcp_handshake *c = o->handshakes; c < o->handshakes + LS_TCP_UNPROVEN; c++) {
        if (c->w.fd < 0)
            return c;
        bool silent = c->state == LS_TCP_ACCEPTED, other = best->state == LS_TCP_ACCEPTED;
        if ((silent && !other) || (silent == other && c->since < best->since))
            best = c;
    }
    ls_tcp_drop(best);
    return best;
}

void ls_tcp_accept(struct ls_tcp_connecting *o)
{
    for (int i = 0; i < LS_TCP_UNPROVEN / 2; i++) {
        int fd = accept4(o->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct ls_tcp_handshake *c = free_handshake(o);
        *c = (struct ls_tcp_handshake){.rank = -1, .state = LS_TCP_ACCEPTED, .since = ls_now()};
        ls_wire_init(&c->w, fd);
        c->w.limit = LS_TCP_CALL;
    }
}
