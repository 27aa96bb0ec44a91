#include "cmd/data/new_folder.h"
#include "cmd/data/stage.h"

#include "base/files/checksum.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/system/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 4 << 20 };

/* What the threads share. */
struct job {
    const struct ls_staged *list;
    const char *folder;
    struct ls_console *console;
    const char *said;
    atomic_llong done;      /* bytes */
    atomic_bool has_failed; /* the first failure is reported */
};

static void count(struct job *j, size_t bytes)
{
    long long done = atomic_fetch_add(&j->done, (long long)bytes) + (long long)bytes;
    if (omp_get_thread_num() == 0)
        ls_console_progress(j->console, j->said, (int64_t)(done >> 20), (int64_t)(j->list->bytes >> 20) + 1);
}

/* Reports a failure, but one only of those of all threads. */
static enum ls_status refuse(struct job *j, enum ls_status st, const char *path, const char *why)
{
    return atomic_exchange(&j->has_failed, true) ? st : ls_fail(st, "%s: %s", path, why);
}

static enum ls_status refuse_write(struct job *j, const char *path)
{
    char why[160], text[32];
    if (errno == ENOSPC || errno == EDQUOT)
        snprintf(why, sizeof why, "%s; the data set needs %s", strerror(errno), ls_bytes_text(j->list->bytes, text));
    else
        snprintf(why, sizeof why, "cannot be written: %s", strerror(errno));
    return refuse(j, LS_FAILED, path, why);
}

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* Reads a file to its end, writes it to `to` (or -1), and computes its checksum. */
static enum ls_status pass(struct job *j, const char *path, const struct ls_staged_file *f, int to, const char *to_path,
                           char *buffer, uint64_t *sum)
{
    struct ls_checksum c;
    char why[LS_FILE_WHY];
    size_t size, done = 0;
    int fd = ls_file_open(path, &size, why);
    enum ls_status st = LS_OK;
    ssize_t n = 1;
    if (fd < 0)
        return refuse(j, LS_BAD_INPUT, path, why);
    ls_checksum_init(&c);
    while (st == LS_OK && n > 0) {
        n = read(fd, buffer, BUFFER);
        if (n < 0)
            st = refuse(j, LS_BAD_INPUT, path, strerror(errno));
        else if (ls_interrupted())
            st = LS_INTERRUPTED;
        else if (to >= 0 && !write_all(to, buffer, (size_t)n))
            st = refuse_write(j, to_path);
        if (st != LS_OK)
            break;
        ls_checksum_add(&c, buffer, (size_t)n);
        done += (size_t)n;
        count(j, (size_t)n);
    }
    close(fd);
    if (st == LS_OK && to >= 0 && done != f->size)
        st = refuse(j, LS_BAD_INPUT, path, "its size changes while it is copied");
    *sum = ls_checksum_value(&c);
    return st;
}

static enum ls_status copy_file(struct job *j, struct ls_staged_file *f, char *buffer)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (snprintf(from, sizeof from, "%s/%s", j->list->root, f->path) >= (int)sizeof from ||
        snprintf(to, sizeof to, "%s/%s", j->folder, f->path) >= (int)sizeof to)
        return refuse(j, LS_FAILED, f->path, "the path is too long");
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return refuse_write(j, to);
    enum ls_status st = pass(j, from, f, fd, to, buffer, &f->sum);
    /* The index of shards is valid while their times of change are the same. */
    struct timespec when[2] = {{.tv_nsec = UTIME_NOW},
                               {.tv_sec = (time_t)(f->changed / 1000000000), .tv_nsec = f->changed % 1000000000}};
    if (st == LS_OK && futimens(fd, when) != 0)
        st = refuse_write(j, to);
    if (close(fd) != 0 && st == LS_OK)
        st = refuse_write(j, to);
    return st;
}

static enum ls_status make_folders(const struct ls_staged *s, const char *folder)
{
    char path[PATH_MAX];
    for (int64_t i = 0; i < s->count; i++) { /* sorted: a folder comes before what lies in it */
        if (!s->file[i].is_folder)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, s->file[i].path) >= (int)sizeof path || mkdir(path, 0777) != 0)
            return ls_fail(LS_FAILED, "%s/%s: the folder cannot be created: %s", folder, s->file[i].path,
                           strerror(errno));
    }
    return LS_OK;
}

/* Does `one` for every file, in several threads, until one fails. */
static enum ls_status for_each(struct job *j, struct ls_staged_file *file, int64_t files, int threads,
                               enum ls_status (*one)(struct job *j, struct ls_staged_file *f, char *buffer))
{
    _Atomic int st = LS_OK;
#pragma omp parallel num_threads(threads)
    {
        char *buffer = ls_alloc(BUFFER, 1);
        if (!buffer)
            st = LS_FAILED;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < files; i++) {
            if (st != LS_OK || file[i].is_folder)
                continue;
            enum ls_status mine = one(j, &file[i], buffer);
            if (mine != LS_OK)
                st = (int)mine;
        }
        ls_free(buffer);
    }
    return (enum ls_status)st;
}

static enum ls_status check_file(struct job *j, struct ls_staged_file *f, char *buffer)
{
    char path[PATH_MAX];
    struct stat s;
    uint64_t sum = 0;
    snprintf(path, sizeof path, "%s/%s", j->folder, f->path);
    enum ls_status st = LS_OK;
    bool there = stat(path, &s) == 0 && S_ISREG(s.st_mode) && (uint64_t)s.st_size == f->size;
    if (there)
        st = pass(j, path, f, -1, NULL, buffer, &sum);
    if (st == LS_OK && (!there || sum != f->sum)) {
        ls_warn("%s: %s", path, there ? "its checksum is wrong" : "it is missing or has another size");
        return LS_BAD_INPUT;
    }
    return st;
}

enum ls_status ls_staged_verify(const struct ls_staged *s, const char *folder, int threads, struct ls_console *console,
                                bool *intact)
{
    struct job j = {.list = s, .folder = folder, .console = console, .said = "verifying"};
    enum ls_status st = for_each(&j, s->file, s->count, threads, check_file);
    *intact = st == LS_OK;
    return st == LS_BAD_INPUT ? LS_OK : st;
}

enum ls_status ls_staged_copy(struct ls_staged *s, const char *folder, int threads, struct ls_console *console)
{
    struct job j = {.list = s, .folder = folder, .console = console, .said = "copying"};
    bool intact = false;
    LS_TRY(make_folders(s, folder));
    LS_TRY(for_each(&j, s->file, s->count, threads, copy_file));
    LS_TRY(ls_staged_verify(s, folder, threads, console, &intact));
    return intact ? LS_OK
                  : ls_fail(LS_FAILED, "%s: what was written is not what is read back: is the disk broken?", folder);
}
