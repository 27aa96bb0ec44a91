#define _GNU_SOURCE
#include "checkpoint/run_lock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "launch/launch.h"
#include "base/checksum.h"
#include "base/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 2048, FIELD = 256 };

/* A lock file as it was read. */
struct holder {
    char text[TEXT];
    char why[LS_FILE_WHY]; /* it cannot be read */
    struct timespec touched;
};

struct ls_run_lock {
    const char *run;                         /* borrowed, for messages */
    char path[PATH_MAX], own[PATH_MAX + 64]; /* the lock; a file of this process, whose link it becomes */
    char text[TEXT];
    struct ls_run_lock_times times;
    struct holder winner; /* who has it, once it is lost */
    /* under guard */
    pthread_mutex_t guard;
    pthread_cond_t end;
    bool ending, lost;
    double seen; /* when it was last known to be ours */
    pthread_t thread;
    bool beating;
};

/* Goes on while the machine sleeps. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- what a lock says ------------------------------------------------------------------------------------- */

/* The value of a line "key: value", "" where there is none. */
static const char *field(const char *text, const char *key, char value[FIELD])
{
    size_t n = strlen(key);
    value[0] = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, key, n) == 0 && strncmp(line + n, ": ", 2) == 0) {
            snprintf(value, FIELD, "%.*s", (int)strcspn(line + n + 2, "\n"), line + n + 2);
            break;
        }
    return value;
}

static void add(char text[TEXT], const char *key, const char *value)
{
    size_t at = strlen(text);
    char line[FIELD + 16];
    int n = snprintf(line, sizeof line, "%s: %.*s", key, FIELD - 1, value);
    if (!*value || n >= (int)sizeof line || at + (size_t)n + 2 > TEXT)
        return;
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    memcpy(text + at, line, (size_t)n);
    memcpy(text + at + n, "\n", 2);
}

static void first_line(const char *path, char line[FIELD])
{
    FILE *file = fopen(path, "re");
    if (!file || !fgets(line, FIELD, file))
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    if (file)
        fclose(file);
}

/* State and start time of a process, from what follows its name in /proc/PID/stat. */
static bool look_at(const char *pid, char *state, char start[FIELD])
{
    char path[FIELD + 16], line[1024];
    unsigned long long ticks;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = 0;
    const char *after = strrchr(line, ')');
    if (!after || sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                         state, &ticks) != 2)
        return false;
    snprintf(start, FIELD, "%llu", ticks);
    return true;
}

static void name_user(char name[FIELD])
{
    struct passwd entry, *found = NULL;
    char room[4096];
    snprintf(name, FIELD, "%ld", (long)getuid());
    if (getpwuid_r(getuid(), &entry, room, sizeof room, &found) == 0 && found)
        snprintf(name, FIELD, "%s", entry.pw_name);
}

/* Without a secret, which others could read in the file. */
static void name_command(char *const *argv, char line[FIELD])
{
    size_t used = 0;
    bool secret = false;
    line[0] = 0;
    for (; argv && *argv && used < FIELD - 1; argv++) {
        const char *word = secret ? "..." : strncmp(*argv, "--token=", 8) == 0 ? "--token=..." : *argv;
        used += (size_t)snprintf(line + used, FIELD - used, "%s%s", used ? " " : "", word);
        secret = strcmp(*argv, "--token") == 0;
    }
}

static void name_space(char value[FIELD])
{
    ssize_t n = readlink("/proc/self/ns/pid", value, FIELD - 1);
    value[n > 0 ? n : 0] = 0;
}

/* This process. The random number makes every lock another. */
static void compose(char text[TEXT], char *const *argv, char id[32])
{
    char value[FIELD], state;
    uint64_t random = 0;
    time_t time_now = time(NULL);
    struct tm date;
    text[0] = 0;
    if (gethostname(value, sizeof value) == 0)
        add(text, "host", value);
    snprintf(value, sizeof value, "%ld", (long)getpid());
    add(text, "pid", value);
    if (look_at(value, &state, value))
        add(text, "start", value);
    first_line("/proc/sys/kernel/random/boot_id", value);
    add(text, "boot", value);
    name_space(value);
    add(text, "pids", value);
    name_user(value);
    add(text, "user", value);
    add(text, "job", ls_launch_job());
    if (localtime_r(&time_now, &date) && strftime(value, sizeof value, "%Y-%m-%d %H:%M:%S %Z", &date) > 0)
        add(text, "since", value);
    name_command(argv, value);
    add(text, "command", value);
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)getpid() << 32 ^ (uint64_t)time_now;
    snprintf(id, 32, "%016" PRIx64, random);
    add(text, "id", id);
}

/* "node1 (pid 12, user joe, job 77, since ...: lockstep train ...)" */
static void describe(const char *text, char line[4 * FIELD])
{
    static const struct {
        const char *key, *before;
    } parts[] = {{"pid", " (pid "}, {"user", ", user "}, {"job", ", job "}, {"since", ", since "}, {"command", ": "}};
    char value[FIELD];
    size_t used = (size_t)snprintf(line, 4 * FIELD, "host %s", *field(text, "host", value) ? value : "unknown");
    for (size_t i = 0; i < sizeof parts / sizeof *parts && *field(text, "pid", value); i++)
        if (*field(text, parts[i].key, value))
            used += (size_t)snprintf(line + used, 4 * FIELD - used, "%s%.200s", parts[i].before, value);
    if (*field(text, "pid", value))
        snprintf(line + used, 4 * FIELD - used, ")");
}

/* open() makes an NFS client ask the server. */
static bool read_holder(const char *path, struct holder *h)
{
    struct stat s;
    size_t size;
    if (lstat(path, &s) == 0 && !S_ISREG(s.st_mode)) { /* a link, too: one that leads nowhere is there and is not */
        snprintf(h->why, sizeof h->why, "%s, not a regular file", ls_file_kind(s.st_mode));
        errno = EINVAL;
        return false;
    }
    int fd = ls_file_open(path, &size, h->why);
    ssize_t n = fd >= 0 ? read(fd, h->text, TEXT - 1) : -1;
    bool good = n >= 0 && fstat(fd, &s) == 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    if (!good)
        return false;
    h->text[n] = 0;
    h->touched = s.st_mtim;
    return true;
}

/* --- is it stale? Q2 -------------------------------------------------------------------------------------- */

enum verdict { LIVES, STALE, UNSEEN, CHANGED };

static enum verdict look_for(const char *text)
{
    char theirs[FIELD], mine[FIELD], state;
    first_line("/proc/sys/kernel/random/boot_id", mine);
    if (!*mine || strcmp(field(text, "boot", theirs), mine) != 0)
        return UNSEEN;
    name_space(mine);
    if (!*mine || strcmp(field(text, "pids", theirs), mine) != 0)
        return UNSEEN;
    long pid = strtol(field(text, "pid", theirs), NULL, 10);
    if (pid < 1)
        return UNSEEN;
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return STALE;
    if (!look_at(theirs, &state, mine))
        return UNSEEN;
    if (state == 'Z' || state == 'X' || strcmp(field(text, "start", theirs), mine) != 0)
        return STALE;
    return LIVES;
}

/* Seconds since it was touched, by the clock that touched it: the file server's. */
static double age_of(const struct ls_run_lock *l, const struct holder *h)
{
    struct stat s;
    int fd = utimensat(AT_FDCWD, l->own, NULL, 0) == 0 ? open(l->own, O_RDONLY | O_CLOEXEC) : -1;
    bool known = fd >= 0 && fstat(fd, &s) == 0;
    if (fd >= 0)
        close(fd);
    double age = known ? (double)(s.st_mtim.tv_sec - h->touched.tv_sec) : 0;
    return age > 0 ? age : 0;
}

/* A holder that cannot be seen shows that it lives by touching its lock. */
static enum verdict wait_for_sign(const struct ls_run_lock *l, const char *path, const struct holder *h)
{
    struct holder later;
    char who[4 * FIELD];
    double age = age_of(l, h), start = now();
    bool said = false;
    while (age + now() - start <= l->times.stale) {
        if (!said) {
            describe(h->text, who);
            ls_warn(
                "%s: locked by a run on %s, which cannot be seen from here; waiting for a sign of life of it, %.0f s "
                "at most",
                l->run, who, l->times.stale - age + 1);
            said = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        if (!read_holder(path, &later) || strcmp(later.text, h->text) != 0)
            return CHANGED;
        if (later.touched.tv_sec != h->touched.tv_sec || later.touched.tv_nsec != h->touched.tv_nsec)
            return LIVES;
    }
    return STALE;
}

static enum verdict judge(const struct ls_run_lock *l, const char *path, const struct holder *h)
{
    enum verdict v = look_for(h->text);
    return v == UNSEEN ? wait_for_sign(l, path, h) : v;
}

/* --- taking it -------------------------------------------------------------------------------------------- */

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

/* Our own file under that name, unless there is one. What an NFS client says of link() may be about a second try; the
 * number of links is the truth. Where there are no links, O_EXCL has to do. */
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

static enum ls_status refuse(const struct ls_run_lock *l, const struct holder *h)
{
    char who[4 * FIELD];
    describe(h->text, who);
    return ls_fail(LS_FAILED,
                   "%s: in use by another run on %s; wait for that one to end, or stop it, or give another --run",
                   l->run, who);
}

static enum ls_status cannot(const struct ls_run_lock *l)
{
    return ls_fail(LS_FAILED, "%s: the run directory cannot be locked: %s", l->run, strerror(errno));
}

/* Whoever makes the file "after" a stale lock inherits it, and puts that file in its place; who dies in between leaves
 * another stale lock. *again: somebody else was faster, or let go. */
static enum ls_status inherit(struct ls_run_lock *l, const struct holder *stale, bool *again)
{
    char at[PATH_MAX + 64], after[PATH_MAX + 64];
    struct holder h = *stale, still;
    snprintf(after, sizeof after, "%s", l->path);
    do {
        strcpy(at, after);
        enum verdict v = judge(l, at, &h);
        *again = v == CHANGED;
        if (v != STALE)
            return *again ? LS_OK : refuse(l, &h);
        snprintf(after, sizeof after, "%s.after-%016" PRIx64, l->path, ls_checksum_of(h.text, strlen(h.text)));
        if (link_as(l, after))
            break;
        if (errno != EEXIST)
            return cannot(l);
        *again = !read_holder(after, &h);
    } while (!*again);
    if (*again)
        return LS_OK;
    *again = !read_holder(l->path, &still) || strcmp(still.text, stale->text) != 0;
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
    struct holder h;
    char who[4 * FIELD];
    for (;;) {
        bool again;
        if (link_as(l, l->path))
            return LS_OK;
        if (errno != EEXIST)
            return cannot(l);
        if (!read_holder(l->path, &h)) {
            if (errno != ENOENT && errno != ESTALE)
                return ls_fail(LS_FAILED,
                               "%s: the run directory cannot be locked: %s: %s; remove that, or give another --run",
                               l->run, l->path, h.why);
            continue;
        }
        LS_TRY(inherit(l, &h, &again));
        if (again)
            continue;
        describe(h.text, who);
        ls_warn("%s: its lock is taken over from a run that is gone, on %s", l->run, who);
        return LS_OK;
    }
}

/* --- keeping it ------------------------------------------------------------------------------------------- */

/* Under guard. An error other than a missing file says nothing about who has it. */
static void confirm(struct ls_run_lock *l)
{
    struct holder h;
    if (l->lost)
        return;
    if (!read_holder(l->path, &h)) {
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

static void *beat(void *context)
{
    struct ls_run_lock *l = context;
    pthread_mutex_lock(&l->guard);
    while (!l->ending) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t at = (int64_t)until.tv_sec * 1000000000 + until.tv_nsec + (int64_t)(1e9 * l->times.beat);
        until = (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
        if (pthread_cond_timedwait(&l->end, &l->guard, &until) == ETIMEDOUT)
            confirm(l);
    }
    pthread_mutex_unlock(&l->guard);
    return NULL;
}

enum ls_status ls_run_lock_held(struct ls_run_lock *l, bool sure)
{
    char who[4 * FIELD];
    if (!l)
        return LS_OK;
    pthread_mutex_lock(&l->guard);
    if (sure || now() - l->seen > 2 * l->times.beat)
        confirm(l);
    bool lost = l->lost;
    pthread_mutex_unlock(&l->guard);
    if (!lost)
        return LS_OK;
    describe(l->winner.text, who);
    return ls_fail(
        LS_FAILED,
        "%s: this run's lock was removed, or it gave no sign of life for so long, that another one took its directory "
        "over, on %s; this one ends without saving",
        l->run, who);
}

static void start_beating(struct ls_run_lock *l)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->guard, NULL);
    pthread_cond_init(&l->end, &attributes);
    pthread_condattr_destroy(&attributes);
    l->seen = now();
    l->beating = ls_thread_create(&l->thread, beat, l) == 0; /* without it, steps touch the lock */
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
        compose(l->text, argv, id);
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
    start_beating(l);
    ls_interrupt_unlink(l->path);
    *lock = l;
    return LS_OK;
}

void ls_run_lock_release(struct ls_run_lock *l)
{
    struct holder h;
    if (!l)
        return;
    ls_interrupt_unlink(NULL);
    pthread_mutex_lock(&l->guard);
    l->ending = true;
    pthread_cond_signal(&l->end);
    pthread_mutex_unlock(&l->guard);
    if (l->beating)
        pthread_join(l->thread, NULL);
    if (read_holder(l->path, &h) && strcmp(h.text, l->text) == 0)
        unlink(l->path);
    pthread_cond_destroy(&l->end);
    pthread_mutex_destroy(&l->guard);
    ls_free(l);
}

bool ls_run_lock_is_file(const char *name)
{
    return strncmp(name, "lock", 4) == 0 && (!name[4] || name[4] == '.');
}
