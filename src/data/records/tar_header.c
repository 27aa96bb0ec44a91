#include "data/records/tar_header.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* An octal number, or with the highest bit set a binary one. */
static bool number(const uint8_t *field, size_t n, uint64_t *value)
{
    size_t i = 0;
    *value = 0;
    if (field[0] & 0x80) {
        for (i = 1; i < n; i++) {
            if (*value >> 55)
                return false;
            *value = *value << 8 | field[i];
        }
        return field[0] == 0x80;
    }
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        *value = *value << 3 | (uint64_t)(field[i] - '0');
    return i == n || field[i] == 0 || field[i] == ' ';
}

static bool checks_out(const uint8_t *block)
{
    uint64_t want, sum = 0;
    for (int i = 0; i < LS_TAR_BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : block[i];
    return number(block + 148, 8, &want) && want == sum;
}

static bool is_zero(const uint8_t *block)
{
    for (int i = 0; i < LS_TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

static void take_path(const uint8_t *block, char path[LS_TAR_PATH])
{
    const char *name = (const char *)block, *prefix = (const char *)block + 345;
    bool posix = memcmp(block + 257, "ustar\0", 6) == 0 && *prefix;
    snprintf(path, LS_TAR_PATH, "%.*s%s%.100s", posix ? 155 : 0, prefix, posix ? "/" : "", name);
}

enum ls_tar_kind ls_tar_header(const uint8_t block[LS_TAR_BLOCK], struct ls_tar_header *header)
{
    if (is_zero(block))
        return LS_TAR_END;
    if (!checks_out(block))
        return LS_TAR_FOREIGN;
    header->type = (char)block[156];
    take_path(block, header->path);
    return number(block + 124, 12, &header->size) ? LS_TAR_MEMBER : LS_TAR_NO_SIZE;
}
