#include "data/files/blob.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define GZIP_HEAD 10
#define GZIP_TAIL 8
/* The largest expansion factor of deflate. */
#define GZIP_GAIN 1032

static bool is_gzip(const uint8_t *bytes, size_t size)
{
    return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

/* Reads the uncompressed length from the last four bytes of the member and checks that it is plausible. */
static enum ls_status promised_size(const uint8_t *bytes, size_t size, const char *name, size_t *promised)
{
    if (size < GZIP_HEAD + GZIP_TAIL || !is_gzip(bytes, size))
        return ls_fail(LS_BAD_INPUT, "%s: not a whole gzip file: %zu bytes", name, size);
    const uint8_t *tail = bytes + size - 4;
    size_t length = tail[0] | (size_t)tail[1] << 8 | (size_t)tail[2] << 16 | (size_t)tail[3] << 24;
    if (length / GZIP_GAIN > size)
        return ls_fail(LS_BAD_INPUT, "%s: corrupt or truncated gzip file: %zu bytes cannot hold %zu", name, size,
                       length);
    *promised = length;
    return LS_OK;
}

enum ls_status ls_blob_gunzip(const uint8_t *bytes, size_t size, const char *name, struct ls_blob *blob)
{
    size_t length = 0;
    struct ls_blob out = {0};
    z_stream z = {0};
    if (size > UINT_MAX)
        return ls_fail(LS_BAD_INPUT, "%s: %zu bytes of gzip are too many: unpack it with gunzip first", name, size);
    LS_TRY(promised_size(bytes, size, name, &length));
    LS_TRY(ls_region_map(length, (void **)&out.bytes));
    out.size = length;
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) {
        ls_blob_release(&out);
        return ls_fail(LS_FAILED, "out of memory while decompressing %s", name);
    }
    z.next_in = (z_const Bytef *)bytes;
    z.avail_in = (uInt)size;
    z.next_out = out.bytes;
    z.avail_out = (uInt)length;
    int code = inflate(&z, Z_FINISH);
    size_t used = size - z.avail_in, made = length - z.avail_out;
    enum ls_status st = LS_OK;
    if (code != Z_STREAM_END)
        st = ls_fail(LS_BAD_INPUT, "%s: corrupt or truncated gzip data near byte %zu (%s)", name, used,
                     z.msg ? z.msg : "it is longer than its trailer declares");
    else if (used != size || made != length)
        st = ls_fail(LS_BAD_INPUT, "%s: %zu bytes follow the end of the gzip data", name, size - used);
    inflateEnd(&z);
    if (st != LS_OK)
        ls_blob_release(&out);
    else
        *blob = out;
    return st;
}

static enum ls_status read_all(int fd, const char *path, struct ls_blob *blob)
{
    for (size_t done = 0; done < blob->size;) {
        size_t rest = blob->size - done;
        ssize_t n = read(fd, blob->bytes + done, rest > 1u << 30 ? 1u << 30 : rest);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ls_fail(LS_BAD_INPUT, "%s: cannot be read beyond byte %zu of %zu: %s", path, done, blob->size,
                           n < 0 ? strerror(errno) : "it became shorter");
        done += (size_t)n;
    }
    return LS_OK;
}

static enum ls_status load_raw(const char *path, struct ls_blob *blob)
{
    struct ls_blob raw = {0};
    char why[LS_FILE_WHY];
    enum ls_status st = LS_OK;
    int fd = ls_file_open(path, &raw.size, why);
    if (fd < 0)
        return ls_fail(LS_BAD_INPUT, "%s: %s", path, why);
    LS_TRY_GOTO(close_file, ls_region_map(raw.size, (void **)&raw.bytes));
    LS_TRY_GOTO(close_file, read_all(fd, path, &raw));
    *blob = raw;
    raw.bytes = NULL;
close_file:
    ls_blob_release(&raw);
    close(fd);
    return st;
}

enum ls_status ls_blob_load(const char *path, struct ls_blob *blob)
{
    struct ls_blob raw;
    LS_TRY(load_raw(path, &raw));
    if (!is_gzip(raw.bytes, raw.size)) {
        *blob = raw;
        return LS_OK;
    }
    enum ls_status st = ls_blob_gunzip(raw.bytes, raw.size, path, blob);
    ls_blob_release(&raw);
    return st;
}

void ls_blob_release(struct ls_blob *blob)
{
    ls_region_unmap(blob->bytes, blob->size);
    *blob = (struct ls_blob){0};
}
