#define _GNU_SOURCE
#include "checkpoint/run_lock.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/thread.h"
#include "base/files/checksum.h"
#include "base/system/interrupt.h"
#include "checkpoint/lock_holder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct ls_run_lock {
    const char *run;                         /* borrowed, for messages */
    char path[PATH_MAX], own[PATH_MAX + 64]; /* the lock file; the temporary file that is linked to that name */
    char text[LS_LOCK_TEXT];
    struct ls_run_lock_times times;
    struct ls_lock_holder winner; /* the new holder, once the lock is lost */
    /* The members below are protected by guard. */
    pthread_mutex_t guard;
    pthread_cond_t end;
    bool ending, lost;
    double seen; /* time of the last successful check */
    pthread_t thread;
    bool has_thread;
};

/* CLOCK_BOOTTIME also counts time in suspend. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- stale locks: Q2 --------------------------------------------------------------------------------------- */

/* Seconds since the lock was touched. Both times are from the clock of the file server. */
static double age_of(const struct ls_run_lock *l, const struct ls_lock_holder *h)
{
    struct stat s;
    int fd = utimensat(AT_FDCWD, l->own, NULL, 0) == 0 ? open(l->own, O_RDONLY | O_CLOEXEC) : -1;
    bool known = fd >= 0 && fstat(fd, &s) == 0;
    if (fd >= 0)
        close(fd);
    double age = known ? (double)(s.st_mtim.tv_sec - h->touched.tv_sec) : 0;
    return age > 0 ? age : 0;
}

/* Waits until a holder on another machine touches its lock, or the lock becomes stale. */
static enum ls_lock_verdict wait_for_touch(const struct ls_run_lock *l, const char *path,
                                           const struct ls_lock_holder *h)
{
    struct ls_lock_holder later;
    char who[LS_LOCK_LINE];
    double age = age_of(l, h), start = now();
    bool warned = false;
    while (age + now() - start <= l->times.stale) {
        if (!warned) {
            ls_lock_holder_describe(h->text, who);
            ls_warn(
                "%s: locked by a run on %s, whose process is not visible from here; waiting at most %.0f s for a sign "
                "of life of it",
                l->run, who, l->times.stale - age + 1);
            warned = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        if (!ls_lock_holder_read(path, &later) || strcmp(later.text, h->text) != 0)
            return LS_LOCK_CHANGED;
        if (later.touched.tv_sec != h->touched.tv_sec || later.touched.tv_nsec != h->touched.tv_nsec)
            return LS_LOCK_LIVE;
    }
    return LS_LOCK_STALE;
}

static enum ls_lock_verdict judge(const struct ls_run_lock *l, const char *path, const struct ls_lock_holder *h)
{
    enum ls_lock_verdict v = ls_lock_holder_look(h->text);
    return v == LS_LOCK_UNSEEN ? wait_for_touch(l, path, h) : v;
}

/* --- taking the lock -------------------------------------------------------------------------------------------- */

static bool write_new(const char *path, const char *text)
{
    size_t size = strlen(text);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return false;
    bool good = write(fd, text, size) == (ssize_t)size && fsync(fd) == 0;
    int why = errno;
    good = close(fd) == 0 && good;
    if (!good)
        unlink(path);
    errno = why;
    return good;
}

/* Links the temporary file to `path` unless that exists. An NFS client may retry link() and report EEXIST for its success, so
 * the link count decides. File systems without hard links use O_EXCL. */
static bool link_as(const struct ls_run_lock *l, const char *path)
{
    struct stat s;
    if (link(l->own, path) == 0)
        return true;
    int why = errno;
    if (stat(l->own, &s) == 0 && s.st_nlink == 2)
        return true;
    if (why == EPERM || why == ENOSYS || why == EOPNOTSUPP || why == EMLINK)
        return write_new(path, l->text);
    errno = why;
    return false;
}

static enum ls_status refuse(const struct ls_run_lock *l, const struct ls_lock_holder *h)
{
    char who[LS_LOCK_LINE];
    ls_lock_holder_describe(h->text, who);
    return ls_fail(LS_FAILED,
                   "%s: in use by another run on %s; wait for that one to end, or stop it, or give another --run",
                   l->run, who);
}

static enum ls_status cannot(const struct ls_run_lock *l)
{
    return ls_fail(LS_FAILED, "%s: the run directory cannot be locked: %s", l->run, strerror(errno));
}

/* Takes over a stale lock. Exactly one process creates the file PATH.after-CHECKSUM, where the checksum is that of the stale
 * text; it renames that file to the lock. If it dies in between, the file is a stale lock as well and is taken over in the
 * same way. Sets *again if another process was faster or the lock was released: the caller starts over. */
static enum ls_status take_over(struct ls_run_lock *l, const struct ls_lock_holder *stale, bool *again)
{
    char at[PATH_MAX + 64], after[PATH_MAX + 64];
    struct ls_lock_holder h = *stale, still;
    snprintf(after, sizeof after, "%s", l->path);
    do {
        memcpy(at, after, sizeof at);
        enum ls_lock_verdict v = judge(l, at, &h);
        *again = v == LS_LOCK_CHANGED;
        if (v != LS_LOCK_STALE)
            return *again ? LS_OK : refuse(l, &h);
        snprintf(after, sizeof after, "%s.after-%016" PRIx64, l->path, ls_checksum_of(h.text, strlen(h.text)));
        if (link_as(l, after))
            break;
        if (errno != EEXIST)
            return cannot(l);
        *again = !ls_lock_holder_read(after, &h);
    } while (!*again);
    if (*again)
        return LS_OK;
    *again = !ls_lock_holder_read(l->path, &still) || strcmp(still.text, stale->text) != 0;
    if (*again) {
        unlink(after);
        return LS_OK;
    }
    if (rename(after, l->path) != 0)
        return cannot(l);
    if (strcmp(at, l->path) != 0)
        unlink(at);
    return LS_OK;
}

static enum ls_status claim(struct ls_run_lock *l)
{
    struct ls_lock_holder h;
    char who[LS_LOCK_LINE];
    for (;;) {
        bool again;
        if (link_as(l, l->path))
            return LS_OK;
        if (errno != EEXIST)
            return cannot(l);
        if (!ls_lock_holder_read(l->path, &h)) {
            if (errno != ENOENT && errno != ESTALE)
                return ls_fail(LS_FAILED,
                               "%s: the run directory cannot be locked: %s: %s; remove that, or give another --run",
                               l->run, l->path, h.why);
            continue;
        }
        LS_TRY(take_over(l, &h, &again));
        if (again)
            continue;
        ls_lock_holder_describe(h.text, who);
        ls_warn("%s: the lock of an ended run on %s is taken over", l->run, who);
        return LS_OK;
    }
}

/* --- keeping the lock ------------------------------------------------------------------------------------------- */

/* Checks and touches the lock; the caller holds guard. An error other than ENOENT leaves the result unknown. */
static void confirm(struct ls_run_lock *l)
{
    struct ls_lock_holder h;
    if (l->lost)
        return;
    if (!ls_lock_holder_read(l->path, &h)) {
        if (errno == ENOENT)
            write_new(l->path, l->text);
        return;
    }
    l->lost = strcmp(h.text, l->text) != 0;
    if (l->lost) {
        l->winner = h;
        return;
    }
    utimensat(AT_FDCWD, l->path, NULL, 0);
    l->seen = now();
}

static void *touch_thread(void *context)
{
    struct ls_run_lock *l = context;
    pthread_mutex_lock(&l->guard);
    while (!l->ending) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t at = (int64_t)until.tv_sec * 1000000000 + until.tv_nsec + (int64_t)(1e9 * l->times.touch);
        until = (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
        if (pthread_cond_timedwait(&l->end, &l->guard, &until) == ETIMEDOUT)
            confirm(l);
    }
    pthread_mutex_unlock(&l->guard);
    return NULL;
}

enum ls_status ls_run_lock_held(struct ls_run_lock *l, bool sure)
{
    char who[LS_LOCK_LINE];
    if (!l)
        return LS_OK;
    pthread_mutex_lock(&l->guard);
    if (sure || now() - l->seen > 2 * l->times.touch)
        confirm(l);
    bool lost = l->lost;
    pthread_mutex_unlock(&l->guard);
    if (!lost)
        return LS_OK;
    ls_lock_holder_describe(l->winner.text, who);
    return ls_fail(
        LS_FAILED,
        "%s: another run took over the directory, on %s, because the lock of this run was removed or not touched for too "
        "long; this run ends without saving",
        l->run, who);
}

static void start_thread(struct ls_run_lock *l)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->guard, NULL);
    pthread_cond_init(&l->end, &attributes);
    pthread_condattr_destroy(&attributes);
    l->seen = now();
    l->has_thread =
        ls_thread_create(&l->thread, touch_thread, l) == 0; /* without the thread, ls_run_lock_held touches the lock */
}

enum ls_status ls_run_lock_take(const char *run, char *const *argv, struct ls_run_lock_times times,
                                struct ls_run_lock **lock)
{
    struct ls_run_lock *l = ls_alloc(1, sizeof *l);
    char *real = realpath(run, NULL), id[32];
    enum ls_status st = l ? LS_OK : LS_FAILED;
    if (l && (!real || snprintf(l->path, sizeof l->path, "%s/lock", real) >= (int)sizeof l->path))
        st = ls_fail(LS_FAILED, "%s: the run directory cannot be locked: %s", run,
                     real ? "its path is too long" : strerror(errno));
    free(real);
    if (st == LS_OK) {
        l->run = run;
        l->times = times;
        ls_lock_holder_compose(l->text, argv, id);
        snprintf(l->own, sizeof l->own, "%s.%s", l->path, id);
        ls_interrupt_unlink(l->own);
        st = write_new(l->own, l->text) ? claim(l) : cannot(l);
        unlink(l->own);
    }
    if (st != LS_OK) {
        ls_interrupt_unlink(NULL);
        ls_free(l);
        return st;
    }
    start_thread(l);
    ls_interrupt_unlink(l->path);
    *lock = l;
    return LS_OK;
}

void ls_run_lock_release(struct ls_run_lock *l)
{
    struct ls_lock_holder h;
    if (!l)
        return;
    ls_interrupt_unlink(NULL);
    pthread_mutex_lock(&l->guard);
    l->ending = true;
    pthread_cond_signal(&l->end);
    pthread_mutex_unlock(&l->guard);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    if (ls_lock_holder_read(l->path, &h) && strcmp(h.text, l->text) == 0)
        unlink(l->path);
    pthread_cond_destroy(&l->end);
    pthread_mutex_destroy(&l->guard);
    ls_free(l);
}

bool ls_run_lock_is_file(const char *name)
{
    return strncmp(name, "lock", 4) == 0 && (!name[4] || name[4] == '.');
}
