#include "base/protobuf.h"
#include "base/memory.h"
#include "base/text/utf8.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5, VARINT_ROOM = 10 };

void ls_pb_release(struct ls_pb *pb)
{
    ls_free(pb->bytes);
    *pb = (struct ls_pb){0};
}

void ls_pb_clear(struct ls_pb *pb)
{
    pb->size = 0;
}

static bool reserve(struct ls_pb *pb, size_t more)
{
    if (pb->failed || pb->room - pb->size >= more)
        return !pb->failed;
    size_t room = pb->room ? pb->room : 4096;
    while (room - pb->size < more)
        room *= 2;
    uint8_t *larger = ls_realloc(pb->bytes, pb->room, room, 1);
    pb->failed = !larger;
    if (larger) {
        pb->bytes = larger;
        pb->room = room;
    }
    return !pb->failed;
}

static void put(struct ls_pb *pb, const void *data, size_t size)
{
    if (size == 0 || !reserve(pb, size))
        return;
    memcpy(pb->bytes + pb->size, data, size);
    pb->size += size;
}

/* Seven bits a byte, the lowest first; all bytes but the last have the highest bit set. */
static size_t varint(uint64_t value, uint8_t out[VARINT_ROOM])
{
    size_t n = 0;
    for (; value > 127; value >>= 7)
        out[n++] = (uint8_t)(value | 128);
    out[n++] = (uint8_t)value;
    return n;
}

static void put_varint(struct ls_pb *pb, uint64_t value)
{
    uint8_t bytes[VARINT_ROOM];
    put(pb, bytes, varint(value, bytes));
}

static void put_key(struct ls_pb *pb, int field, int wire)
{
    put_varint(pb, (uint64_t)field << 3 | (uint64_t)wire);
}

/* Numbers of a fixed size are little-endian, whatever the machine is. */
static void put_fixed(struct ls_pb *pb, uint64_t bits, size_t size)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(bits >> 8 * i);
    put(pb, bytes, size);
}

static void put_double(struct ls_pb *pb, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(pb, bits, sizeof bits);
}

void ls_pb_whole(struct ls_pb *pb, int field, int64_t value)
{
    put_key(pb, field, WIRE_VARINT);
    put_varint(pb, (uint64_t)value);
}

void ls_pb_double(struct ls_pb *pb, int field, double value)
{
    put_key(pb, field, WIRE_64);
    put_double(pb, value);
}

void ls_pb_float(struct ls_pb *pb, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(pb, field, WIRE_32);
    put_fixed(pb, bits, sizeof bits);
}

void ls_pb_head(struct ls_pb *pb, int field, uint64_t size)
{
    put_key(pb, field, WIRE_LENGTH);
    put_varint(pb, size);
}

void ls_pb_bytes(struct ls_pb *pb, int field, const void *data, size_t size)
{
    ls_pb_head(pb, field, size);
    put(pb, data, size);
}

void ls_pb_text(struct ls_pb *pb, int field, const char *text)
{
    size_t room = ls_utf8_valid(text) ? 0 : 4 * strlen(text) + 1;
    char *escaped = room ? ls_alloc(room, 1) : NULL;
    if (room && !escaped)
        pb->failed = true;
    const char *valid = escaped ? ls_utf8_escape(text, escaped, room) : text;
    ls_pb_bytes(pb, field, valid, strlen(valid));
    ls_free(escaped);
}

void ls_pb_doubles(struct ls_pb *pb, int field, const double *values, int count)
{
    put_key(pb, field, WIRE_LENGTH);
    put_varint(pb, (uint64_t)count * sizeof *values);
    for (int i = 0; i < count; i++)
        put_double(pb, values[i]);
}

/* The length in front of a message is known at its end. One byte is kept free for it; a longer length moves the message. */
size_t ls_pb_open(struct ls_pb *pb, int field)
{
    put_key(pb, field, WIRE_LENGTH);
    put(pb, "", 1);
    return pb->size;
}

void ls_pb_close(struct ls_pb *pb, size_t mark)
{
    uint8_t length[VARINT_ROOM];
    if (pb->failed)
        return;
    size_t size = pb->size - mark, n = varint(size, length);
    if (!reserve(pb, n - 1))
        return;
    memmove(pb->bytes + mark + n - 1, pb->bytes + mark, size);
    memcpy(pb->bytes + mark - 1, length, n);
    pb->size += n - 1;
}
