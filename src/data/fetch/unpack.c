#define _GNU_SOURCE
#include "data/fetch/unpack.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES ((int64_t)64 << 30)
#define MOST_ENTRIES ((int64_t)4 << 20)

/* True for a relative path without "..", "." at its beginning aside, that has no control characters. */
static bool is_safe(const char *name)
{
    if (!*name || *name == '/')
        return false;
    for (const char *p = name; *p;) {
        size_t part = strcspn(p, "/");
        if (part == 2 && p[0] == '.' && p[1] == '.')
            return false;
        p += part;
        p += strspn(p, "/");
    }
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == '\\' || *p == 127)
            return false;
    return true;
}

static enum ls_status admit(struct ls_unpack *u, const char *name)
{
    if (!is_safe(name))
        return ls_fail(LS_BAD_INPUT, "%s: the member '%.200s' would lie outside of the folder; the archive is refused",
                       u->archive, name);
    if (++u->entries > MOST_ENTRIES)
        return ls_fail(LS_BAD_INPUT, "%s: more than %lld members; the archive is refused", u->archive,
                       (long long)MOST_ENTRIES);
    int length = snprintf(u->path, sizeof u->path, "%s/%s", u->folder, name);
    if (length >= (int)sizeof u->path)
        return ls_fail(LS_BAD_INPUT, "%s: the name of a member is too long: '%.200s'", u->archive, name);
    while (length > 1 && u->path[length - 1] == '/')
        u->path[--length] = 0;
    return LS_OK;
}

/* Makes the folders above u->path. The archive holds no links, so none of them leads elsewhere. */
static enum ls_status make_parents(struct ls_unpack *u)
{
    for (char *p = u->path + strlen(u->folder) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        int bad = mkdir(u->path, 0777) != 0 && errno != EEXIST;
        if (bad)
            return ls_fail(LS_FAILED, "%s: the folder cannot be created: %s", u->path, strerror(errno));
        *p = '/';
    }
    return LS_OK;
}

enum ls_status ls_unpack_folder(struct ls_unpack *u, const char *name)
{
    LS_TRY(admit(u, name));
    LS_TRY(make_parents(u));
    if (mkdir(u->path, 0777) != 0 && errno != EEXIST)
        return ls_fail(LS_FAILED, "%s: the folder cannot be created: %s", u->path, strerror(errno));
    return LS_OK;
}

enum ls_status ls_unpack_open(struct ls_unpack *u, const char *name)
{
    LS_TRY(admit(u, name));
    u->fd = open(u->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (u->fd < 0 && errno == ENOENT) {
        LS_TRY(make_parents(u));
        u->fd = open(u->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    if (u->fd < 0 && errno == EEXIST)
        return ls_fail(LS_BAD_INPUT, "%s: two members have the name '%.200s'", u->archive, name);
    return u->fd >= 0 ? LS_OK : ls_fail(LS_FAILED, "%s: cannot be created: %s", u->path, strerror(errno));
}

enum ls_status ls_unpack_put(struct ls_unpack *u, const void *data, size_t size)
{
    const char *bytes = data;
    u->bytes += (int64_t)size;
    if (u->bytes > MOST_BYTES)
        return ls_fail(LS_BAD_INPUT, "%s: more than %lld bytes when it is unpacked; the archive is refused", u->archive,
                       (long long)MOST_BYTES);
    while (size > 0) {
        ssize_t n = write(u->fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ls_fail(LS_FAILED, "%s: cannot be written: %s", u->path, n < 0 ? strerror(errno) : "no space left");
        bytes += n;
        size -= (size_t)n;
    }
    return LS_OK;
}

enum ls_status ls_unpack_close(struct ls_unpack *u)
{
    int bad = u->fd >= 0 && close(u->fd) != 0;
    u->fd = -1;
    return bad ? ls_fail(LS_FAILED, "%s: cannot be written: %s", u->path, strerror(errno)) : LS_OK;
}

enum ls_status ls_unpack_tick(struct ls_unpack *u, int64_t done, int64_t total)
{
    u->progress(u->context, "unpacking", done, total);
    if (u->is_stopped())
        return ls_fail(LS_INTERRUPTED,
                       "interrupted while unpacking; the same command goes on without another download");
    return LS_OK;
}
