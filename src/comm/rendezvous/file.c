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
#include "comm/rendezvous/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_SECONDS 0.05
#define TOUCH_SECONDS 1.0

enum look { ALIVE, DEAD };

static void sleep_briefly(void)
{
    struct timespec t = {.tv_nsec = (long)(1e9 * LOOK_SECONDS)};
    nanosleep(&t, NULL);
}

/* --- ranks ----------------------------------------------------------------------------------------------- */

/* The session was removed, after the rendezvous of another run in it. */
static bool is_gone(const struct ls_folder *f)
{
    char name[PATH_MAX];
    void *body = NULL;
    size_t bytes = 0;
    double when;
    ls_folder_name(f, "", 0, name);
    bool same = ls_folder_get(name, LS_SESSION_BYTES, &body, &bytes, &when) && bytes == LS_SESSION_BYTES &&
                memcmp((uint8_t *)body + 4, f->key, LS_NONCE) == 0;
    ls_free(body);
    return !same;
}

/* The place is taken, in the newest session: by a process of an earlier run, or by one of this run. */
static enum ls_status taken(struct ls_folder *f)
{
    if (f->number <= f->found)
        return ls_folder_make_session(f);
    if (f->l->rank >= 0)
        return ls_fail(LS_USAGE, "%s: another process has come as rank %d; each process needs a rank of its own",
                       f->path, f->l->rank);
    return ls_fail(LS_USAGE, "%s: all %d processes of the run that meets there have come; this is one more", f->path,
                   f->m->size);
}

/* Takes a place. *again: there is none, but there is a newer session. */
static enum ls_status claim(struct ls_folder *f, bool *again)
{
    char name[PATH_MAX];
    const struct ls_address *own = &f->m->address[f->m->size];
    int wanted = f->l->rank, last = wanted < 0 ? f->m->size - 1 : wanted, number;
    *again = false;
    for (int i = wanted < 0 ? 0 : wanted; i <= last; i++) {
        ls_folder_name(f, "rank", i, name);
        if (ls_folder_put(f, name, own->data, own->bytes)) {
            f->rank = i;
            return LS_OK;
        }
        if (errno != EEXIST)
            return ls_fail(LS_FAILED, "%s: cannot be written: %s", name, strerror(errno));
    }
    LS_TRY(ls_folder_newest(f, &number));
    *again = true;
    if (number == f->number && !is_gone(f))
        LS_TRY(taken(f));
    sleep_briefly(); /* until the new session is visible */
    return LS_OK;
}

/* Counts the missing files of a kind. DEAD: a rank that came is silent (RENDEZVOUS-5). `seen` remembers ranks that came
 * and gave up since: they are not reported as missing. */
static enum look check_ranks(struct ls_folder *f, const char *what, int *missing)
{
    char name[PATH_MAX];
    enum look state = ALIVE;
    double when;
    *missing = 0;
    for (int i = 0; i < f->m->size; i++) {
        ls_folder_name(f, what, i, name);
        bool there = ls_folder_time(name, &when);
        *missing += !there;
        f->seen[i] = f->seen[i] || there;
        ls_folder_name(f, "ready", i, name);
        bool ready = ls_folder_time(name, &when);
        ls_folder_name(f, "rank", i, name);
        if (ls_folder_time(name, &when) && !ready && f->mark - when > LS_FOLDER_SILENCE)
            state = DEAD;
    }
    return state;
}

/* Reports the missing ranks, by number where they have numbers. */
static enum ls_status report_missing(struct ls_folder *f)
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
static enum ls_status wait_for_all(struct ls_folder *f, const char *what, bool *again)
{
    int missing, number;
    *again = false;
    memset(f->seen, 0, (size_t)f->m->size * sizeof *f->seen);
    for (;;) {
        enum look state = check_ranks(f, what, &missing);
        if (missing == 0)
            return LS_OK;
        LS_TRY(ls_folder_newest(f, &number));
        *again = state == DEAD || number != f->number || is_gone(f);
        if (*again) /* the first process that notices makes the next one */
            return state == DEAD && number == f->number ? ls_folder_make_session(f) : LS_OK;
        if (ls_now() > f->until)
            return report_missing(f);
        if (ls_now() - f->touched > TOUCH_SECONDS)
            LS_TRY(ls_folder_read_clock(f));
        sleep_briefly();
    }
}

static enum ls_status read_addresses(struct ls_folder *f)
{
    char name[PATH_MAX];
    for (int i = 0; i < f->m->size; i++) {
        void *body;
        size_t bytes;
        double when;
        ls_folder_name(f, "rank", i, name);
        if (!ls_folder_get(name, LS_ADDRESS_LIMIT, &body, &bytes, &when))
            return ls_fail(LS_BAD_INPUT, "%s: not a file of this user with mode 0600", name);
        ls_free(f->m->address[i].data);
        f->m->address[i] = (struct ls_address){body, bytes};
    }
    return LS_OK;
}

static enum ls_status try_session(struct ls_folder *f, bool *again)
{
    char name[PATH_MAX];
    LS_TRY(ls_folder_enter(f));
    LS_TRY(claim(f, again));
    if (*again)
        return LS_OK;
    LS_TRY(wait_for_all(f, "rank", again));
    if (*again)
        return LS_OK;
    LS_TRY(read_addresses(f));
    ls_folder_name(f, "ready", f->rank, name);
    if (!ls_folder_put(f, name, "", 0))
        return ls_fail(LS_FAILED, "%s: cannot be written: %s", name, strerror(errno));
    return wait_for_all(f, "ready", again);
}

/* --- the rendezvous ---------------------------------------------------------------------------------------- */

/* A process that gives up removes its files, so that the next run need not wait until they are old. */
static void remove_own_files(const struct ls_folder *f)
{
    char name[PATH_MAX];
    static const char *const what[] = {"ready", "rank"};
    for (int i = 0; f->rank >= 0 && i < 2; i++) {
        ls_folder_name(f, what[i], f->rank, name);
        unlink(name);
    }
}

static enum ls_status open_folder(struct ls_folder *f)
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
    struct ls_folder f = {
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
