/* Finds shards. A part is, for training: the shards of DIR/train or DIR/training, or those of DIR with `train` in their name;
 * for testing: the shards of DIR/val and its other names, or those of DIR with `val` or `test` in their name. Without parts all
 * shards of DIR, or one file, are both. A folder that has folders is no folder of shards: an archive beside the images that
 * came out of it is not the data. */
#define _GNU_SOURCE
#include "base/files/file.h"
#include "base/log.h"
#include "data/records/records.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct paths {
    char **path; /* owned, and the strings */
    int count, room;
};

void ls_shards_free(char **paths, int count)
{
    for (int i = 0; i < count; i++)
        ls_free(paths[i]);
    ls_free(paths);
}

static enum ls_status add(struct paths *p, char *path)
{
    if (!path)
        return LS_FAILED;
    if (p->count == p->room) {
        int room = p->room ? 2 * p->room : 64;
        char **larger = ls_realloc(p->path, (size_t)p->room, (size_t)room, sizeof *larger);
        if (!larger) {
            ls_free(path);
            return LS_FAILED;
        }
        p->path = larger;
        p->room = room;
    }
    p->path[p->count++] = path;
    return LS_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_word(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strcasestr(name, *words))
            return true;
    return false;
}

static bool is_folder(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && ls_file_is_dir(path);
}

/* Lists the shards of a folder; words: only those whose name contains one of them. None if there are folders in it. */
static enum ls_status list(const char *folder, bool (*is_shard)(const char *name), const char *const *words,
                           struct paths *p)
{
    DIR *dir = opendir(folder);
    struct dirent *e;
    enum ls_status st = LS_OK;
    if (!dir)
        return errno == ENOENT || errno == ENOTDIR
                   ? LS_OK
                   : ls_fail(LS_BAD_INPUT, "%s: the folder cannot be read: %s", folder, strerror(errno));
    bool folders = false;
    while (st == LS_OK && !folders && (e = readdir(dir))) {
        if (e->d_name[0] == '.')
            continue;
        if (is_shard(e->d_name) && (!words || has_word(e->d_name, words)))
            st = add(p, ls_format("%s/%s", folder, e->d_name));
        else
            folders = e->d_type == DT_DIR ||
                      ((e->d_type == DT_LNK || e->d_type == DT_UNKNOWN) && is_folder(folder, e->d_name));
    }
    closedir(dir);
    if (folders) {
        ls_shards_free(p->path, p->count);
        *p = (struct paths){0};
    }
    if (p->count > 1)
        qsort(p->path, (size_t)p->count, sizeof *p->path, by_path);
    return st;
}

static const char *const train_folders[] = {"train", "training", NULL};
static const char *const test_folders[] = {"val", "valid", "validation", "eval", "evaluation", "test", "testing", NULL};
static const char *const train_words[] = {"train", NULL};
static const char *const test_words[] = {"val", "test", NULL};

static enum ls_status list_part(const char *spec, bool test, bool (*is_shard)(const char *name), struct paths *p)
{
    for (const char *const *name = test ? test_folders : train_folders; *name && p->count == 0; name++) {
        char folder[PATH_MAX];
        if (snprintf(folder, sizeof folder, "%s/%s", spec, *name) < (int)sizeof folder)
            LS_TRY(list(folder, is_shard, NULL, p));
    }
    return p->count > 0 ? LS_OK : list(spec, is_shard, test ? test_words : train_words, p);
}

static enum ls_status find(const char *spec, bool test, bool (*is_shard)(const char *name), struct paths *p,
                           bool *whole)
{
    const char *base = strrchr(spec, '/');
    *whole = false;
    if (!ls_file_is_dir(spec)) {
        *whole = true;
        return is_shard(base ? base + 1 : spec) && ls_file_exists(spec) ? add(p, ls_strdup(spec)) : LS_OK;
    }
    LS_TRY(list_part(spec, test, is_shard, p));
    if (p->count > 0)
        return LS_OK;
    *whole = true;
    LS_TRY(list_part(spec, !test, is_shard, p));
    return p->count > 0 ? LS_OK : list(spec, is_shard, NULL, p);
}

enum ls_status ls_shards_find(const char *spec, bool test, bool (*is_shard)(const char *name), char ***paths,
                              int *count, bool *whole)
{
    struct paths p = {0};
    enum ls_status st = find(spec, test, is_shard, &p, whole);
    if (st != LS_OK) {
        ls_shards_free(p.path, p.count);
        return st;
    }
    *paths = p.path;
    *count = p.count;
    return LS_OK;
}
