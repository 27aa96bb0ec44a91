#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ls_folder_name(const struct ls_folder *f, const char *what, int rank, char name[PATH_MAX])
{
    if (*what)
        snprintf(name, PATH_MAX, "%s/session-%04d.%s-%d", f->path, f->number, what, rank);
    else
        snprintf(name, PATH_MAX, "%s/session-%04d", f->path, f->number);
}

static double time_of(const struct stat *s)
{
    return (double)s->st_mtim.tv_sec + 1e-9 * (double)s->st_mtim.tv_nsec;
}

bool ls_folder_put(const struct ls_folder *f, const char *name, const void *data, size_t bytes)
{
    uint64_t random;
    char other[PATH_MAX];
    if (ls_proof_random(&random, sizeof random) != LS_OK)
        return false;
    snprintf(other, sizeof other, "%s/.new-%016" PRIx64, f->path, random);
    int fd = open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool good = write(fd, data, bytes) == (ssize_t)bytes && fsync(fd) == 0;
    good = close(fd) == 0 && good && link(other, name) == 0;
    int why = errno;
    unlink(other);
    errno = why;
    return good;
}

bool ls_folder_get(const char *name, size_t limit, void **data, size_t *bytes, double *when)
{
    struct stat s;
    int fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not keep it waiting */
    if (fd < 0)
        return false;
    bool good = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() && (s.st_mode & 077) == 0 &&
                (size_t)s.st_size <= limit;
    char *body = good ? ls_alloc((size_t)s.st_size + 1, 1) : NULL;
    good = body && read(fd, body, (size_t)s.st_size) == s.st_size;
    close(fd);
    if (!good) {
        ls_free(body);
        return false;
    }
    *data = body;
    *bytes = (size_t)s.st_size;
    *when = time_of(&s);
    return true;
}

bool ls_folder_time(const char *name, double *when)
{
    struct stat s;
    if (lstat(name, &s) != 0)
        return false;
    *when = time_of(&s);
    return true;
}

enum ls_status ls_folder_read_clock(struct ls_folder *f)
{
    char name[PATH_MAX];
    if (f->rank >= 0)
        ls_folder_name(f, "rank", f->rank, name);
    else
        snprintf(name, sizeof name, "%s/.clock-%016" PRIx64, f->path, f->random);
    if (f->rank < 0) {
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            close(fd);
    }
    bool good = utimensat(AT_FDCWD, name, NULL, AT_SYMLINK_NOFOLLOW) == 0 && ls_folder_time(name, &f->mark);
    int why = errno;
    if (f->rank < 0)
        unlink(name);
    f->touched = ls_now();
    if (f->rank >= 0 && why == ENOENT) /* the session was removed; wait_for_all sees that */
        return LS_OK;
    return good ? LS_OK : ls_fail(LS_FAILED, "%s: cannot be written: %s", name, strerror(why));
}
