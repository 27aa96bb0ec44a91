#define _GNU_SOURCE
#include "data/fetch/part.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Connections that break without a new byte before the download fails. */
#define FRUITLESS_TRIES 3

struct transfer {
    struct ls_part *part;
    int64_t done; /* bytes in the file */
    int error;    /* errno of a failed write; 0: none */
    bool too_long;
};

/* --- the file ------------------------------------------------------------------------------------------ */

enum ls_status ls_part_open(struct ls_part *p)
{
    p->fd = open(p->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (p->fd < 0)
        return ls_fail(LS_FAILED, "%s: cannot be created: %s", p->path, strerror(errno));
    struct stat s;
    if (fstat(p->fd, &s) != 0 || !S_ISREG(s.st_mode))
        return ls_fail(LS_FAILED, "%s: not a regular file; remove it", p->path);
    if (flock(p->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return ls_fail(LS_FAILED, "%s: another process is fetching it; wait for that one", p->path);
    p->is_locked = true;
    return LS_OK;
}

void ls_part_close(struct ls_part *p)
{
    struct stat s;
    if (p->fd >= 0 && p->is_locked && fstat(p->fd, &s) == 0 && s.st_size == 0)
        unlink(p->path);
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

/* --- the transfer -------------------------------------------------------------------------------------- */

static bool take(void *context, const void *data, size_t size)
{
    struct transfer *t = context;
    const char *bytes = data;
    t->too_long = t->part->bytes > 0 && t->done + (int64_t)size > t->part->bytes;
    while (size > 0 && !t->too_long) {
        ssize_t n = pwrite(t->part->fd, bytes, size, t->done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            t->error = n < 0 ? errno : ENOSPC;
            return false;
        }
        bytes += n;
        size -= (size_t)n;
        t->done += n;
    }
    return !t->too_long;
}

static bool go_on(void *context)
{
    const struct transfer *t = context;
    const struct ls_fetch *f = t->part->fetch;
    f->progress(f->context, t->part->name, t->done, t->part->bytes);
    return !f->is_stopped();
}

static enum ls_status begin_anew(struct transfer *t)
{
    t->done = 0;
    if (ftruncate(t->part->fd, 0) != 0)
        return ls_fail(LS_FAILED, "%s: cannot be emptied: %s", t->part->path, strerror(errno));
    return LS_OK;
}

static enum ls_status tell_ended(const struct transfer *t, const char *url)
{
    if (t->error)
        return ls_fail(LS_FAILED,
                       "%s: cannot be written beyond byte %" PRId64
                       ": %s; the same command goes on from there, --into names another folder",
                       t->part->path, t->done, strerror(t->error));
    if (t->too_long)
        return ls_fail(LS_BAD_INPUT, "%s: longer than the %" PRId64 " bytes of the published file; it was removed", url,
                       t->part->bytes);
    return ls_fail(LS_INTERRUPTED, "interrupted after %" PRId64 " bytes of %s; the same command goes on from there",
                   t->done, t->part->name);
}

/* Transfers the rest of the file. A broken connection is opened again while that brings new bytes. */
static enum ls_status transfer(struct transfer *t, const char *url)
{
    const struct ls_http_request request = {.url = url, .take = take, .go_on = go_on, .context = t};
    char why[256] = "";
    for (int fruitless = 0, anew = 0; fruitless < FRUITLESS_TRIES;) {
        struct ls_http_request now = request;
        int64_t before = now.offset = t->done;
        enum ls_http_end end = t->part->module->get(&now, why);
        if (end == LS_HTTP_DONE)
            return LS_OK;
        if (end == LS_HTTP_ENDED && t->too_long)
            unlink(t->part->path);
        if (end == LS_HTTP_ENDED)
            return tell_ended(t, url);
        if (end == LS_HTTP_FAILED || (end == LS_HTTP_ANEW && anew++ > 0))
            break;
        if (end == LS_HTTP_ANEW)
            LS_TRY(begin_anew(t));
        else
            fruitless = t->done > before ? 0 : fruitless + 1;
    }
    return ls_fail(LS_FAILED, "%s: %s%s", url, why,
                   t->done > 0 ? "; the same command goes on from the bytes that arrived"
                               : "; --from names another server with the same files");
}

/* --- the checksum -------------------------------------------------------------------------------------- */

static enum ls_status checksum_of(struct ls_part *p, const char *kind, char hex[65])
{
    static const char what[] = "verifying";
    char bytes[1 << 16];
    void *digest = p->module->digest_new(kind);
    if (!digest)
        return ls_fail(LS_FAILED, "%s: %s checksums cannot be computed on this machine", p->path, kind);
    int64_t done = 0;
    ssize_t n;
    while ((n = pread(p->fd, bytes, sizeof bytes, done)) > 0 || (n < 0 && errno == EINTR)) {
        p->module->digest_add(digest, bytes, n > 0 ? (size_t)n : 0);
        done += n > 0 ? n : 0;
        p->fetch->progress(p->fetch->context, what, done, p->bytes);
        if (p->fetch->is_stopped())
            break;
    }
    int error = errno;
    p->module->digest_end(digest, hex);
    if (n < 0)
        return ls_fail(LS_FAILED, "%s: cannot be read: %s", p->path, strerror(error));
    if (n > 0)
        return ls_fail(LS_INTERRUPTED, "interrupted while verifying %s; the same command goes on", p->name);
    return LS_OK;
}

/* Computes the checksum of the file in its kind, and tests whether it is the expected one. */
static enum ls_status compare(struct ls_part *p, char kind[16], char hex[65], bool *is_same)
{
    const char *colon = strchr(p->checksum, ':');
    snprintf(kind, 16, "%.*s", (int)(colon - p->checksum), p->checksum);
    LS_TRY(checksum_of(p, kind, hex));
    *is_same = strcasecmp(hex, colon + 1) == 0;
    return LS_OK;
}

/* A wrong file is removed: the next call downloads it again. */
static enum ls_status verify(struct ls_part *p, const char *url)
{
    char kind[16], hex[65];
    bool is_same;
    LS_TRY(compare(p, kind, hex, &is_same));
    if (is_same)
        return LS_OK;
    unlink(p->path);
    return ls_fail(LS_BAD_INPUT, "%s: wrong %s checksum: expected %s, found %s; the download was removed", url, kind,
                   strchr(p->checksum, ':') + 1, hex);
}

/* Where the size is unknown, only the checksum tells whether the part is complete. */
static enum ls_status is_complete(struct ls_part *p, int64_t done, bool *complete)
{
    char kind[16], hex[65];
    *complete = p->bytes > 0 && done == p->bytes;
    return p->bytes == 0 && done > 0 ? compare(p, kind, hex, complete) : LS_OK;
}

enum ls_status ls_part_fetch(struct ls_part *p)
{
    struct transfer t = {.part = p};
    struct stat s;
    char url[PATH_MAX];
    const char *from = p->fetch->from ? p->fetch->from : p->fetch->set->address;
    int length = (int)strlen(from);
    while (length > 0 && from[length - 1] == '/')
        length--;
    if (snprintf(url, sizeof url, "%.*s/%s", length, from, p->name) >= (int)sizeof url)
        return ls_fail(LS_USAGE, "--from: the address is too long");
    if (fstat(p->fd, &s) != 0)
        return ls_fail(LS_FAILED, "%s: %s", p->path, strerror(errno));
    t.done = s.st_size;
    if (p->bytes > 0 && t.done > p->bytes)
        LS_TRY(begin_anew(&t));
    if (t.done > 0 && t.done < p->bytes && !p->fetch->quiet)
        ls_print("%s: going on after %" PRId64 " bytes", p->name, t.done);
    bool complete = false;
    LS_TRY(is_complete(p, t.done, &complete));
    if (!complete)
        LS_TRY(transfer(&t, url));
    if (p->bytes > 0 && t.done < p->bytes) {
        unlink(p->path);
        return ls_fail(LS_BAD_INPUT, "%s: %" PRId64 " bytes, expected %" PRId64 "; the download was removed", url,
                       t.done, p->bytes);
    }
    if (fsync(p->fd) != 0)
        return ls_fail(LS_FAILED, "%s: fsync failed: %s", p->path, strerror(errno));
    return verify(p, url);
}
