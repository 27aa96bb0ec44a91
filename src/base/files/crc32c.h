/* CRC-32C (Castagnoli), and the masked form that TFRecord files have. */
#ifndef LS_BASE_CRC32C_H
#define LS_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ls_crc32c(const void *data, size_t size);
/* Rotated and shifted, so that the checksum of data that contains checksums is no special value. */
uint32_t ls_crc32c_masked(const void *data, size_t size);

#endif
