#define _GNU_SOURCE
#include "cmd/data/new_folder.h"

#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS 50000000 /* between two attempts to take a lock */

bool ls_folder_is_empty(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    bool empty = true;
    if (!dir)
        return errno == ENOENT;
    while (empty && (e = readdir(dir)))
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    closedir(dir);
    return empty;
}

const char *ls_bytes_text(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(text, 32, "%.*f %s", unit ? 1 : 0, value, units[unit]);
    return text;
}

bool ls_path_is_in(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == 0 || path[n] == '/');
}

/* The lock is that of the file which has the name now. Its last owner may have removed the one that was opened. */
static bool is_current(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static enum ls_status take_lock(struct ls_new_folder *n, bool wait, bool *waited)
{
    for (bool said = false;;) {
        n->lock = open(n->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (n->lock < 0)
            return ls_fail(LS_FAILED, "%s: cannot be written: %s", n->lock_path, strerror(errno));
        if (flock(n->lock, LOCK_EX | LOCK_NB) == 0) {
            if (is_current(n->lock, n->lock_path))
                return LS_OK;
        } else if (errno != EWOULDBLOCK && errno != EINTR) {
            return ls_fail(LS_FAILED, "%s: cannot be locked: %s", n->lock_path, strerror(errno));
        } else if (!wait) {
            return ls_fail(LS_FAILED, "%s: another lockstep is writing it now", n->path);
        } else if (!said) {
            ls_print("%s: another process is preparing it; waiting ...", n->path);
            said = *waited = true;
        }
        close(n->lock);
        n->lock = -1;
        if (ls_interrupted())
            return LS_INTERRUPTED;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
}

static enum ls_status find_paths(struct ls_new_folder *n, const char *path)
{
    char text[PATH_MAX];
    if (!*path || snprintf(text, sizeof text, "%s", path) >= (int)sizeof text)
        return ls_fail(LS_USAGE, "'%s' is no name for a folder", path);
    for (size_t end = strlen(text); end > 1 && text[end - 1] == '/'; end--)
        text[end - 1] = 0;
    char *real = realpath(text, NULL); /* of a link or .. the folder that it means */
    n->path = real ? ls_strdup(real) : ls_path_absolute(text);
    free(real);
    n->temporary = n->path ? ls_format("%s.lockstep-new", n->path) : NULL;
    n->lock_path = n->path ? ls_format("%s.lockstep-lock", n->path) : NULL;
    return n->temporary && n->lock_path ? LS_OK : LS_FAILED;
}

/* The folder above exists afterwards; an existing folder can be replaced by a rename. */
static enum ls_status check_place(const struct ls_new_folder *n)
{
    char above[PATH_MAX];
    struct stat here, there;
    snprintf(above, sizeof above, "%s", n->path);
    char *slash = strrchr(above, '/');
    slash[slash == above] = 0;
    if (stat(n->path, &here) == 0 && !S_ISDIR(here.st_mode))
        return ls_fail(LS_FAILED, "%s: it is a file; give the name of a folder that does not exist yet", n->path);
    LS_TRY(ls_dir_make(above));
    bool exists = stat(n->path, &here) == 0;
    if (exists && stat(above, &there) == 0 && (here.st_dev != there.st_dev || strcmp(n->path, "/") == 0))
        return ls_fail(LS_FAILED, "%s: it is a whole file system; give a folder in it, such as %s/data", n->path,
                       n->path);
    if (access(above, W_OK | X_OK) != 0)
        return ls_fail(LS_FAILED, "%s: cannot be created: %s: %s%s%s%s", n->path, above, strerror(errno),
                       exists ? "; give a folder in it, such as " : "", exists ? n->path : "", exists ? "/data" : "");
    return LS_OK;
}

enum ls_status ls_new_folder_lock(struct ls_new_folder *n, const char *path, bool wait, bool *waited)
{
    bool ignored;
    *n = (struct ls_new_folder){.lock = -1};
    LS_TRY(find_paths(n, path));
    LS_TRY(check_place(n));
    return take_lock(n, wait, waited ? waited : &ignored);
}

enum ls_status ls_new_folder_begin(struct ls_new_folder *n)
{
    LS_TRY(ls_dir_remove(n->temporary));
    return ls_dir_make_new(n->temporary);
}

static enum ls_status replace(const struct ls_new_folder *n)
{
    if (ls_folder_is_empty(n->path) && rename(n->temporary, n->path) == 0)
        return LS_OK;
    if (renameat2(AT_FDCWD, n->temporary, AT_FDCWD, n->path, RENAME_EXCHANGE) == 0)
        return ls_dir_remove(n->temporary);
    /* A file system without exchange. */
    char *old = ls_format("%s.lockstep-old", n->path);
    enum ls_status st = old ? ls_dir_remove(old) : LS_FAILED;
    if (st == LS_OK && (rename(n->path, old) != 0 || rename(n->temporary, n->path) != 0))
        st = ls_fail(LS_FAILED, "%s: cannot be renamed to %s: %s", n->temporary, n->path, strerror(errno));
    if (st == LS_OK)
        st = ls_dir_remove(old);
    ls_free(old);
    return st;
}

/* Syncs the file system once, instead of perhaps a million files. */
static void sync_all(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        syncfs(fd);
        close(fd);
    }
}

enum ls_status ls_new_folder_commit(struct ls_new_folder *n, const char *mark_name, const char *mark)
{
    char *path = ls_format("%s/%s", n->temporary, mark_name);
    enum ls_status st = path ? ls_file_write(path, mark, strlen(mark)) : LS_FAILED;
    ls_free(path);
    LS_TRY(st);
    sync_all(n->temporary);
    LS_TRY(replace(n));
    return ls_dir_sync_above(n->path);
}

void ls_new_folder_release(struct ls_new_folder *n)
{
    if (n->temporary && n->lock >= 0) {
        ls_dir_remove(n->temporary);
        unlink(n->lock_path);
        close(n->lock);
    }
    ls_free(n->path);
    ls_free(n->temporary);
    ls_free(n->lock_path);
    *n = (struct ls_new_folder){.lock = -1};
}
