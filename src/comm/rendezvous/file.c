/* A rendezvous in a folder that all processes can reach.
 *
 *     session-0007            made by the first process: the number of processes and a random key (mode 0600)
 *     session-0007.rank-2     rank 2 is here: its address; touched once a second while it waits
 *     session-0007.ready-2    rank 2 has seen all ranks
 *
 *   RENDEZVOUS-4  A file appears complete: it is written under a temporary name and linked to its name. Linking fails where
 *                 the name exists.
 *   RENDEZVOUS-5  A session may be left from an earlier run that failed. It is never repaired: a process opens the next
 *                 number, and all processes follow the highest number. A process does so at once when it finds its place
 *                 taken, or another number of processes, in a session that is older than the process. It also does so
 *                 when no process has touched a session for long. So a complete run replaces a session in which a dead
 *                 process still holds a place.
 *   RENDEZVOUS-6  No process continues before all have reported that they saw all. So the address of a process that has
 *                 ended is never used.
 *   RENDEZVOUS-7  Files of other users are ignored. The mode of the folder and of the files is the proof of identity; a
 *                 token, if given, becomes part of the key.
 *
 * Times of files are compared with each other, never with this host's clock. */
#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SILENCE 15.0 /* seconds without a sign of life, more than any NFS keeps attributes for */
#define LOOK_SECONDS 0.05
#define TOUCH_SECONDS 1.0
#define LAST_SESSION 999999
#define SESSION_BYTES (4 + LS_NONCE)

struct folder {
    const struct ls_launch *l;
    struct ls_rendezvous *m;
    char *path;
    int number; /* of the session */
    int found;  /* the highest number when this process came; -1: not known yet */
    uint8_t key[LS_NONCE];
    uint64_t random; /* for a unique name */
    int rank;        /* -1: none yet */
    double touched;  /* the last touch, by this host's clock; `mark`: by the file system's */
    double mark;
    double begun, until;
    bool *seen; /* owned; ranks whose file was there during this wait */
};

enum look { ALIVE, DEAD };

/* --- files ----------------------------------------------------------------------------------------------- */

static void name_of(const struct folder *f, const char *what, int rank, char name[PATH_MAX])
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

/* False with errno EEXIST when the name exists (RENDEZVOUS-4). */
static bool put(const struct folder *f, const char *name, const void *data, size_t bytes)
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

/* Reads a file of this user (RENDEZVOUS-7) and its time; false: there is none. */
static bool get(const char *name, size_t limit, void **data, size_t *bytes, double *when)
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

static bool time_of_file(const char *name, double *when)
{
    struct stat s;
    if (lstat(name, &s) != 0)
        return false;
    *when = time_of(&s);
    return true;
}

/* Reads the file system's clock by touching a file. */
static enum ls_status read_server_clock(struct folder *f)
{
    char name[PATH_MAX];
    if (f->rank >= 0)
        name_of(f, "rank", f->rank, name);
    else
        snprintf(name, sizeof name, "%s/.clock-%016" PRIx64, f->path, f->random);
    if (f->rank < 0) {
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            close(fd);
    }
    bool good = utimensat(AT_FDCWD, name, NULL, AT_SYMLINK_NOFOLLOW) == 0 && time_of_file(name, &f->mark);
    int why = errno;
    if (f->rank < 0)
        unlink(name);
    f->touched = ls_now();
    if (f->rank >= 0 && why == ENOENT) /* the session was removed; wait_for_all sees that */
        return LS_OK;
    return good ? LS_OK : ls_fail(LS_FAILED, "%s: cannot be written: %s", name, strerror(why));
}

static void sleep_briefly(void)
{
    struct timespec t = {.tv_nsec = (long)(1e9 * LOOK_SECONDS)};
    nanosleep(&t, NULL);
}

/* --- sessions -------------------------------------------------------------------------------------------- */

/* The number of the session in a file name of name_of; 0: it is another name. *rest: the text after the number. */
static int number_in(const char *name, const char **rest)
{
    *rest = "";
    size_t digits = strncmp(name, "session-", 8) == 0 ? strspn(name + 8, "0123456789") : 0;
    if (digits < 4 || digits > 6 || (digits > 4 && name[8] == '0'))
        return 0;
    *rest = name + 8 + digits;
    return (int)strtol(name + 8, NULL, 10);
}

/* RENDEZVOUS-7 */
static bool is_mine(int folder, const char *name)
{
    struct stat s;
    return fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) == 0 && s.st_uid == geteuid();
}

/* The highest session of this user; 0: none. */
static enum ls_status newest(const struct folder *f, int *number)
{
    const char *rest;
    DIR *dir = opendir(f->path);
    if (!dir)
        return ls_fail(LS_FAILED, "%s: cannot be read: %s", f->path, strerror(errno));
    *number = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        int n = number_in(e->d_name, &rest);
        if (n > *number && !*rest && is_mine(dirfd(dir), e->d_name))
            *number = n;
    }
    closedir(dir);
    return LS_OK;
}

/* A process of this session has touched its file lately. */
static bool has_live_rank(struct folder *f)
{
    char name[PATH_MAX];
    double when = 0, last = 0;
    name_of(f, "", 0, name);
    time_of_file(name, &last);
    for (int i = 0; i < f->m->size; i++) {
        name_of(f, "rank", i, name);
        if (time_of_file(name, &when) && when > last)
            last = when;
    }
    return f->mark - last < SILENCE;
}

/* Makes the next session; numbers of other users' files are skipped. */
static enum ls_status make_session(struct folder *f)
{
    char name[PATH_MAX];
    uint8_t body[SESSION_BYTES];
    int why;
    ls_put32(body, (uint32_t)f->m->size);
    LS_TRY(ls_proof_random(body + 4, LS_NONCE));
    do {
        if (f->number >= LAST_SESSION)
            return ls_fail(LS_BAD_INPUT,
                           "%s/session-%d: no session has a higher number; remove that file, or name another folder",
                           f->path, LAST_SESSION);
        f->number++;
        name_of(f, "", 0, name);
        if (put(f, name, body, sizeof body))
            return LS_OK;
        why = errno;
        if (why == EEXIST && is_mine(AT_FDCWD, name))
            return LS_OK;
    } while (why == EEXIST);
    return ls_fail(LS_FAILED, "%s: cannot be written: %s", name, strerror(why));
}

/* *fits: the session is for this number of processes. */
static enum ls_status read_session(struct folder *f, bool *fits)
{
    char name[PATH_MAX];
    void *body;
    size_t bytes;
    double when;
    name_of(f, "", 0, name);
    if (!get(name, SESSION_BYTES, &body, &bytes, &when) || bytes != SESSION_BYTES)
        return ls_fail(LS_BAD_INPUT,
                       "%s: not a session of ours: it must be a file of this user with mode 0600; "
                       "remove the folder, or name another one",
                       name);
    uint32_t size = ls_get32(body);
    memcpy(f->key, (uint8_t *)body + 4, LS_NONCE);
    ls_free(body);
    *fits = size == (uint32_t)f->m->size;
    if (!*fits && f->number > f->found)
        return ls_fail(LS_USAGE,
                       "%s: the run that meets there is one of %u processes, this one was started for %d; give all the "
                       "same number",
                       name, size, f->m->size);
    return LS_OK;
}

/* Finds the session of this run, or makes the next one, and reads it. */
static enum ls_status enter(struct folder *f)
{
    f->rank = -1;
    for (int number = 0;;) {
        bool fits = false;
        if (ls_now() > f->until)
            return ls_fail(LS_PEER_LOST, "file://%s: no session could be entered within %.0f s", f->path,
                           f->until - f->begun);
        LS_TRY(newest(f, &number));
        if (f->found < 0)
            f->found = number;
        LS_TRY(read_server_clock(f));
        f->number = number;
        if (number > 0 && has_live_rank(f))
            LS_TRY(read_session(f, &fits));
        if (fits)
            return LS_OK;
        LS_TRY(make_session(f));
    }
}

/* --- ranks ----------------------------------------------------------------------------------------------- */

/* The session was removed, after the rendezvous of another run in it. */
static bool is_gone(const struct folder *f)
{
    char name[PATH_MAX];
    void *body = NULL;
    size_t bytes = 0;
    double when;
    name_of(f, "", 0, name);
    bool same = get(name, SESSION_BYTES, &body, &bytes, &when) && bytes == SESSION_BYTES &&
                memcmp((uint8_t *)body + 4, f->key, LS_NONCE) == 0;
    ls_free(body);
    return !same;
}

/* The place is taken, in the newest session: by a process of an earlier run, or by one of this run. */
static enum ls_status taken(struct folder *f)
{
    if (f->number <= f->found)
        return make_session(f);
    if (f->l->rank >= 0)
        return ls_fail(LS_USAGE, "%s: another process has come as rank %d; each process needs a rank of its own",
                       f->path, f->l->rank);
    return ls_fail(LS_USAGE, "%s: all %d processes of the run that meets there have come; this is one more", f->path,
                   f->m->size);
}

/* Takes a place. *again: there is none, but there is a newer session. */
static enum ls_status claim(struct folder *f, bool *again)
{
    char name[PATH_MAX];
    const struct ls_address *own = &f->m->address[f->m->size];
    int wanted = f->l->rank, last = wanted < 0 ? f->m->size - 1 : wanted, number;
    *again = false;
    for (int i = wanted < 0 ? 0 : wanted; i <= last; i++) {
        name_of(f, "rank", i, name);
        if (put(f, name, own->data, own->bytes)) {
            f->rank = i;
            return LS_OK;
        }
        if (errno != EEXIST)
            return ls_fail(LS_FAILED, "%s: cannot be written: %s", name, strerror(errno));
    }
    LS_TRY(newest(f, &number));
    *again = true;
    if (number == f->number && !is_gone(f))
        LS_TRY(taken(f));
    sleep_briefly(); /* until the new session is visible */
    return LS_OK;
}

/* Counts the missing files of a kind. DEAD: a rank that came is silent (RENDEZVOUS-5). `seen` remembers ranks that came
 * and gave up since: they are not reported as missing. */
static enum look check_ranks(struct folder *f, const char *what, int *missing)
{
    char name[PATH_MAX];
    enum look state = ALIVE;
    double when;
    *missing = 0;
    for (int i = 0; i < f->m->size; i++) {
        name_of(f, what, i, name);
        bool there = time_of_file(name, &when);
        *missing += !there;
        f->seen[i] = f->seen[i] || there;
        name_of(f, "ready", i, name);
        bool ready = time_of_file(name, &when);
        name_of(f, "rank", i, name);
        if (time_of_file(name, &when) && !ready && f->mark - when > SILENCE)
            state = DEAD;
    }
    return state;
}

/* Reports the missing ranks, by number where they have numbers. */
static enum ls_status report_missing(struct folder *f)
{
    char who[256];
    int here = 0;
    for (int i = 0; i < f->m->size; i++) {
        here += f->seen[i];
        if (f->seen[i])
            LS_TRY(ls_rendezvous_set_address(f->m, i, "", 0));
    }
    if (f->l->rank < 0)
        return ls_fail(LS_PEER_LOST, "only %d of %d processes came to file://%s within %.0f s", here, f->m->size,
                       f->path, f->until - f->begun);
    ls_rendezvous_missing(f->m, who, sizeof who);
    return ls_fail(LS_PEER_LOST, "%s did not come to file://%s within %.0f s", who, f->path, f->until - f->begun);
}

/* Waits for all files of a kind. *again: the session is dead, or there is a newer one. */
static enum ls_status wait_for_all(struct folder *f, const char *what, bool *again)
{
    int missing, number;
    *again = false;
    memset(f->seen, 0, (size_t)f->m->size * sizeof *f->seen);
    for (;;) {
        enum look state = check_ranks(f, what, &missing);
        if (missing == 0)
            return LS_OK;
        LS_TRY(newest(f, &number));
        *again = state == DEAD || number != f->number || is_gone(f);
        if (*again) /* the first process that notices makes the next one */
            return state == DEAD && number == f->number ? make_session(f) : LS_OK;
        if (ls_now() > f->until)
            return report_missing(f);
        if (ls_now() - f->touched > TOUCH_SECONDS)
            LS_TRY(read_server_clock(f));
        sleep_briefly();
    }
}

static enum ls_status read_addresses(struct folder *f)
{
    char name[PATH_MAX];
    for (int i = 0; i < f->m->size; i++) {
        void *body;
        size_t bytes;
        double when;
        name_of(f, "rank", i, name);
        if (!get(name, LS_ADDRESS_LIMIT, &body, &bytes, &when))
            return ls_fail(LS_BAD_INPUT, "%s: not a file of this user with mode 0600", name);
        ls_free(f->m->address[i].data);
        f->m->address[i] = (struct ls_address){body, bytes};
    }
    return LS_OK;
}

static enum ls_status try_session(struct folder *f, bool *again)
{
    char name[PATH_MAX];
    LS_TRY(enter(f));
    LS_TRY(claim(f, again));
    if (*again)
        return LS_OK;
    LS_TRY(wait_for_all(f, "rank", again));
    if (*again)
        return LS_OK;
    LS_TRY(read_addresses(f));
    name_of(f, "ready", f->rank, name);
    if (!put(f, name, "", 0))
        return ls_fail(LS_FAILED, "%s: cannot be written: %s", name, strerror(errno));
    return wait_for_all(f, "ready", again);
}

/* --- the rendezvous ---------------------------------------------------------------------------------------- */

/* A process that gives up removes its files, so that the next run need not wait until they are old. */
static void remove_own_files(const struct folder *f)
{
    char name[PATH_MAX];
    static const char *const what[] = {"ready", "rank"};
    for (int i = 0; f->rank >= 0 && i < 2; i++) {
        name_of(f, what[i], f->rank, name);
        unlink(name);
    }
}

static enum ls_status open_folder(struct folder *f)
{
    struct stat s;
    if (mkdir(f->path, 0700) != 0 && errno != EEXIST)
        return ls_fail(LS_USAGE, "file://%s: the folder cannot be made: %s", f->path, strerror(errno));
    if (stat(f->path, &s) != 0 || !S_ISDIR(s.st_mode))
        return ls_fail(LS_USAGE, "file://%s: not a folder; --rendezvous needs one", f->path);
    if ((s.st_uid != geteuid() && s.st_uid != 0) || ((s.st_mode & 022) && !(s.st_mode & S_ISVTX)))
        return ls_fail(LS_USAGE, "file://%s: other users may change that folder; name one that only you can write",
                       f->path);
    return LS_OK;
}

enum ls_status ls_rendezvous_file(const struct ls_launch *launch, double until, struct ls_rendezvous *m)
{
    struct folder f = {
        .l = launch, .m = m, .path = launch->path, .rank = -1, .found = -1, .begun = ls_now(), .until = until};
    const char *token = launch->token ? launch->token : "";
    const struct ls_proof_part seed[] = {{f.key, LS_NONCE}, {NULL, 0}};
    LS_TRY(ls_proof_random(&f.random, sizeof f.random));
    LS_TRY(open_folder(&f));
    f.seen = ls_alloc((size_t)m->size, sizeof *f.seen);
    enum ls_status st = f.seen ? LS_OK : LS_FAILED;
    for (bool again = true; st == LS_OK && again;) {
        st = try_session(&f, &again);
        if (st == LS_OK && again && ls_now() > until)
            st = ls_fail(LS_PEER_LOST, "file://%s: the processes did not find each other within %.0f s", f.path,
                         until - f.begun);
    }
    ls_free(f.seen);
    if (st != LS_OK) {
        remove_own_files(&f);
        return st;
    }
    m->rank = f.rank;
    m->session = f.number;
    m->folder = ls_strdup(f.path);
    return m->folder ? ls_proof_make(token, strlen(token), "key", seed, m->key) : LS_FAILED;
}

/* Removes this session and older ones, which were dead before this one began. */
void ls_rendezvous_clean(const struct ls_rendezvous *m)
{
    const char *rest;
    DIR *dir = m->folder && m->rank == 0 ? opendir(m->folder) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int n = number_in(e->d_name, &rest);
        bool made = n > 0 && (!*rest || strncmp(rest, ".rank-", 6) == 0 || strncmp(rest, ".ready-", 7) == 0);
        if (made && n <= m->session && is_mine(dirfd(dir), e->d_name))
            unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir)
        closedir(dir);
}
