#include "base/files/checksum.h"

#include <string.h>

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static uint64_t word64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * P2, 31) * P1;
}

static void add_stripe(struct ls_checksum *c, const unsigned char *p)
{
    for (int i = 0; i < 4; i++)
        c->lane[i] = mix(c->lane[i], word64(p + 8 * i));
}

void ls_checksum_init(struct ls_checksum *c)
{
    *c = (struct ls_checksum){.lane = {P1 + P2, P2, 0, 0 - P1}};
}

void ls_checksum_add(struct ls_checksum *c, const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t held = (size_t)(c->total % sizeof c->rest);
    c->total += size;
    if (held > 0) {
        size_t more = sizeof c->rest - held < size ? sizeof c->rest - held : size;
        memcpy(c->rest + held, p, more);
        p += more;
        size -= more;
        if (held + more < sizeof c->rest)
            return;
        add_stripe(c, c->rest);
    }
    for (; size >= sizeof c->rest; p += sizeof c->rest, size -= sizeof c->rest)
        add_stripe(c, p);
    if (size > 0)
        memcpy(c->rest, p, size);
}

static uint64_t merge_lanes(const struct ls_checksum *c)
{
    if (c->total < sizeof c->rest)
        return P5;
    uint64_t h = rotate(c->lane[0], 1) + rotate(c->lane[1], 7) + rotate(c->lane[2], 12) + rotate(c->lane[3], 18);
    for (int i = 0; i < 4; i++)
        h = (h ^ mix(0, c->lane[i])) * P1 + P4;
    return h;
}

uint64_t ls_checksum_value(const struct ls_checksum *c)
{
    const unsigned char *p = c->rest;
    size_t left = (size_t)(c->total % sizeof c->rest);
    uint64_t h = merge_lanes(c) + c->total;
    for (; left >= 8; p += 8, left -= 8)
        h = rotate(h ^ mix(0, word64(p)), 27) * P1 + P4;
    if (left >= 4) {
        uint32_t word;
        memcpy(&word, p, sizeof word);
        h = rotate(h ^ word * P1, 23) * P2 + P3;
        p += 4;
        left -= 4;
    }
    for (; left > 0; p++, left--)
        h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t ls_checksum_of(const void *data, size_t size)
{
    struct ls_checksum c;
    ls_checksum_init(&c);
    ls_checksum_add(&c, data, size);
    return ls_checksum_value(&c);
}
