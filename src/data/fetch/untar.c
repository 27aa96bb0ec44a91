/* Unpacks a .tar.gz with zlib, member by member. */
#define _GNU_SOURCE
#include "data/fetch/unpack.h"
#include "data/records/tar_header.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { TICK = 1 << 20 };

struct untar {
    struct ls_unpack *unpack;
    gzFile in;
    int64_t archive_bytes, at, next_tick;
};

/* Reads exactly size bytes. */
static enum ls_status take(struct untar *t, void *data, size_t size)
{
    int n = gzread(t->in, data, (unsigned)size);
    t->at += n > 0 ? n : 0;
    if (n == (int)size)
        return LS_OK;
    int code;
    const char *why = gzerror(t->in, &code);
    return ls_fail(LS_BAD_INPUT, "%s: damaged near byte %" PRId64 " of its contents: %s", t->unpack->archive, t->at,
                   code < 0 && *why ? why : "it ends too early");
}

static enum ls_status tick(struct untar *t)
{
    if (t->at < t->next_tick)
        return LS_OK;
    t->next_tick = t->at + TICK;
    return ls_unpack_tick(t->unpack, gzoffset(t->in), t->archive_bytes);
}

/* Copies the data of a member to the open file, or skips it, with the zeros up to the next block. */
static enum ls_status copy(struct untar *t, uint64_t size, bool keep)
{
    char data[1 << 14];
    while (size > 0) {
        uint64_t now = size < sizeof data ? size : sizeof data;
        size_t padded = (size_t)(now + LS_TAR_BLOCK - 1) / LS_TAR_BLOCK * LS_TAR_BLOCK;
        LS_TRY(take(t, data, padded));
        if (keep)
            LS_TRY(ls_unpack_put(t->unpack, data, (size_t)now));
        LS_TRY(tick(t));
        size -= now;
    }
    return LS_OK;
}

/* Skips times and owners. A long name would be here too; no data set has one. */
static enum ls_status skip_pax(struct untar *t, const struct ls_tar_header *h)
{
    char data[LS_TAR_BLOCK];
    LS_TRY(h->size > 0 ? take(t, data, sizeof data) : LS_OK);
    if (h->size > sizeof data || memmem(data, (size_t)h->size, " path=", 6))
        return ls_fail(LS_BAD_INPUT,
                       "%s: a member with a long name at byte %" PRId64 " of its contents is not supported",
                       t->unpack->archive, t->at);
    return LS_OK;
}

static enum ls_status unpack_member(struct untar *t, const struct ls_tar_header *h)
{
    switch (h->type) {
    case 0:
    case '0':
        LS_TRY(ls_unpack_open(t->unpack, h->path));
        LS_TRY(copy(t, h->size, true));
        return ls_unpack_close(t->unpack);
    case '5':
        return ls_unpack_folder(t->unpack, h->path);
    case 'g':
        return copy(t, h->size, false);
    case 'x':
        return skip_pax(t, h);
    default:
        return ls_fail(LS_BAD_INPUT, "%s: the member '%.200s' is neither a file nor a folder; the archive is refused",
                       t->unpack->archive, h->path);
    }
}

static enum ls_status unpack_all(struct untar *t)
{
    for (;;) {
        uint8_t block[LS_TAR_BLOCK];
        struct ls_tar_header h = {0};
        LS_TRY(take(t, block, sizeof block));
        LS_TRY(tick(t));
        enum ls_tar_kind kind = ls_tar_header(block, &h);
        if (kind == LS_TAR_END)
            return LS_OK;
        if (kind != LS_TAR_MEMBER)
            return ls_fail(LS_BAD_INPUT, "%s: no tar header at byte %" PRId64 " of its contents", t->unpack->archive,
                           t->at - LS_TAR_BLOCK);
        LS_TRY(unpack_member(t, &h));
    }
}

enum ls_status ls_untar(struct ls_unpack *u)
{
    struct untar t = {.unpack = u};
    struct stat s;
    t.in = stat(u->archive, &s) == 0 ? gzopen(u->archive, "rb") : NULL;
    if (!t.in)
        return ls_fail(LS_BAD_INPUT, "%s: cannot be opened", u->archive);
    t.archive_bytes = s.st_size;
    enum ls_status st = unpack_all(&t);
    enum ls_status closed = ls_unpack_close(u);
    gzclose(t.in);
    return st == LS_OK ? closed : st;
}
