/* Unpacks a .zip: the directory at its end lists the members, each stored as it is or deflated. */
#include "data/fetch/unpack.h"
#include "base/files/file.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

enum {
    LOCAL = 30, /* sizes of the fixed parts of records */
    ENTRY = 46,
    END = 22,
    LOCATOR = 20,
    END64 = 56,
    STORED = 0, /* methods */
    DEFLATED = 8,
    SYMLINK = 0xA, /* kind of file in the upper four bits of a Unix mode */
};

struct zip {
    struct ls_unpack *unpack;
    const uint8_t *bytes;
    uint64_t size;
};

struct member {
    char name[4096];
    uint64_t packed, size, offset;
    uint32_t crc;
    int method;
    bool is_link, is_locked;
};

static uint64_t number(const uint8_t *p, int n)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

static enum ls_status damaged(const struct zip *z, uint64_t at, const char *what)
{
    return ls_fail(LS_BAD_INPUT, "%s: damaged at byte %" PRIu64 ": %s", z->unpack->archive, at, what);
}

/* Finds the directory: its offset and its size. The record at the end of the file has them; where they or the number of
 * members are too large for it, another record before it does (zip64). */
static enum ls_status find_directory(const struct zip *z, uint64_t *start, uint64_t *size)
{
    uint64_t end = z->size;
    for (uint64_t at = z->size < END ? 0 : z->size - END + 1;
         at-- > 0 && z->size - at <= END + 0xFFFF && end == z->size;)
        if (number(z->bytes + at, 4) == 0x06054b50)
            end = at;
    if (end == z->size)
        return damaged(z, z->size, "no zip file: the record at its end is missing");
    *size = number(z->bytes + end + 12, 4);
    *start = number(z->bytes + end + 16, 4);
    if (end >= LOCATOR && number(z->bytes + end - LOCATOR, 4) == 0x07064b50) {
        uint64_t at = number(z->bytes + end - LOCATOR + 8, 8);
        if (at > z->size - END64 || z->size < END64 || number(z->bytes + at, 4) != 0x06064b50)
            return damaged(z, at, "the zip64 record is missing");
        *size = number(z->bytes + at + 40, 8);
        *start = number(z->bytes + at + 48, 8);
    }
    if (*start > z->size || *size > z->size - *start)
        return damaged(z, end, "the directory lies outside of the file");
    return LS_OK;
}

/* Sizes and an offset that do not fit into 32 bits are in an extra field, in this order. */
static void take_zip64(const uint8_t *extra, uint64_t length, struct member *m)
{
    while (length >= 4) {
        uint64_t id = number(extra, 2), n = number(extra + 2, 2), at = 4;
        if (n > length - 4)
            return;
        uint64_t *const fields[] = {&m->size, &m->packed, &m->offset};
        for (int i = 0; i < 3 && id == 1; i++)
            if (*fields[i] == 0xFFFFFFFF && at + 8 <= n + 4) {
                *fields[i] = number(extra + at, 8);
                at += 8;
            }
        extra += n + 4;
        length -= n + 4;
    }
}

/* Reads the directory entry at *at and moves behind it. */
static enum ls_status read_entry(const struct zip *z, uint64_t *at, uint64_t end, struct member *m)
{
    const uint8_t *p = z->bytes + *at;
    if (end - *at < ENTRY || number(p, 4) != 0x02014b50)
        return damaged(z, *at, "no entry of the directory");
    uint64_t name = number(p + 28, 2), extra = number(p + 30, 2), comment = number(p + 32, 2);
    if (end - *at < ENTRY + name + extra + comment || name >= sizeof m->name || memchr(p + ENTRY, 0, name))
        return damaged(z, *at, "an entry of the directory that cannot be read");
    *m = (struct member){.method = (int)number(p + 10, 2),
                         .crc = (uint32_t)number(p + 16, 4),
                         .packed = number(p + 20, 4),
                         .size = number(p + 24, 4),
                         .offset = number(p + 42, 4),
                         .is_link = number(p + 38, 4) >> 28 == SYMLINK && p[5] == 3,
                         .is_locked = p[8] & 1};
    memcpy(m->name, p + ENTRY, name);
    take_zip64(p + ENTRY + name, extra, m);
    *at += ENTRY + name + extra + comment;
    return LS_OK;
}

static enum ls_status inflate_member(const struct zip *z, const struct member *m, const uint8_t *data, uint32_t *crc,
                                     uint64_t *made)
{
    uint8_t out[1 << 16];
    z_stream s = {.next_in = (z_const Bytef *)data, .avail_in = (uInt)m->packed};
    if (m->packed > UINT32_MAX || inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return ls_fail(LS_FAILED, "%s: '%.200s' cannot be unpacked", z->unpack->archive, m->name);
    enum ls_status st = LS_OK;
    int code = Z_OK;
    while (code == Z_OK && st == LS_OK) {
        s.next_out = out;
        s.avail_out = sizeof out;
        code = inflate(&s, Z_NO_FLUSH);
        size_t n = sizeof out - s.avail_out;
        *crc = (uint32_t)crc32(*crc, out, (uInt)n);
        *made += n;
        if (*made > m->size) /* the comparison with the directory reports it */
            break;
        st = ls_unpack_put(z->unpack, out, n);
    }
    inflateEnd(&s);
    return st;
}

static enum ls_status unpack_file(const struct zip *z, const struct member *m)
{
    const uint8_t *local = z->bytes + m->offset;
    if (m->offset > z->size || z->size - m->offset < LOCAL || number(local, 4) != 0x04034b50)
        return damaged(z, m->offset, "no member of the archive");
    uint64_t before = LOCAL + number(local + 26, 2) + number(local + 28, 2);
    if (z->size - m->offset < before || z->size - m->offset - before < m->packed)
        return damaged(z, m->offset, "a member that is cut off");
    uint32_t crc = (uint32_t)crc32(0, NULL, 0);
    uint64_t made = 0;
    LS_TRY(ls_unpack_open(z->unpack, m->name));
    if (m->method == STORED) {
        crc = (uint32_t)crc32_z(crc, local + before, m->packed);
        made = m->packed;
        LS_TRY(ls_unpack_put(z->unpack, local + before, m->packed));
    } else
        LS_TRY(inflate_member(z, m, local + before, &crc, &made));
    if (crc != m->crc || made != m->size)
        return damaged(z, m->offset, "the contents of a member do not have the checksum of the directory");
    return ls_unpack_close(z->unpack);
}

static enum ls_status unpack_all(const struct zip *z)
{
    uint64_t at = 0, size = 0;
    LS_TRY(find_directory(z, &at, &size));
    for (uint64_t end = at + size, start = at; at < end;) {
        struct member m;
        LS_TRY(read_entry(z, &at, end, &m));
        size_t length = strlen(m.name);
        if (m.is_link || m.is_locked || (m.method != STORED && m.method != DEFLATED))
            return ls_fail(LS_BAD_INPUT, "%s: the member '%.200s' is %s; the archive is refused", z->unpack->archive,
                           m.name,
                           m.is_link     ? "a link"
                           : m.is_locked ? "encrypted"
                                         : "compressed by an unknown method");
        bool folder = length > 0 && m.name[length - 1] == '/';
        LS_TRY(folder ? ls_unpack_folder(z->unpack, m.name) : unpack_file(z, &m));
        LS_TRY(ls_unpack_tick(z->unpack, (int64_t)(at - start), (int64_t)size));
    }
    return LS_OK;
}

enum ls_status ls_unzip(struct ls_unpack *u)
{
    struct zip z = {.unpack = u};
    char why[LS_FILE_WHY];
    size_t size;
    int fd = ls_file_open(u->archive, &size, why);
    if (fd < 0)
        return ls_fail(LS_BAD_INPUT, "%s: %s", u->archive, why);
    void *bytes = size > 0 ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return ls_fail(LS_BAD_INPUT, "%s: %s", u->archive, size > 0 ? "cannot be mapped" : "the file is empty");
    z.bytes = bytes;
    z.size = size;
    enum ls_status st = unpack_all(&z);
    enum ls_status closed = ls_unpack_close(u);
    munmap(bytes, size);
    return st == LS_OK ? closed : st;
}
