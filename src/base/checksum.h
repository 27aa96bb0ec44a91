/* A 64-bit checksum over a stream of bytes (XXH64, seed 0): against damage, not against malice. */
#ifndef LS_BASE_CHECKSUM_H
#define LS_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

struct ls_checksum {
    uint64_t lane[4], total;
    unsigned char rest[32]; /* the last total % 32 bytes, not yet mixed in */
};

void ls_checksum_init(struct ls_checksum *c);
void ls_checksum_add(struct ls_checksum *c, const void *data, size_t size);
/* The value so far; more may be added afterwards. */
uint64_t ls_checksum_value(const struct ls_checksum *c);
uint64_t ls_checksum_of(const void *data, size_t size);

#endif
