#define _GNU_SOURCE
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

bool ls_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool ls_file_is_dir(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static char *from_root(const char *path)
{
    char here[PATH_MAX];
    if (path[0] == '/' || !getcwd(here, sizeof here))
        return ls_strdup(path);
    while (path[0] == '.' && path[1] == '/')
        for (path += 2; *path == '/';)
            path++;
    if (!*path || strcmp(path, ".") == 0)
        return ls_strdup(here);
    return ls_format("%s/%s", strcmp(here, "/") == 0 ? "" : here, path);
}

char *ls_path_absolute(const char *path)
{
    char *whole = from_root(path), *real = whole && strstr(whole, "/..") ? realpath(whole, NULL) : NULL;
    if (real) {
        ls_free(whole);
        whole = ls_strdup(real);
        free(real);
    }
    return whole;
}

static void folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int length = !slash ? 0 : slash == path ? 1 : (int)(slash - path);
    snprintf(folder, PATH_MAX, "%.*s", length ? length : 1, length ? path : ".");
}

enum ls_status ls_dir_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ls_fail(LS_FAILED, "%s: the folder cannot be opened: %s", path, strerror(errno));
    int bad = fsync(fd) != 0 && errno != EINVAL;
    int why = errno;
    close(fd);
    return bad ? ls_fail(LS_FAILED, "%s: fsync failed: %s", path, strerror(why)) : LS_OK;
}

enum ls_status ls_dir_sync_above(const char *path)
{
    char folder[PATH_MAX];
    folder_of(path, folder);
    /* A folder with search but no read permission, such as a shared /home, cannot be opened for fsync. */
    return access(folder, R_OK) == 0 ? ls_dir_sync(folder) : LS_OK;
}

enum ls_status ls_dir_make(const char *path)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return ls_fail(LS_USAGE, "%s: the path is too long", path);
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p)
            continue;
        char end = *p;
        *p = 0;
        bool made = mkdir(part, 0777) == 0;
        if (made)
            LS_TRY(ls_dir_sync_above(part));
        else if (errno != EEXIST)
            return ls_fail(LS_FAILED, "%s: the folder cannot be created: %s", part, strerror(errno));
        *p = end;
        if (!end)
            break;
    }
    if (!ls_file_is_dir(path))
        return ls_fail(LS_FAILED, "%s: a file of that name exists; a folder is needed", path);
    return LS_OK;
}

enum ls_status ls_dir_make_new(const char *path)
{
    if (mkdir(path, 0777) != 0)
        return ls_fail(LS_FAILED, "%s: the folder cannot be created: %s", path, strerror(errno));
    return ls_dir_sync_above(path);
}

enum ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *size)
{
    enum ls_status st = LS_OK;
    char *bytes = NULL, why[LS_FILE_WHY];
    size_t done = 0, total;
    int fd = ls_file_open(path, &total, why);
    if (fd < 0)
        return ls_fail(LS_BAD_INPUT, "%s: %s", path, why);
    if (total > limit) {
        st = ls_fail(LS_BAD_INPUT, "%s: %zu bytes; a file of this kind has at most %zu", path, total, limit);
        goto close_file;
    }
    bytes = ls_alloc(total + 1, 1);
    if (!bytes) {
        st = LS_FAILED;
        goto close_file;
    }
    while (done < total) {
        ssize_t n = read(fd, bytes + done, total - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            st = ls_fail(LS_BAD_INPUT, "%s: ends at byte %zu of %zu%s%s", path, done, total, n < 0 ? ": " : "",
                         n < 0 ? strerror(errno) : "");
            goto close_file;
        }
        done += (size_t)n;
    }
    *data = bytes;
    *size = total;
    bytes = NULL;
close_file:
    ls_free(bytes);
    close(fd);
    return st;
}

/* Locks the new file. Returns false if ls_file_remove_stale in another process locked or removed it first; the caller then
 * tries another name. Without file locks on this file system the file stays unlocked. */
static bool lock_temporary(int fd)
{
    struct stat s;
    if (flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return false;
    return fstat(fd, &s) != 0 || s.st_nlink > 0;
}

/* Returns -1 and sets errno on failure. */
static int make_temporary(struct ls_file_writer *w)
{
    for (int tries = 0; tries < 100; tries++) {
        uint64_t random;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return -1;
        ls_free(w->temporary);
        w->temporary = ls_format("%s.tmp-%ld-%016" PRIx64, w->path, (long)getpid(), random);
        int fd = w->temporary ? open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
        if (fd >= 0 && lock_temporary(fd))
            return fd;
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (fd >= 0) {
            unlink(w->temporary);
            close(fd);
        }
    }
    errno = EEXIST;
    return -1;
}

enum ls_status ls_file_writer_open(struct ls_file_writer *w, const char *path)
{
    struct stat s;
    *w = (struct ls_file_writer){.fd = -1};
    if (lstat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISLNK(s.st_mode))
        return ls_fail(LS_FAILED, "%s: cannot be written: it is %s, not a regular file", path, ls_file_kind(s.st_mode));
    w->path = ls_strdup(path);
    w->fd = w->path ? make_temporary(w) : -1;
    if (w->fd < 0) {
        enum ls_status st = ls_fail(LS_FAILED, "%s: cannot be written: %s", path, strerror(errno));
        ls_file_writer_cancel(w);
        return st;
    }
    return LS_OK;
}

enum ls_status ls_file_writer_put(struct ls_file_writer *w, const void *data, size_t size)
{
    const char *bytes = data;
    while (size > 0) {
        ssize_t n = write(w->fd, bytes, size > (1u << 30) ? 1u << 30 : size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_fail(LS_FAILED, "%s: writing failed after %llu bytes: %s; the previous contents are unchanged",
                           w->path, (unsigned long long)w->written, strerror(errno));
        bytes += n;
        size -= (size_t)n;
        w->written += (uint64_t)n;
    }
    return LS_OK;
}

enum ls_status ls_file_writer_commit(struct ls_file_writer *w)
{
    enum ls_status st = LS_OK;
    char folder[PATH_MAX];
    folder_of(w->path, folder);
    if (fsync(w->fd) != 0)
        st = ls_fail(LS_FAILED, "%s: fsync failed: %s; the previous contents are unchanged", w->path, strerror(errno));
    else if (rename(w->temporary, w->path) != 0)
        st = ls_fail(LS_FAILED, "%s: the new file cannot be renamed to this name: %s", w->path, strerror(errno));
    else {
        ls_free(w->temporary);
        w->temporary = NULL;
        st = ls_dir_sync(folder);
    }
    ls_file_writer_cancel(w);
    return st;
}

void ls_file_writer_cancel(struct ls_file_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary && w->fd >= 0)
        unlink(w->temporary);
    ls_free(w->temporary);
    ls_free(w->path);
    *w = (struct ls_file_writer){.fd = -1};
}

enum ls_status ls_file_write(const char *path, const void *data, size_t size)
{
    struct ls_file_writer w;
    LS_TRY(ls_file_writer_open(&w, path));
    enum ls_status st = ls_file_writer_put(&w, data, size);
    if (st != LS_OK) {
        ls_file_writer_cancel(&w);
        return st;
    }
    return ls_file_writer_commit(&w);
}

bool ls_file_can_write(const char *path)
{
    char folder[PATH_MAX];
    folder_of(path, folder);
    while (!ls_file_exists(folder) && strcmp(folder, ".") != 0 && strcmp(folder, "/") != 0) {
        char inner[PATH_MAX];
        memcpy(inner, folder, sizeof inner);
        folder_of(inner, folder);
    }
    return !ls_file_is_dir(path) && ls_file_is_dir(folder) && access(folder, W_OK | X_OK) == 0;
}

static int remove_entry(const char *path, const struct stat *s, int kind, struct FTW *walk)
{
    (void)s, (void)kind, (void)walk;
    return remove(path);
}

enum ls_status ls_dir_remove(const char *path)
{
    if (!ls_file_exists(path))
        return LS_OK;
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return ls_fail(LS_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
    return LS_OK;
}
