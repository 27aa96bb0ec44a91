/* Removes temporary files that a writer left when it was killed. */
#define _GNU_SOURCE
#include "base/files/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Parses NAME.tmp-PID-RANDOM. Older versions wrote NAME.tmp-PID and held no lock: *locks is false. */
static bool parse_name(const char *entry, const char *name, long *pid, bool *locks)
{
    size_t n = strlen(name);
    if (strncmp(entry, name, n) != 0 || strncmp(entry + n, ".tmp-", 5) != 0 || !isdigit((unsigned char)entry[n + 5]))
        return false;
    char *rest;
    errno = 0;
    *pid = strtol(entry + n + 5, &rest, 10);
    *locks = *rest == '-';
    if (errno || *pid < 1 || *pid > INT_MAX)
        return false;
    return !*rest || (*locks && strlen(rest + 1) == 16 && strspn(rest + 1, "0123456789abcdef") == 16);
}

/* A live writer holds a lock on the file. For files of older versions, which hold none, the process must have ended. */
static bool is_abandoned(int fd, long pid, bool locks)
{
    struct stat s;
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid())
        return false;
    if (locks)
        return flock(fd, LOCK_EX | LOCK_NB) == 0;
    return kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

void ls_file_remove_stale(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int length = !slash || slash == path ? 1 : (int)(slash - path);
    if (snprintf(folder, sizeof folder, "%.*s", length, slash ? path : ".") >= (int)sizeof folder)
        return;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        long pid;
        bool locks;
        if (!parse_name(entry->d_name, name, &pid, &locks))
            continue;
        int fd = openat(dirfd(dir), entry->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0 && is_abandoned(fd, pid, locks))
            unlinkat(dirfd(dir), entry->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (dir)
        closedir(dir);
}
