/* Preloaded into a process: the call number FAULTY_AT that writes to a path below FAULTY_UNDER fails with FAULTY_ERRNO. At its
 * end each process appends the number of such calls to FAULTY_COUNT. For tests/campaign/campaign. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static int fails(const char *path)
{
    const char *under = getenv("FAULTY_UNDER"), *at = getenv("FAULTY_AT"), *code = getenv("FAULTY_ERRNO");
    if (!under || !path || strncmp(path, under, strlen(under)) != 0)
        return 0;
    if (atomic_fetch_add(&calls, 1) + 1 != (at ? atol(at) : -1))
        return 0;
    errno = code ? atoi(code) : EIO;
    return 1;
}

static int fails_at(int folder, const char *path)
{
    char link[64], text[2 * PATH_MAX];
    if (path && path[0] == '/')
        return fails(path);
    if (folder == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t n = readlink(link, text, PATH_MAX);
    if (n < 0)
        return 0;
    text[n] = 0;
    if (path)
        snprintf(text + n, sizeof text - (size_t)n, "/%s", path);
    return fails(text);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t n)
{
    return fails_at(fd, NULL) ? -1 : REAL(write)(fd, data, n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    return fails_at(fd, NULL) ? -1 : REAL(pwrite)(fd, data, n, at);
}
ssize_t writev(int fd, const struct iovec *v, int n)
{
    return fails_at(fd, NULL) ? -1 : REAL(writev)(fd, v, n);
}
int fsync(int fd)
{
    return fails_at(fd, NULL) ? -1 : REAL(fsync)(fd);
}
int fdatasync(int fd)
{
    return fails_at(fd, NULL) ? -1 : REAL(fdatasync)(fd);
}
int ftruncate(int fd, off_t n)
{
    return fails_at(fd, NULL) ? -1 : REAL(ftruncate)(fd, n);
}
int fallocate(int fd, int mode, off_t at, off_t n)
{
    return fails_at(fd, NULL) ? -1 : REAL(fallocate)(fd, mode, at, n);
}
int rename(const char *a, const char *b)
{
    return fails_at(AT_FDCWD, b) ? -1 : REAL(rename)(a, b);
}
int renameat(int d, const char *a, int e, const char *b)
{
    return fails_at(e, b) ? -1 : REAL(renameat)(d, a, e, b);
}
int renameat2(int d, const char *a, int e, const char *b, unsigned flags)
{
    return fails_at(e, b) ? -1 : REAL(renameat2)(d, a, e, b, flags);
}
int mkdir(const char *path, mode_t mode)
{
    return fails_at(AT_FDCWD, path) ? -1 : REAL(mkdir)(path, mode);
}
int mkdirat(int d, const char *path, mode_t mode)
{
    return fails_at(d, path) ? -1 : REAL(mkdirat)(d, path, mode);
}
/* As glibc marks a stream after a failed write (its own calls of write cannot be replaced). */
static void mark_failed(FILE *f)
{
    f->_flags |= 0x20; /* what ferror tests */
}

size_t fwrite(const void *data, size_t size, size_t n, FILE *f)
{
    if (!fails_at(fileno(f), NULL))
        return REAL(fwrite)(data, size, n, f);
    mark_failed(f);
    return 0;
}

int fflush(FILE *f)
{
    if (!f || !fails_at(fileno(f), NULL))
        return REAL(fflush)(f);
    mark_failed(f);
    return EOF;
}

static int make(int folder, const char *path, int flags, mode_t mode)
{
    int writes = (flags & O_ACCMODE) != O_RDONLY;
    return writes && fails_at(folder, path) ? -1 : REAL(openat)(folder, path, flags, mode);
}

static mode_t mode_of(int flags, va_list list)
{
    return flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(list, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = mode_of(flags, list);
    va_end(list);
    return make(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = mode_of(flags, list);
    va_end(list);
    return make(folder, path, flags, mode);
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAULTY_COUNT");
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", atomic_load(&calls));
    int fd = path ? REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd >= 0 && REAL(write)(fd, text, (size_t)n) == n)
        REAL(close)(fd);
}
