#define _GNU_SOURCE
#include "data/fetch/fetch.h"
#include "data/fetch/checksums.h"
#include "data/fetch/part.h"
#include "data/fetch/unpack.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/system/module.h"
#include "base/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FILES = 4 };

struct work {
    const struct ls_fetch *fetch;
    char folder[PATH_MAX];    /* of the data set */
    char unpacking[PATH_MAX]; /* holds what is unpacked until it is complete */
    char inner[PATH_MAX];     /* the data set's folder in it */
    struct ls_part part[MOST_FILES];
    char checksum[MOST_FILES][80];
    int files;
};

static bool is_archive(const char *name)
{
    return ls_ends_in(name, ".tar.gz") || ls_ends_in(name, ".zip");
}

static enum ls_status set_paths(struct work *w)
{
    const char *to = w->fetch->to, *name = w->fetch->set->folder;
    if (snprintf(w->folder, PATH_MAX, "%s/%s", to, name) >= PATH_MAX ||
        snprintf(w->unpacking, PATH_MAX, "%s/.%s.unpacking", to, name) >= PATH_MAX ||
        snprintf(w->inner, PATH_MAX, "%s/.%s.unpacking/%s", to, name, name) >= PATH_MAX)
        return ls_fail(LS_USAGE, "%s: the path is too long", to);
    return LS_OK;
}

static enum ls_status add_file(struct work *w, const struct ls_fetch_module *module,
                               const struct ls_download_file *file)
{
    struct ls_part *p = &w->part[w->files];
    *p = (struct ls_part){.fetch = w->fetch, .module = module, .name = file->name, .fd = -1};
    p->bytes = file->bytes;
    p->checksum = file->checksum;
    if (w->fetch->checksums) {
        LS_TRY(ls_checksums_find(w->fetch->checksums, file->name, w->checksum[w->files]));
        p->checksum = w->checksum[w->files];
        p->bytes = 0;
    }
    if (snprintf(p->path, PATH_MAX, "%s/%s.part", w->fetch->to, file->name) >= PATH_MAX)
        return ls_fail(LS_USAGE, "%s: the path is too long", w->fetch->to);
    w->files++;
    return LS_OK;
}

static enum ls_status open_parts(struct work *w)
{
    const void *module;
    char instead[256];
    snprintf(instead, sizeof instead, "get the files of %s by other means and unpack them", w->fetch->set->address);
    LS_TRY(ls_module_load("lockstep-fetch.so", "ls_fetch_module", instead, &module));
    for (const struct ls_download_file *f = ls_download_files; f->name && w->files < MOST_FILES; f++)
        if (strcmp(f->set, w->fetch->set->name) == 0)
            LS_TRY(add_file(w, module, f));
    LS_TRY(ls_dir_make(w->fetch->to));
    for (int i = 0; i < w->files; i++)
        LS_TRY(ls_part_open(&w->part[i]));
    return LS_OK;
}

static enum ls_status fetch_parts(struct work *w)
{
    const char *from = w->fetch->from ? w->fetch->from : w->fetch->set->address;
    for (int i = 0; i < w->files; i++) {
        if (!w->fetch->quiet && w->part[i].bytes > 0)
            ls_print("%s: %s from %s (%.1f MB)", w->fetch->set->name, w->part[i].name, from,
                     (double)w->part[i].bytes / 1e6);
        else if (!w->fetch->quiet)
            ls_print("%s: %s from %s", w->fetch->set->name, w->part[i].name, from);
        LS_TRY(ls_part_fetch(&w->part[i]));
    }
    return LS_OK;
}

/* Moves a file that is no archive into the folder. */
static enum ls_status move_file(struct work *w, const struct ls_part *p)
{
    char path[PATH_MAX];
    LS_TRY(ls_dir_make(w->inner));
    if (snprintf(path, sizeof path, "%s/%s", w->inner, p->name) >= (int)sizeof path)
        return ls_fail(LS_USAGE, "%s: the path is too long", w->inner);
    if (rename(p->path, path) != 0)
        return ls_fail(LS_FAILED, "%s: cannot be moved to %s: %s", p->path, path, strerror(errno));
    return LS_OK;
}

static enum ls_status unpack(struct work *w)
{
    const struct ls_fetch *f = w->fetch;
    for (int i = 0; i < w->files; i++) {
        struct ls_unpack u = {.archive = w->part[i].path,
                              .folder = w->unpacking,
                              .is_stopped = f->is_stopped,
                              .progress = f->progress,
                              .context = f->context,
                              .fd = -1};
        if (!is_archive(w->part[i].name))
            LS_TRY(move_file(w, &w->part[i]));
        else
            LS_TRY(ls_ends_in(w->part[i].name, ".zip") ? ls_unzip(&u) : ls_untar(&u));
    }
    if (!ls_file_is_dir(w->inner))
        return ls_fail(LS_BAD_INPUT, "%s: no folder %s in it", w->part[0].path, f->set->folder);
    return LS_OK;
}

/* Makes what was unpacked durable, then gives it its name. */
static enum ls_status commit(struct work *w)
{
    int fd = open(w->inner, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || syncfs(fd) != 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (bad)
        return ls_fail(LS_FAILED, "%s: cannot be written to disk: %s", w->inner, strerror(error));
    if (rename(w->inner, w->folder) != 0)
        return ls_fail(LS_FAILED, "%s: cannot be renamed to %s: %s", w->inner, w->folder, strerror(errno));
    return ls_dir_sync_above(w->folder);
}

static void remove_parts(const struct work *w)
{
    for (int i = 0; i < w->files; i++)
        unlink(w->part[i].path);
}

/* An archive that is refused is removed; otherwise what was downloaded stays. */
static enum ls_status unpack_and_commit(struct work *w)
{
    LS_TRY(ls_dir_remove(w->unpacking)); /* of a process that was killed */
    LS_TRY(ls_dir_make_new(w->unpacking));
    enum ls_status st = unpack(w);
    if (st == LS_OK)
        st = commit(w);
    if (st == LS_BAD_INPUT)
        remove_parts(w);
    enum ls_status removed = ls_dir_remove(w->unpacking);
    return st == LS_OK ? removed : st;
}

enum ls_status ls_fetch(const struct ls_fetch *f, bool *was_there)
{
    struct work w = {.fetch = f};
    LS_TRY(set_paths(&w));
    *was_there = ls_file_exists(w.folder);
    if (*was_there)
        return LS_OK;
    enum ls_status st = open_parts(&w);
    if (st == LS_OK && ls_file_exists(w.folder)) /* by another process, before this one had the lock */
        *was_there = true;
    if (st == LS_OK && !*was_there)
        st = fetch_parts(&w);
    if (st == LS_OK && !*was_there)
        st = unpack_and_commit(&w);
    if (st == LS_OK)
        remove_parts(&w);
    for (int i = 0; i < w.files; i++)
        ls_part_close(&w.part[i]);
    return st;
}
