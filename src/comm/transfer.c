#include "comm/transfer.h"
#include "base/memory.h"

#include <string.h>

/* --- queues ------------------------------------------------------------------------------------------------ */

void ls_transfer_queue_init(struct ls_transfer_queue *q)
{
    *q = (struct ls_transfer_queue){NULL, &q->head};
}

void ls_transfer_queue_add(struct ls_transfer_queue *q, struct ls_transfer *t)
{
    t->next = NULL;
    *q->end = t;
    q->end = &t->next;
}

void ls_transfer_queue_remove(struct ls_transfer_queue *q, const struct ls_transfer *t)
{
    for (struct ls_transfer **at = &q->head; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            if (!*at)
                q->end = at;
            return;
        }
}

struct ls_transfer *ls_transfer_queue_find(struct ls_transfer_queue *q, uint64_t id, int peer)
{
    struct ls_transfer *t = q->head;
    while (t && (t->id != id || t->peer != peer))
        t = t->next;
    return t;
}

static bool fits(const struct ls_transfer *receive, int peer, uint32_t tag)
{
    return (receive->peer == peer || receive->peer < 0) && receive->tag == tag;
}

struct ls_transfer *ls_transfer_queue_match(struct ls_transfer_queue *q, int peer, uint32_t tag)
{
    struct ls_transfer *t = q->head;
    while (t && !fits(t, peer, tag))
        t = t->next;
    if (t)
        ls_transfer_queue_remove(q, t);
    return t;
}

/* --- receives ---------------------------------------------------------------------------------------------- */

void ls_transfer_received(struct ls_transfer *t, int peer, uint64_t bytes, bool too_long)
{
    struct ls_transport_request *r = ls_transfer_request(t);
    r->peer = peer;
    r->bytes = bytes;
    r->too_long = too_long;
    t->stage = LS_TRANSFER_DONE;
}

void ls_transfer_take_short(struct ls_transfer *t, int peer, const void *data, uint64_t bytes)
{
    if (bytes > 0 && bytes <= t->size)
        memcpy(t->data, data, bytes);
    ls_transfer_received(t, peer, bytes, bytes > t->size);
}

/* --- messages before their receive ------------------------------------------------------------------------- */

void ls_unexpected_recycle(struct ls_unexpected_list *l, struct ls_unexpected *u)
{
    u->next = l->spare;
    l->spare = u;
}

enum ls_status ls_unexpected_init(struct ls_unexpected_list *l, size_t room, int spares)
{
    *l = (struct ls_unexpected_list){.end = &l->head, .room = room};
    for (int i = 0; i < spares; i++) {
        struct ls_unexpected *u = ls_alloc(1, sizeof *u + room);
        if (!u)
            return LS_FAILED;
        ls_unexpected_recycle(l, u);
    }
    return LS_OK;
}

void ls_unexpected_release(struct ls_unexpected_list *l)
{
    struct ls_unexpected *lists[] = {l->head, l->spare};
    for (int i = 0; i < 2; i++)
        for (struct ls_unexpected *u = lists[i], *next; u; u = next) {
            next = u->next;
            ls_free(u);
        }
    l->head = l->spare = NULL;
}

bool ls_unexpected_keep(struct ls_unexpected_list *l, int peer, uint32_t tag, uint64_t id, uint64_t bytes,
                        const void *data)
{
    struct ls_unexpected *u = l->spare ? l->spare : ls_alloc(1, sizeof *u + l->room);
    if (!u)
        return false;
    if (l->spare)
        l->spare = u->next;
    u->next = NULL;
    u->bytes = bytes;
    u->id = data ? 0 : id;
    u->tag = tag;
    u->peer = peer;
    if (data && bytes > 0)
        memcpy(u->data, data, bytes);
    *l->end = u;
    l->end = &u->next;
    return true;
}

struct ls_unexpected *ls_unexpected_find(struct ls_unexpected_list *l, const struct ls_transfer *receive)
{
    for (struct ls_unexpected **at = &l->head; *at; at = &(*at)->next) {
        struct ls_unexpected *u = *at;
        if (!fits(receive, u->peer, u->tag))
            continue;
        *at = u->next;
        if (!u->next)
            l->end = at;
        return u;
    }
    return NULL;
}
