#define _GNU_SOURCE
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAST_SESSION 999999

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

enum ls_status ls_folder_newest(const struct ls_folder *f, int *number)
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
static bool has_live_rank(struct ls_folder *f)
{
    char name[PATH_MAX];
    double when = 0, last = 0;
    ls_folder_name(f, "", 0, name);
    ls_folder_time(name, &last);
    for (int i = 0; i < f->m->size; i++) {
        ls_folder_name(f, "rank", i, name);
        if (ls_folder_time(name, &when) && when > last)
            last = when;
    }
    return f->mark - last < LS_FOLDER_SILENCE;
}

enum ls_status ls_folder_make_session(struct ls_folder *f)
{
    char name[PATH_MAX];
    uint8_t body[LS_SESSION_BYTES];
    int why;
    ls_put32(body, (uint32_t)f->m->size);
    LS_TRY(ls_proof_random(body + 4, LS_NONCE));
    do {
        if (f->number >= LAST_SESSION)
            return ls_fail(LS_BAD_INPUT,
                           "%s/session-%d: no session has a higher number; remove that file, or name another folder",
                           f->path, LAST_SESSION);
        f->number++;
        ls_folder_name(f, "", 0, name);
        if (ls_folder_put(f, name, body, sizeof body))
            return LS_OK;
        why = errno;
        if (why == EEXIST && is_mine(AT_FDCWD, name))
            return LS_OK;
    } while (why == EEXIST);
    return ls_fail(LS_FAILED, "%s: cannot be written: %s", name, strerror(why));
}

/* *fits: the session is for this number of processes. */
static enum ls_status read_session(struct ls_folder *f, bool *fits)
{
    char name[PATH_MAX];
    void *body;
    size_t bytes;
    double when;
    ls_folder_name(f, "", 0, name);
    if (!ls_folder_get(name, LS_SESSION_BYTES, &body, &bytes, &when) || bytes != LS_SESSION_BYTES)
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

enum ls_status ls_folder_enter(struct ls_folder *f)
{
    f->rank = -1;
    for (int number = 0;;) {
        bool fits = false;
        if (ls_now() > f->until)
            return ls_fail(LS_PEER_LOST, "file://%s: no session could be entered within %.0f s", f->path,
                           f->until - f->begun);
        LS_TRY(ls_folder_newest(f, &number));
        if (f->found < 0)
            f->found = number;
        LS_TRY(ls_folder_read_clock(f));
        f->number = number;
        if (number > 0 && has_live_rank(f))
            LS_TRY(read_session(f, &fits));
        if (fits)
            return LS_OK;
        LS_TRY(ls_folder_make_session(f));
    }
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
