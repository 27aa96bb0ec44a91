/* XXH64 with seed 0 over a stream of bytes. It detects damaged data, not deliberate changes. */
#ifndef LS_BASE_CHECKSUM_H
#define LS_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

struct ls_checksum {
    uint64_t lane[4], total;
    unsigned char rest[32]; /* the last total % 32 bytes, still to be mixed in */
};

void ls_checksum_init(struct ls_checksum *c);
void ls_checksum_add(struct ls_checksum *c, const void *data, size_t size);
/* Returns the checksum of all bytes added so far. More bytes may be added afterwards. */
uint64_t ls_checksum_value(const struct ls_checksum *c);
uint64_t ls_checksum_of(const void *data, size_t size);

#endif
