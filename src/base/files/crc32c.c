#include "base/files/crc32c.h"

#include <pthread.h>
#include <string.h>
#ifdef __x86_64__
#include <nmmintrin.h>
#endif

/* table[k][b]: the effect of byte b, k bytes before the end of a group of eight. */
static uint32_t table[8][256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t by_instruction(const uint8_t *at, size_t size)
{
    uint64_t crc = ~0u;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t eight;
        memcpy(&eight, at, 8);
        crc = _mm_crc32_u64(crc, eight);
    }
    for (; size > 0; at++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}
#endif

uint32_t ls_crc32c(const void *data, size_t size)
{
    const uint8_t *at = data;
    uint32_t crc = ~0u;
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return by_instruction(at, size);
#endif
    pthread_once(&made, make_table);
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
              table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; size > 0; at++, size--)
        crc = table[0][(crc ^ *at) & 255] ^ crc >> 8;
    return ~crc;
}

uint32_t ls_crc32c_masked(const void *data, size_t size)
{
    uint32_t crc = ls_crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
