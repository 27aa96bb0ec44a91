/* Transport `shm`: messages between the processes of a node, through the rings of the segment. Records are those of
 * transfer.h. */
#include "base/log.h"
#include "base/memory.h"
#include "comm/transfer.h"
#include "comm/transports.h"

#include <stdio.h>
#include <string.h>

enum kind { SHORT = 1, ASK, GRANT, PIECE, SKIP /* the rest of the ring is empty */ };
enum { SHORT_MOST = 2048, RECORD_ALIGN = 32, SPARES = 64 };

struct record {
    uint32_t kind, tag;
    uint64_t id;    /* ASK, GRANT: the send's; PIECE: the receive's; SHORT: none */
    uint64_t bytes; /* ASK: of the message; GRANT: the receive's id; otherwise of the data that follows */
    uint64_t unused;
};

struct shm {
    struct ls_shm_segment *segment; /* owned when `owns` */
    bool owns;
    struct ls_transfer_queue *sends;   /* owned; for each peer, in order */
    struct ls_transfer_queue receives; /* posted, not matched */
    struct ls_transfer_queue arriving; /* matched, to be granted or under way */
    struct ls_unexpected_list unexpected;
    uint64_t last_id;
};

/* --- rings ---------------------------------------------------------------------------------------------------- */

static size_t record_size(size_t payload)
{
    return (sizeof(struct record) + payload + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

/* Writes a record; false: there is no room for it. */
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

/* Several pieces fit a ring, so that sender and receiver work at the same time. */
static size_t piece_most(const struct shm *s)
{
    return s->segment->ring / 8 - sizeof(struct record);
}

/* --- receiving ------------------------------------------------------------------------------------------------- */

/* A receive meets an announced message. */
static void accept_long(struct shm *s, struct ls_transfer *t, int peer, uint64_t bytes, uint64_t id)
{
    if (bytes > t->size) {
        ls_transfer_received(t, peer, bytes, true);
        return;
    }
    t->peer = peer;
    t->size = bytes;
    t->other = id;
    t->stage = LS_TRANSFER_ASKED;
    ls_transfer_queue_add(&s->arriving, t);
}

static void take_piece(struct shm *s, int peer, const struct record *r, const void *payload)
{
    struct ls_transfer *t = ls_transfer_queue_find(&s->arriving, r->id, peer);
    if (!t || r->bytes > t->size - t->moved)
        return; /* cancelled */
    memcpy(t->data + t->moved, payload, r->bytes);
    t->moved += r->bytes;
    if (t->moved == t->size) {
        ls_transfer_queue_remove(&s->arriving, t);
        ls_transfer_received(t, peer, t->size, false);
    }
}

static void take(struct shm *s, int peer, const struct record *r, const void *payload)
{
    struct ls_transfer *t;
    switch (r->kind) {
    case SHORT:
    case ASK:
        t = ls_transfer_queue_match(&s->receives, peer, r->tag);
        if (!t) /* without memory, which was reported, the receive misses its deadline */
            ls_unexpected_keep(&s->unexpected, peer, r->tag, r->id, r->bytes, r->kind == SHORT ? payload : NULL);
        else if (r->kind == SHORT)
            ls_transfer_take_short(t, peer, payload, r->bytes);
        else
            accept_long(s, t, peer, r->bytes, r->id);
        break;
    case GRANT:
        t = ls_transfer_queue_find(&s->sends[peer], r->id, peer);
        if (t) {
            t->other = r->bytes;
            t->stage = LS_TRANSFER_GRANTED;
        }
        break;
    case PIECE:
        take_piece(s, peer, r, payload);
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

/* --- sending --------------------------------------------------------------------------------------------------- */

/* Moves a send as far as it goes now; true: something moved. */
static bool push(struct shm *s, struct ls_transfer *t)
{
    bool moved = false;
    if (t->stage == LS_TRANSFER_NEW) {
        bool is_short = t->size <= SHORT_MOST;
        struct record r = {.kind = is_short ? SHORT : ASK, .tag = t->tag, .id = is_short ? 0 : t->id, .bytes = t->size};
        if (!put(s, t->peer, r, t->data))
            return false;
        t->stage = is_short ? LS_TRANSFER_DONE : LS_TRANSFER_ASKED;
        return true;
    }
    while (t->stage == LS_TRANSFER_GRANTED && t->moved < t->size) {
        uint64_t left = t->size - t->moved, n = left < piece_most(s) ? left : piece_most(s);
        if (!put(s, t->peer, (struct record){.kind = PIECE, .id = t->other, .bytes = n}, t->data + t->moved))
            return moved;
        t->moved += n;
        moved = true;
    }
    if (t->stage == LS_TRANSFER_GRANTED)
        t->stage = LS_TRANSFER_DONE;
    return moved;
}

/* In order: a send that could not begin holds up those behind it, so that messages under a tag stay in order. */
static bool push_all(struct shm *s, struct ls_transfer_queue *q)
{
    bool moved = false;
    struct ls_transfer *next;
    for (struct ls_transfer *t = q->head; t; t = next) {
        next = t->next;
        moved |= push(s, t);
        if (t->stage == LS_TRANSFER_DONE)
            ls_transfer_queue_remove(q, t);
        else if (t->stage == LS_TRANSFER_NEW)
            break;
    }
    return moved;
}

static bool grant_all(struct shm *s)
{
    bool moved = false;
    for (struct ls_transfer *t = s->arriving.head; t; t = t->next)
        if (t->stage == LS_TRANSFER_ASKED &&
            put(s, t->peer, (struct record){.kind = GRANT, .id = t->other, .bytes = t->id}, NULL)) {
            t->stage = LS_TRANSFER_ARRIVING;
            moved = true;
        }
    return moved;
}

static void progress(struct shm *s)
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
    struct ls_transfer *t = ls_transfer_of(request);
    *t = (struct ls_transfer){
        .data = (char *)(uintptr_t)data, .size = bytes, .id = ++s->last_id, .tag = tag, .peer = peer};
    request->peer = peer;
    request->bytes = bytes;
    ls_transfer_queue_add(&s->sends[peer], t);
    push_all(s, &s->sends[peer]);
    return LS_OK;
}

static enum ls_status shm_receive(void *state, int peer, uint32_t tag, void *data, size_t room,
                                  struct ls_transport_request *request)
{
    struct shm *s = state;
    struct ls_transfer *t = ls_transfer_of(request);
    *t = (struct ls_transfer){
        .data = data, .size = room, .id = ++s->last_id, .tag = tag, .peer = peer, .stage = LS_TRANSFER_POSTED};
    request->peer = peer;
    request->too_long = false;
    struct ls_unexpected *u = ls_unexpected_find(&s->unexpected, t);
    if (!u) {
        ls_transfer_queue_add(&s->receives, t);
        return LS_OK;
    }
    if (u->id)
        accept_long(s, t, u->peer, u->bytes, u->id);
    else
        ls_transfer_take_short(t, u->peer, u->data, u->bytes);
    ls_unexpected_recycle(&s->unexpected, u);
    return LS_OK;
}

static enum ls_status shm_test(void *state, struct ls_transport_request *request, bool *done)
{
    const struct ls_transfer *t = ls_transfer_of(request);
    if (t->stage != LS_TRANSFER_DONE)
        progress(state);
    *done = t->stage == LS_TRANSFER_DONE;
    return LS_OK;
}

static void shm_cancel(void *state, struct ls_transport_request *request)
{
    struct shm *s = state;
    struct ls_transfer *t = ls_transfer_of(request);
    if (t->peer >= 0)
        ls_transfer_queue_remove(&s->sends[t->peer], t);
    ls_transfer_queue_remove(&s->receives, t);
    ls_transfer_queue_remove(&s->arriving, t);
}

static void shm_close(void *state, bool graceful)
{
    struct shm *s = state;
    (void)graceful;
    ls_unexpected_release(&s->unexpected);
    if (s->owns)
        ls_shm_segment_close(s->segment);
    ls_free(s->sends);
    ls_free(s);
}

enum ls_status ls_shm_on_segment(struct ls_shm_segment *segment, void **state)
{
    struct shm *s = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    s->segment = segment;
    ls_transfer_queue_init(&s->receives);
    ls_transfer_queue_init(&s->arriving);
    s->sends = ls_alloc((size_t)segment->size, sizeof *s->sends);
    if (ls_unexpected_init(&s->unexpected, SHORT_MOST, SPARES) != LS_OK || !s->sends) {
        shm_close(s, false);
        return LS_FAILED;
    }
    for (int i = 0; i < segment->size; i++)
        ls_transfer_queue_init(&s->sends[i]);
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
