/* Rank 0 of a rendezvous over TCP. Every connection is a small state machine, and none waits for another:
 *
 *     accepted  -> challenge sent -> JOIN (proof of the token) -> ADDRESS -> joined: waits for the table
 *
 * A connection that has not proved the token may send one frame of a hundred bytes within some seconds. When there are too
 * many such connections, the oldest that has sent nothing is closed for the next one. So idle connections keep no rank
 * out. */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/owner.h"
#include "comm/rendezvous/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define UNPROVEN_MOST 64 /* connections at once without a proof; a new one replaces the oldest */
#define UNPROVEN_SECONDS 10.0
#define WARNINGS 8 /* lines about refused connections, at most */
#define JOIN_BYTES (8 + LS_NONCE + LS_PROOF)

struct joiner {
    struct ls_wire w; /* fd -1: a free entry */
    enum { UNPROVEN, PROVEN, JOINED } state;
    int rank;
    double until;
    uint8_t ours[LS_NONCE], theirs[LS_NONCE];
    char from[64];
};

struct host {
    const struct ls_launch *l;
    struct ls_rendezvous *m;
    struct joiner *joiners; /* owned */
    struct pollfd *polled;  /* owned; one more than joiners */
    int places, listener, in, warnings;
    double begun, until;
};

static enum ls_status prove(const struct host *h, const char *purpose, const struct ls_proof_part *parts,
                            uint8_t proof[LS_PROOF])
{
    const char *token = h->l->token ? h->l->token : "";
    return ls_proof_make(token, strlen(token), purpose, parts, proof);
}

/* --- connections ---------------------------------------------------------------------------------------------- */

/* When there are too many connections without a proof: closes the oldest that has sent nothing, or else the oldest. */
static void make_room(struct host *h)
{
    struct joiner *oldest = NULL;
    int n = 0;
    for (int i = 0; i < h->places; i++) {
        struct joiner *g = &h->joiners[i];
        if (g->w.fd < 0 || g->state != UNPROVEN)
            continue;
        n++;
        bool silent = g->w.got == 0, other = oldest && oldest->w.got == 0;
        if (!oldest || (silent && !other) || (silent == other && g->until < oldest->until))
            oldest = g;
    }
    if (n >= UNPROVEN_MOST)
        ls_wire_release(&oldest->w);
}

static void warn(struct host *h, const struct joiner *g, const char *what)
{
    if (h->warnings++ < WARNINGS)
        ls_warn("rank 0 at %s:%d turned away a process from %s: %s", h->l->address, h->l->port, g->from, what);
}

static void refuse(struct joiner *g, enum ls_status status, const char *why)
{
    uint8_t body[LS_TEXT_LIMIT];
    size_t n = strlen(why) < sizeof body - 4 ? strlen(why) : sizeof body - 4;
    ls_put32(body, (uint32_t)status);
    memcpy(body + 4, why, n);
    ls_wire_write(&g->w, LS_FRAME_REFUSE, body, 4 + n, 0);
}

static void turn_away(struct host *h, struct joiner *g, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void turn_away(struct host *h, struct joiner *g, const char *format, ...)
{
    char text[LS_TEXT_LIMIT - 4];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    warn(h, g, text);
    refuse(g, LS_USAGE, text);
    ls_wire_release(&g->w);
}

static void leave(struct host *h, struct joiner *g)
{
    if (g->state != UNPROVEN && g->state != JOINED)
        warn(h, g, "it went away");
    if (g->state == JOINED) {
        ls_warn("rank %d at %s went away before all had come", g->rank, g->from);
        ls_free(h->m->address[g->rank].data);
        h->m->address[g->rank] = (struct ls_address){0};
        h->in--;
    }
    ls_wire_release(&g->w);
}

static enum ls_status send_challenge(struct host *h, int fd, const struct sockaddr *address, socklen_t length)
{
    struct joiner *g = h->joiners;
    while (g->w.fd >= 0)
        g++;
    *g = (struct joiner){.rank = -1, .until = ls_now() + UNPROVEN_SECONDS};
    ls_wire_init(&g->w, fd);
    g->w.limit = JOIN_BYTES;
    ls_wire_name(address, length, g->from);
    LS_TRY(ls_proof_random(g->ours, LS_NONCE));
    if (!ls_wire_write(&g->w, LS_FRAME_CHALLENGE, g->ours, LS_NONCE, 0))
        ls_wire_release(&g->w);
    return LS_OK;
}

/* A limited number at a time: connections that have answered are read before more are accepted. */
static enum ls_status accept_some(struct host *h)
{
    for (int i = 0; i < UNPROVEN_MOST / 2; i++) {
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        int fd = accept4(h->listener, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return LS_OK;
        make_room(h);
        LS_TRY(send_challenge(h, fd, (struct sockaddr *)&address, length));
    }
    return LS_OK;
}

static bool taken(const struct host *h, int rank)
{
    bool found = rank == 0;
    for (int i = 0; i < h->places && !found; i++)
        found = h->joiners[i].w.fd >= 0 && h->joiners[i].state != UNPROVEN && h->joiners[i].rank == rank;
    return found;
}

/* Another number of processes means that the processes were not started for the same run: the rendezvous fails. */
static enum ls_status take_join(struct host *h, struct joiner *g)
{
    const uint8_t *body = g->w.body;
    uint8_t proof[LS_PROOF];
    const struct ls_proof_part parts[] = {{g->ours, LS_NONCE}, {body, 8 + LS_NONCE}, {NULL, 0}};
    LS_TRY(prove(h, "join", parts, proof));
    if (!ls_proof_same(proof, body + 8 + LS_NONCE)) {
        turn_away(h, g, "wrong token; LOCKSTEP_TOKEN (or --token) must be the same for all");
        return LS_OK;
    }
    if (!h->l->token && !ls_owner_is_same_user(g->w.fd)) {
        turn_away(h, g, "it is another user's; set LOCKSTEP_TOKEN to the same text for all");
        return LS_OK;
    }
    uint32_t rank = ls_get32(body), size = ls_get32(body + 4);
    if (size != (uint32_t)h->m->size) {
        g->state = PROVEN; /* it gets the refusal with the others */
        return ls_fail(LS_USAGE, "rank %u at %s was started for %u processes, rank 0 for %d; give all the same number",
                       rank, g->from, size, h->m->size);
    }
    if (rank >= size || taken(h, (int)rank)) {
        turn_away(h, g, "there is a rank %u already; each process needs a rank of its own, 0 to %u", rank, size - 1);
        return LS_OK;
    }
    memcpy(g->theirs, body + 8, LS_NONCE);
    g->rank = (int)rank;
    g->state = PROVEN;
    g->w.limit = LS_PROOF + LS_ADDRESS_LIMIT;
    LS_TRY(prove(h, "welcome", parts, proof));
    if (!ls_wire_write(&g->w, LS_FRAME_WELCOME, proof, LS_PROOF, 0))
        leave(h, g);
    return LS_OK;
}

static enum ls_status take_address(struct host *h, struct joiner *g)
{
    uint8_t proof[LS_PROOF];
    const uint8_t *address = g->w.body + LS_PROOF;
    size_t bytes = g->w.length - LS_PROOF;
    const struct ls_proof_part parts[] = {{g->theirs, LS_NONCE}, {address, bytes}, {NULL, 0}};
    LS_TRY(prove(h, "address", parts, proof));
    if (!ls_proof_same(proof, g->w.body)) {
        turn_away(h, g, "its address was changed on its way");
        return LS_OK;
    }
    LS_TRY(ls_rendezvous_set_address(h->m, g->rank, address, bytes));
    g->state = JOINED;
    g->w.limit = 0;
    h->in++;
    return LS_OK;
}

static enum ls_status read_from(struct host *h, struct joiner *g)
{
    enum ls_wire_state state = ls_wire_read(&g->w);
    bool frame = state == LS_WIRE_FRAME;
    if (state == LS_WIRE_MORE)
        return LS_OK;
    if (frame && g->state == UNPROVEN && g->w.kind == LS_FRAME_JOIN && g->w.length == JOIN_BYTES)
        return take_join(h, g);
    if (frame && g->state == PROVEN && g->w.kind == LS_FRAME_ADDRESS && g->w.length >= LS_PROOF)
        return take_address(h, g);
    if (state == LS_WIRE_GONE && g->state != UNPROVEN) {
        leave(h, g);
        return LS_OK;
    }
    warn(h, g, "it does not speak Lockstep");
    if (g->state == JOINED)
        leave(h, g);
    ls_wire_release(&g->w);
    return LS_OK;
}

/* --- all ranks ---------------------------------------------------------------------------------------- */

static enum ls_status poll_once(struct host *h)
{
    h->polled[0] = (struct pollfd){.fd = h->listener, .events = POLLIN};
    for (int i = 0; i < h->places; i++)
        h->polled[i + 1] = (struct pollfd){.fd = h->joiners[i].w.fd, .events = POLLIN};
    poll(h->polled, (nfds_t)h->places + 1, ls_wire_timeout_ms(h->until));
    for (int i = 0; i < h->places; i++) {
        struct joiner *g = &h->joiners[i];
        if (g->w.fd >= 0 && h->polled[i + 1].revents)
            LS_TRY(read_from(h, g));
        if (g->w.fd >= 0 && g->state != JOINED && ls_now() > g->until)
            turn_away(h, g, "it was silent for too long");
    }
    return h->polled[0].revents ? accept_some(h) : LS_OK;
}

static void refuse_all(struct host *h, enum ls_status status, const char *why)
{
    for (int i = 0; i < h->places; i++)
        if (h->joiners[i].w.fd >= 0 && h->joiners[i].state != UNPROVEN)
            refuse(&h->joiners[i], status, why);
}

static enum ls_status gather(struct host *h)
{
    while (h->in < h->m->size - 1) {
        enum ls_status st = poll_once(h);
        if (st != LS_OK) {
            refuse_all(h, st, ls_log_last());
            return st;
        }
        if (ls_now() < h->until || h->in == h->m->size - 1)
            continue;
        char who[256], why[400];
        ls_rendezvous_missing(h->m, who, sizeof who);
        snprintf(why, sizeof why, "%s did not come to %s:%d within %.0f s", who, h->l->address, h->l->port,
                 h->until - h->begun);
        refuse_all(h, LS_PEER_LOST, why);
        return ls_fail(LS_PEER_LOST, "%s", why);
    }
    return LS_OK;
}

/* The list of table.c, with room for a proof and a nonce in front. */
static enum ls_status make_table(const struct host *h, uint8_t **table, size_t *bytes)
{
    size_t n = LS_PROOF + LS_NONCE;
    for (int i = 0; i < h->m->size; i++)
        n += 4 + h->m->address[i].bytes;
    uint8_t *body = ls_alloc(n, 1), *p = body + LS_PROOF + LS_NONCE;
    if (!body)
        return LS_FAILED;
    for (int i = 0; i < h->m->size; i++) {
        const struct ls_address *a = &h->m->address[i];
        ls_put32(p, (uint32_t)a->bytes);
        memcpy(p + 4, a->data, a->bytes);
        p += 4 + a->bytes;
    }
    *table = body;
    *bytes = n;
    return ls_proof_random(body + LS_PROOF, LS_NONCE);
}

static enum ls_status send_table(struct host *h)
{
    uint8_t *table = NULL;
    size_t bytes;
    enum ls_status st = make_table(h, &table, &bytes);
    for (int i = 0; st == LS_OK && i < h->places; i++) {
        struct joiner *g = &h->joiners[i];
        if (g->w.fd < 0 || g->state != JOINED)
            continue;
        const struct ls_proof_part parts[] = {{g->theirs, LS_NONCE}, {table + LS_PROOF, bytes - LS_PROOF}, {NULL, 0}};
        st = prove(h, "table", parts, table);
        if (st == LS_OK && !ls_wire_write(&g->w, LS_FRAME_TABLE, table, bytes, h->until))
            st = ls_fail(LS_PEER_LOST, "rank %d at %s went away before it knew where the others are", g->rank, g->from);
    }
    const struct ls_proof_part seed[] = {{table ? table + LS_PROOF : NULL, LS_NONCE}, {NULL, 0}};
    if (st == LS_OK)
        st = prove(h, "key", seed, h->m->key);
    ls_free(table);
    return st;
}

static void release(struct host *h)
{
    for (int i = 0; h->joiners && i < h->places; i++)
        ls_wire_release(&h->joiners[i].w);
    if (h->listener >= 0)
        close(h->listener);
    ls_free(h->joiners);
    ls_free(h->polled);
}

enum ls_status ls_rendezvous_host(const struct ls_launch *launch, double until, struct ls_rendezvous *m)
{
    enum ls_status st;
    const struct ls_address *own = &m->address[m->size];
    struct host h = {.l = launch, .m = m, .listener = -1, .begun = ls_now(), .until = until};
    h.places = m->size + UNPROVEN_MOST;
    h.joiners = ls_alloc((size_t)h.places, sizeof *h.joiners);
    h.polled = ls_alloc((size_t)h.places + 1, sizeof *h.polled);
    for (int i = 0; h.joiners && i < h.places; i++)
        ls_wire_init(&h.joiners[i].w, -1);
    LS_TRY_GOTO(out, h.joiners && h.polled ? LS_OK : LS_FAILED);
    LS_TRY_GOTO(out, ls_rendezvous_set_address(m, 0, own->data, own->bytes));
    LS_TRY_GOTO(out, ls_rendezvous_listen(launch, &h.listener));
    LS_TRY_GOTO(out, gather(&h));
    LS_TRY_GOTO(out, send_table(&h));
out:
    release(&h);
    return st;
}
