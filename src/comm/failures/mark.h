/* A mark identifies a collective, in a few bytes that travel with the data (COMM-5). */
#ifndef LS_COMM_MARK_H
#define LS_COMM_MARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The program's name for a collective; all zero where it has none. */
struct ls_call {
    uint64_t number; /* calls are counted from 1; 0: they are not counted */
    uint64_t amount;
    int32_t id;
    uint8_t what, op;
    uint16_t unused; /* 0 */
};

struct ls_mark {
    uint64_t collective; /* counted from 1 */
    uint64_t bytes;
    struct ls_call call;
    int32_t root; /* -1: none */
    uint16_t codec;
    uint8_t kind;   /* enum ls_work_kind */
    uint8_t shared; /* in a slot: all buffers lie in regions; not compared */
};

/* Reads the mark at the front of a message and finds what is packed behind it. False: the message is too short. */
static inline bool ls_mark_read(const void *message, size_t bytes, struct ls_mark *mark, const void **packed,
                                size_t *rest)
{
    if (bytes < sizeof *mark)
        return false;
    memcpy(mark, message, sizeof *mark);
    *packed = (const char *)message + sizeof *mark;
    *rest = bytes - sizeof *mark;
    return true;
}

static inline bool ls_mark_same(const struct ls_mark *a, const struct ls_mark *b)
{
    return a->collective == b->collective && a->bytes == b->bytes && a->call.number == b->call.number &&
           a->call.amount == b->call.amount && a->call.id == b->call.id && a->call.what == b->call.what &&
           a->call.op == b->call.op && a->root == b->root && a->codec == b->codec && a->kind == b->kind;
}

#endif
