/* Opens files that another program may have created: only regular files, and never a blocking open. */
#define _GNU_SOURCE
#include "base/files/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *ls_file_kind(unsigned mode)
{
    return S_ISREG(mode)    ? "a regular file"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO (named pipe)"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISLNK(mode)  ? "a symbolic link"
                            : "something else";
}

static int refuse(unsigned mode, char why[LS_FILE_WHY])
{
    snprintf(why, LS_FILE_WHY, "%s, not a regular file", ls_file_kind(mode));
    errno = EINVAL;
    return -1;
}

static int cannot(char why[LS_FILE_WHY])
{
    int error = errno;
    snprintf(why, LS_FILE_WHY, "cannot be opened: %s", strerror(error));
    errno = error;
    return -1;
}

/* A device is not opened at all, because opening one can have side effects. O_NONBLOCK covers a FIFO that replaces the file
 * between fstatat and open. */
static int open_regular(const char *path, int flags, struct stat *s, char why[LS_FILE_WHY])
{
    int look = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
    bool there = fstatat(AT_FDCWD, path, s, look) == 0;
    if (!there && (errno != ENOENT || !(flags & O_CREAT)))
        return cannot(why);
    if (there && !S_ISREG(s->st_mode))
        return refuse(s->st_mode, why);
    int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0)
        return cannot(why);
    if (fstat(fd, s) == 0 && S_ISREG(s->st_mode))
        return fd;
    close(fd);
    return refuse(s->st_mode, why);
}

int ls_file_open(const char *path, size_t *size, char why[LS_FILE_WHY])
{
    struct stat s;
    int fd = open_regular(path, O_RDONLY, &s, why);
    if (fd >= 0)
        *size = (size_t)s.st_size;
    return fd;
}

enum ls_status ls_file_append(const char *path, FILE **file)
{
    struct stat s;
    char why[LS_FILE_WHY];
    int fd = open_regular(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, &s, why);
    if (fd < 0)
        return ls_fail(LS_FAILED, "%s: %s; nothing is appended to it", path, why);
    *file = fdopen(fd, "a");
    if (*file)
        return LS_OK;
    enum ls_status st = ls_fail(LS_FAILED, "%s: cannot be opened for writing: %s", path, strerror(errno));
    close(fd);
    return st;
}
