/* Messages between the processes of a node, through the rings of the segment. A short message travels in one record. A
 * long one is asked for first and sent in pieces once the receiver has a place for it, so that nothing large ever
 * waits in a ring and no message stands in another's way.
 *
 *     sender                 receiver
 *     SHORT  bytes  ----->   into a posted receive, or put by until there is one
 *     ASK    size   ----->
 *            <-----  GRANT   once a receive is posted
 *     PIECE  bytes  ----->   ... until all is there
 */
#include "comm/transports.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum kind { SHORT = 1, ASK, GRANT, PIECE, SKIP /* the rest of the ring is left empty */ };
enum { SHORT_MOST = 2048, RECORD_ALIGN = 32, KEPT_AT_FIRST = 64 };

struct record {
    uint32_t kind, tag;
    uint64_t id;    /* SHORT: none; ASK: the send's; GRANT: the send's; PIECE: the receive's */
    uint64_t bytes; /* ASK: of the message; else of what follows; GRANT: the receive's id */
    uint64_t unused;
};

enum stage { NEW, ASKED, GRANTED, MOVING, DONE, TOO_LONG };

/* A request of struct ls_transport_request, in its words. */
struct __attribute__((may_alias)) mail {
    struct mail *next;
    char *data;
    uint64_t size, moved; /* bytes of the message (a receive: its room, until matched) */
    uint64_t id, other;   /* ours; the other side's */
    uint32_t tag;
    int32_t peer; /* -1: any */
    uint32_t stage, receives;
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

struct shm {
    struct ls_shm_segment *segment; /* owned when `owns` */
    bool owns;
    struct queue *sends;   /* owned; for each peer, in order */
    struct queue receives; /* posted, not matched */
    struct queue arriving; /* matched, to be granted or under way */
    struct kept *kept, **kept_end, *spare;
    struct kept *pool; /* owned; the first KEPT_AT_FIRST */
    uint64_t last_id;
};

static struct mail *mail_of(struct ls_transport_request *r)
{
    return (struct mail *)(void *)r->words;
}

static struct ls_transport_request *request_of(struct mail *m)
{
    return (struct ls_transport_request *)(void *)m; /* words come first */
}

static void queue_add(struct queue *q, struct mail *m)
{
    m->next = NULL;
    *q->end = m;
    q->end = &m->next;
}

static void queue_remove(struct queue *q, struct mail *m)
{
    for (struct mail **at = &q->head; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            if (q->end == &m->next)
                q->end = at;
            return;
        }
}

/* --- rings ---------------------------------------------------------------------------------------------------- */

static size_t record_size(size_t payload)
{
    return (sizeof(struct record) + payload + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

/* Write a record if there is room for it. */
static bool put(struct shm *s, int peer, struct record r, const void *payload)
{
    struct ls_ring *ring = ls_shm_ring(s->segment, s->segment->me, peer);
    size_t bytes = r.kind == ASK || r.kind == GRANT ? 0 : r.bytes, need = record_size(bytes), room = s->segment->ring;
    uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    size_t to_end = room - at % room, skipped = to_end < need ? to_end : 0;
    if (room - (at - taken) < need + skipped)
        return false;
    if (skipped) {
        struct record skip = {.kind = SKIP, .bytes = skipped};
        memcpy(ring->bytes + at % room, &skip, sizeof skip);
        at += skipped;
    }
    unsigned char *to = ring->bytes + at % room;
    memcpy(to, &r, sizeof r);
    if (bytes > 0)
        memcpy(to + sizeof r, payload, bytes);
    atomic_store_explicit(&ring->written, at + need, memory_order_release);
    ls_doorbell_ring(&ls_shm_slot(s->segment, peer)->doorbell);
    return true;
}

/* Pieces are small enough that sender and receiver work on different ones at a time. */
static size_t piece_most(const struct shm *s)
{
    return s->segment->ring / 8 - sizeof(struct record);
}

/* --- matching --------------------------------------------------------------------------------------------------- */

static bool fits(const struct mail *m, int peer, uint32_t tag)
{
    return (m->peer == peer || m->peer < 0) && m->tag == tag;
}

/* This receive gets a message of so many bytes; false: it has no room for it. */
static bool match(struct mail *m, int peer, uint64_t bytes)
{
    struct ls_transport_request *r = request_of(m);
    r->peer = peer;
    r->bytes = bytes;
    m->peer = peer;
    m->stage = bytes > m->size ? TOO_LONG : MOVING;
    m->size = bytes;
    return m->stage == MOVING;
}

static void take_short(struct mail *m, int peer, const void *data, uint64_t bytes)
{
    if (!match(m, peer, bytes))
        return;
    if (bytes > 0)
        memcpy(m->data, data, bytes);
    m->stage = DONE;
}

static void take_ask(struct shm *s, struct mail *m, int peer, uint64_t bytes, uint64_t id)
{
    if (!match(m, peer, bytes))
        return;
    m->other = id;
    m->stage = ASKED;
    queue_add(&s->arriving, m);
}

static struct mail *find_receive(struct shm *s, int peer, uint32_t tag)
{
    for (struct mail *m = s->receives.head; m; m = m->next)
        if (fits(m, peer, tag)) {
            queue_remove(&s->receives, m);
            return m;
        }
    return NULL;
}

/* Put a message by. More memory is taken only when very many wait. */
static void keep(struct shm *s, int peer, const struct record *r, const void *payload)
{
    struct kept *k = s->spare;
    if (k) {
        s->spare = k->next;
    } else {
        k = ls_alloc(1, sizeof *k);
        if (!k)
            return; /* said; the receive will miss its deadline */
    }
    k->peer = peer;
    k->tag = r->tag;
    k->bytes = r->bytes;
    k->id = r->kind == ASK ? r->id : 0;
    if (r->kind == SHORT && r->bytes > 0)
        memcpy(k->data, payload, r->bytes);
    k->next = NULL;
    *s->kept_end = k;
    s->kept_end = &k->next;
}

/* --- moving on ---------------------------------------------------------------------------------------------------- */

static struct mail *by_id(const struct queue *q, uint64_t id)
{
    struct mail *m = q->head;
    while (m && m->id != id)
        m = m->next;
    return m;
}

static void take_piece(struct shm *s, const struct record *r, const void *payload)
{
    struct mail *m = by_id(&s->arriving, r->id);
    if (!m || r->bytes > m->size - m->moved)
        return; /* given up meanwhile */
    memcpy(m->data + m->moved, payload, r->bytes);
    m->moved += r->bytes;
    if (m->moved == m->size) {
        queue_remove(&s->arriving, m);
        m->stage = DONE;
    }
}

static void take(struct shm *s, int peer, const struct record *r, const void *payload)
{
    struct mail *m;
    switch (r->kind) {
    case SHORT:
    case ASK:
        m = find_receive(s, peer, r->tag);
        if (!m)
            keep(s, peer, r, payload);
        else if (r->kind == SHORT)
            take_short(m, peer, payload, r->bytes);
        else
            take_ask(s, m, peer, r->bytes, r->id);
        break;
    case GRANT:
        m = by_id(&s->sends[peer], r->id);
        if (m) {
            m->other = r->bytes;
            m->stage = GRANTED;
        }
        break;
    case PIECE:
        take_piece(s, r, payload);
        break;
    default:
        break;
    }
}

static bool read_ring(struct shm *s, int peer)
{
    struct ls_ring *ring = ls_shm_ring(s->segment, peer, s->segment->me);
    size_t room = s->segment->ring;
    uint64_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed), before = at;
    while (at != atomic_load_explicit(&ring->written, memory_order_acquire)) {
        struct record r;
        const unsigned char *from = ring->bytes + at % room;
        memcpy(&r, from, sizeof r);
        if (r.kind != SKIP)
            take(s, peer, &r, from + sizeof r);
        at += r.kind == SKIP ? r.bytes : record_size(r.kind == ASK || r.kind == GRANT ? 0 : r.bytes);
        atomic_store_explicit(&ring->taken, at, memory_order_release);
    }
    if (at == before)
        return false;
    ls_doorbell_ring(&ls_shm_slot(s->segment, peer)->doorbell);
    return true;
}

/* One send: true when it went as far as it can for now and something moved. */
static bool push(struct shm *s, struct mail *m)
{
    bool moved = false;
    if (m->stage == NEW && m->size <= SHORT_MOST) {
        struct record r = {.kind = SHORT, .tag = m->tag, .bytes = m->size};
        if (put(s, m->peer, r, m->data))
            m->stage = DONE;
        return m->stage == DONE;
    }
    if (m->stage == NEW) {
        if (!put(s, m->peer, (struct record){.kind = ASK, .tag = m->tag, .id = m->id, .bytes = m->size}, NULL))
            return false;
        m->stage = ASKED;
        return true;
    }
    while (m->stage == GRANTED && m->moved < m->size) {
        uint64_t left = m->size - m->moved, n = left < piece_most(s) ? left : piece_most(s);
        if (!put(s, m->peer, (struct record){.kind = PIECE, .id = m->other, .bytes = n}, m->data + m->moved))
            return moved;
        m->moved += n;
        moved = true;
    }
    if (m->stage == GRANTED)
        m->stage = DONE;
    return moved;
}

/* In order, so that no message under a tag overtakes another: a send that could not begin holds up those behind it. */
static bool push_all(struct shm *s, struct queue *q)
{
    bool moved = false;
    struct mail *next;
    for (struct mail *m = q->head; m; m = next) {
        next = m->next;
        moved |= push(s, m);
        if (m->stage == DONE)
            queue_remove(q, m);
        else if (m->stage == NEW)
            break;
    }
    return moved;
}

static bool grant_all(struct shm *s)
{
    bool moved = false;
    for (struct mail *m = s->arriving.head; m; m = m->next)
        if (m->stage == ASKED &&
            put(s, m->peer, (struct record){.kind = GRANT, .id = m->other, .bytes = m->id}, NULL)) {
            m->stage = MOVING;
            moved = true;
        }
    return moved;
}

static void move_on(struct shm *s)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int peer = 0; peer < s->segment->size; peer++) {
            moved |= read_ring(s, peer);
            if (s->sends[peer].head)
                moved |= push_all(s, &s->sends[peer]);
        }
        if (s->arriving.head)
            moved |= grant_all(s);
    }
}

/* --- the transport ------------------------------------------------------------------------------------------------ */

static enum ls_status shm_send(void *state, int peer, uint32_t tag, const void *data, size_t bytes,
                               struct ls_transport_request *request)
{
    struct shm *s = state;
    struct mail *m = mail_of(request);
    *m = (struct mail){.data = (char *)(uintptr_t)data, .size = bytes, .id = ++s->last_id, .tag = tag, .peer = peer};
    request->peer = peer;
    request->bytes = bytes;
    queue_add(&s->sends[peer], m);
    push_all(s, &s->sends[peer]);
    return LS_OK;
}

static enum ls_status shm_receive(void *state, int peer, uint32_t tag, void *data, size_t room,
                                  struct ls_transport_request *request)
{
    struct shm *s = state;
    struct mail *m = mail_of(request);
    *m = (struct mail){.data = data, .size = room, .id = ++s->last_id, .tag = tag, .peer = peer, .receives = 1};
    request->peer = peer;
    for (struct kept **at = &s->kept; *at; at = &(*at)->next)
        if (fits(m, (*at)->peer, (*at)->tag)) {
            struct kept *k = *at;
            *at = k->next;
            if (s->kept_end == &k->next)
                s->kept_end = at;
            if (k->id)
                take_ask(s, m, k->peer, k->bytes, k->id);
            else
                take_short(m, k->peer, k->data, k->bytes);
            k->next = s->spare;
            s->spare = k;
            return LS_OK;
        }
    queue_add(&s->receives, m);
    return LS_OK;
}

static enum ls_status shm_test(void *state, struct ls_transport_request *request, bool *done)
{
    struct mail *m = mail_of(request);
    if (m->stage != DONE && m->stage != TOO_LONG)
        move_on(state);
    request->too_long = m->stage == TOO_LONG;
    *done = m->stage == DONE || m->stage == TOO_LONG;
    return LS_OK;
}

static void shm_cancel(void *state, struct ls_transport_request *request)
{
    struct shm *s = state;
    struct mail *m = mail_of(request);
    if (!m->receives)
        queue_remove(&s->sends[m->peer], m);
    queue_remove(&s->receives, m);
    queue_remove(&s->arriving, m);
}

static void free_kept(struct shm *s, struct kept *k)
{
    while (k) {
        struct kept *next = k->next;
        if (k < s->pool || k >= s->pool + KEPT_AT_FIRST)
            ls_free(k);
        k = next;
    }
}

static void shm_close(void *state, bool graceful)
{
    struct shm *s = state;
    (void)graceful;
    free_kept(s, s->kept);
    free_kept(s, s->spare);
    if (s->owns)
        ls_shm_segment_close(s->segment);
    ls_free(s->pool);
    ls_free(s->sends);
    ls_free(s);
}

enum ls_status ls_shm_on_segment(struct ls_shm_segment *segment, void **state)
{
    struct shm *s = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    s->segment = segment;
    s->kept_end = &s->kept;
    s->receives.end = &s->receives.head;
    s->arriving.end = &s->arriving.head;
    s->sends = ls_alloc((size_t)segment->size, sizeof *s->sends);
    s->pool = ls_alloc(KEPT_AT_FIRST, sizeof *s->pool);
    if (!s->sends || !s->pool) {
        shm_close(s, false);
        return LS_FAILED;
    }
    for (int i = 0; i < segment->size; i++)
        s->sends[i].end = &s->sends[i].head;
    for (int i = 0; i < KEPT_AT_FIRST; i++) {
        s->pool[i].next = s->spare;
        s->spare = &s->pool[i];
    }
    *state = s;
    return LS_OK;
}

struct ls_shm_segment *ls_shm_segment_of(void *state)
{
    return ((struct shm *)state)->segment;
}

static enum ls_status shm_open_all(struct ls_launch *launch, double deadline, void **state)
{
    char name[128];
    struct ls_shm_segment *segment;
    if (!launch->session || launch->rank < 0 || launch->rank >= launch->size)
        return ls_fail(LS_USAGE, "worker %d of %d has no session to join", launch->rank, launch->size);
    snprintf(name, sizeof name, "%s%s", launch->session[0] == '/' ? "" : "/lockstep-", launch->session);
    LS_TRY(ls_shm_segment_open(name, launch->size, launch->rank, deadline, &segment));
    enum ls_status st = ls_shm_on_segment(segment, state);
    if (st != LS_OK) {
        ls_shm_segment_close(segment);
        return st;
    }
    ((struct shm *)*state)->owns = true;
    return LS_OK;
}

const struct ls_transport ls_transport_shm = {
    .name = "shm",
    .open = shm_open_all,
    .close = shm_close,
    .send = shm_send,
    .receive = shm_receive,
    .test = shm_test,
    .cancel = shm_cancel,
};
