/* lockstep data stage SRC DIR: copies a data set to the disk of this node, once for all processes of the node. */
#include "cmd/data/data_commands.h"
#include "cmd/data/new_folder.h"
#include "cmd/data/stage.h"

#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/interrupt.h"
#include "base/text/text.h"
#include "config/downloads.h"
#include "data/data.h"

#include <fcntl.h>
#include <limits.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#define MARK ".lockstep-staged" /* the list of files in a folder that this command has written */
#define BLOCK 4096              /* a file takes whole blocks of a disk */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *mark_path(const char *folder)
{
    return ls_format("%s/%s", folder, MARK);
}

/* --- what is there already -------------------------------------------------------------------------------------------- */

/* The time of the last successful comparison, in the modification time of the mark. 0: never. */
static double checked_at(const char *folder)
{
    char *path = mark_path(folder);
    struct stat s;
    double at = path && stat(path, &s) == 0 ? (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec : 0;
    ls_free(path);
    return at;
}

static void note_checked(const char *folder)
{
    char *path = mark_path(folder);
    if (path)
        utimensat(AT_FDCWD, path, NULL, 0);
    ls_free(path);
}

static bool was_staged(const char *folder)
{
    char *path = mark_path(folder);
    bool there = path && ls_file_exists(path);
    ls_free(path);
    return there;
}

/* Reads the mark; false: there is none, or it is damaged. */
static bool load_mark(const char *folder, struct ls_staged *s)
{
    char *path = mark_path(folder), *text = NULL;
    size_t size;
    bool muted = ls_log_mute(true);
    bool good = path && ls_file_exists(path) && ls_file_read(path, LS_STAGE_MARK_MAX, &text, &size) == LS_OK &&
                ls_staged_parse(text, size, s);
    ls_log_mute(muted);
    ls_free(text);
    ls_free(path);
    return good;
}

/* Sets *intact if the folder holds exactly the files of the source, with the checksums that they had when they were copied. */
static enum ls_status compare(const struct ls_staging *g, const struct ls_staged *source, const char *folder,
                              struct ls_console *console, bool *intact)
{
    struct ls_staged before = {0};
    enum ls_status st = LS_OK;
    bool marked = load_mark(folder, &before);
    *intact = marked && ls_staged_same(source, &before);
    if (marked && !*intact && strcmp(source->source, before.source) != 0) /* another job may be reading it */
        st = ls_fail(LS_USAGE, "%s: it holds a copy of %s; give another folder for %s, or remove this one", folder,
                     before.source, g->source);
    if (*intact)
        st = ls_staged_verify(&before, folder, g->threads, console, intact);
    ls_staged_release(&before);
    return st;
}

/* --- copying ---------------------------------------------------------------------------------------------------------- */

static enum ls_status check_room(const struct ls_staged *s, const char *path)
{
    char above[PATH_MAX], texts[2][32];
    struct statvfs v;
    uint64_t need = BLOCK;
    snprintf(above, sizeof above, "%s", path);
    char *slash = strrchr(above, '/');
    slash[slash == above] = 0;
    for (int64_t i = 0; i < s->count; i++)
        need += (s->file[i].size + BLOCK - 1) / BLOCK * BLOCK;
    if (statvfs(above, &v) != 0)
        return LS_OK;
    uint64_t free = (uint64_t)v.f_bavail * v.f_frsize;
    if (free >= need)
        return LS_OK;
    return ls_fail(LS_FAILED, "%s: the data set needs %s, but only %s are free there", path,
                   ls_bytes_text(need, texts[0]), ls_bytes_text(free, texts[1]));
}

static enum ls_status copy(const struct ls_staging *g, struct ls_staged *source, struct ls_new_folder *n,
                           struct ls_console *console)
{
    char *mark = NULL;
    if (was_staged(n->path)) /* damaged or out of date, and in the way of the new one */
        LS_TRY(ls_dir_remove(n->path));
    LS_TRY(ls_dir_remove(n->temporary));
    LS_TRY(check_room(source, n->path));
    LS_TRY(ls_new_folder_begin(n));
    LS_TRY(ls_staged_copy(source, n->temporary, g->threads, console));
    LS_TRY(ls_staged_print(source, &mark));
    enum ls_status st = ls_new_folder_commit(n, MARK, mark);
    free(mark);
    return st;
}

static enum ls_status check_target(const char *source, const struct ls_new_folder *n)
{
    char real[PATH_MAX];
    if (realpath(source, real) && (ls_path_is_in(real, n->path) || ls_path_is_in(n->path, real)))
        return ls_fail(LS_USAGE, "data stage: %s and %s lie in one another; give another folder", source, n->path);
    if (ls_folder_is_empty(n->path) || was_staged(n->path))
        return LS_OK;
    const char *name = ls_base_name(source);
    return ls_fail(LS_USAGE,
                   "%s: it holds files that `lockstep data stage` has not written; give a folder of its own, "
                   "such as %s/%s",
                   n->path, n->path, !*name || *name == '.' ? "data" : name);
}

/* The lock is held. began: of this process. */
static enum ls_status stage(const struct ls_staging *g, struct ls_new_folder *n, double began,
                            struct ls_console *console, bool *was_there)
{
    struct ls_staged source = {0};
    bool intact = false;
    *was_there = was_staged(n->path) && checked_at(n->path) >= began; /* by a process that started together with this */
    if (*was_there)
        return LS_OK;
    LS_TRY(check_target(g->source, n));
    enum ls_status st = ls_staged_list(&source, g->source);
    if (st == LS_OK && was_staged(n->path))
        st = compare(g, &source, n->path, console, &intact);
    if (st == LS_OK && intact)
        note_checked(n->path);
    else if (st == LS_OK)
        st = copy(g, &source, n, console);
    *was_there = intact;
    ls_staged_release(&source);
    return st;
}

/* The source may be the name of a data set that was fetched. */
static enum ls_status find_source(const char **source, char fetched[PATH_MAX])
{
    const struct ls_download *known = ls_download_find(*source);
    if (ls_file_exists(*source))
        return LS_OK;
    if (known && ls_download_path(known, fetched) && ls_file_exists(fetched)) {
        *source = fetched;
        return LS_OK;
    }
    for (const struct ls_dataset_ops *const *f = ls_dataset_formats; *f; f++)
        if ((*f)->word && strncmp(*source, (*f)->word, strlen((*f)->word)) == 0)
            return ls_fail(LS_USAGE, "data stage: %s has no files; every process can use it as it is", *source);
    if (known)
        return ls_fail(LS_BAD_INPUT, "%s: the data set was not fetched yet; type: lockstep data fetch %s", *source,
                       known->name);
    return ls_fail(LS_BAD_INPUT, "%s: no such file or folder; data stage copies the files of a data set", *source);
}

static void tell(const char *source, const char *to, bool was_there)
{
    bool folder = ls_file_is_dir(source);
    ls_print("%s: %s; use it with --data %s%s%s", to, was_there ? "is there already" : "staged", to, folder ? "" : "/",
             folder ? "" : ls_base_name(source));
}

enum ls_status ls_data_stage(struct ls_options *o, int n_words, char **words)
{
    double began = now();
    char fetched[PATH_MAX];
    struct ls_new_folder n = {.lock = -1};
    struct ls_console console;
    bool was_there = false;
    if (n_words != 2)
        return ls_fail(LS_USAGE, "data stage: expected SRC and DIR; type: lockstep data stage SRC DIR");
    struct ls_staging g = {.source = words[0],
                           .threads = o->loader_threads > 0 ? (int)o->loader_threads : omp_get_max_threads()};
    LS_TRY(find_source(&g.source, fetched));
    ls_interrupt_watch();
    ls_console_begin(&console, o, 0);
    enum ls_status st = ls_new_folder_lock(&n, words[1], true, NULL);
    if (st == LS_OK)
        st = stage(&g, &n, began, &console, &was_there);
    ls_console_end(&console);
    if (st == LS_OK && !o->quiet)
        tell(g.source, words[1], was_there);
    if (st == LS_INTERRUPTED)
        ls_print("interrupted; %s is not staged", words[1]);
    ls_new_folder_release(&n);
    ls_interrupt_release();
    return st;
}
