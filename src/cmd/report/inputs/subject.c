#define _GNU_SOURCE
#include "cmd/report/inputs/subject.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/utf8.h"
#include "checkpoint/rundir.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has(const char *folder, const char *name)
{
    char *path = ls_format("%s/%s", folder, name);
    bool there = path && ls_file_exists(path);
    ls_free(path);
    return there;
}

/* A folder with metrics alone, such as a copy from another machine, is a run, too. */
static bool is_run(const char *folder)
{
    return ls_file_is_dir(folder) && (ls_rundir_is_run(folder) || has(folder, "metrics.jsonl"));
}

static enum ls_status add_run(struct ls_subject *s, const char *path)
{
    if (s->n_runs == s->room_runs) {
        int room = s->room_runs ? 2 * s->room_runs : 8;
        struct ls_run_view *larger = ls_realloc(s->runs, (size_t)s->room_runs, (size_t)room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        s->runs = larger;
        s->room_runs = room;
    }
    return ls_run_view_load(&s->runs[s->n_runs++], path);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Adds every run directory in a folder, in the order of names. */
static enum ls_status add_runs_of(struct ls_subject *s, const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, visible, by_name);
    enum ls_status st = LS_OK;
    for (int i = 0; i < n; i++) {
        char *path = ls_format("%s/%s", folder, entries[i]->d_name);
        if (!path)
            st = LS_FAILED;
        else if (st == LS_OK && is_run(path))
            st = add_run(s, path);
        ls_free(path);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return st;
}

static enum ls_status add_sweep(struct ls_subject *s, const char *folder)
{
    int before = s->n_runs;
    char *trials = ls_format("%s/trials", folder);
    if (!trials)
        return LS_FAILED;
    enum ls_status st = add_runs_of(s, trials);
    ls_free(trials);
    s->is_sweep = true;
    if (st == LS_OK && s->n_runs == before)
        ls_warn("%s: this sweep has no trials yet", folder);
    return st;
}

static enum ls_status add_folder(struct ls_subject *s, const char *folder)
{
    int before = s->n_runs;
    if (is_run(folder))
        return add_run(s, folder);
    if (has(folder, "sweep.jsonl") || has(folder, "sweep.yaml") || has(folder, "trials"))
        return add_sweep(s, folder);
    LS_TRY(add_runs_of(s, folder));
    if (s->n_runs > before)
        return LS_OK;
    return ls_fail(
        LS_BAD_INPUT,
        "%s: neither a run nor a sweep: expected a directory that `lockstep train` or `lockstep sweep` wrote, "
        "or a folder of run directories",
        folder);
}

static enum ls_status add_word(struct ls_subject *s, const char *word)
{
    if (ls_file_is_dir(word))
        return add_folder(s, word);
    if (!ls_file_exists(word))
        return ls_fail(LS_BAD_INPUT, "%s: no such run directory, sweep or file of `lockstep bench --json`", word);
    struct ls_bench_file *larger =
        ls_realloc(s->benches, (size_t)s->n_benches, (size_t)s->n_benches + 1, sizeof *larger);
    if (!larger)
        return LS_FAILED;
    s->benches = larger;
    return ls_bench_file_load(&s->benches[s->n_benches++], word);
}

/* --- names ------------------------------------------------------------------------------------------------------- */

/* Returns the last `parts` parts of a path, without a slash at the end. */
static const char *tail(struct ls_subject *s, const char *path, int parts)
{
    char room[LS_PRINTABLE_SIZE];
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    for (; start > 0; start--)
        if (path[start - 1] == '/' && start < end && --parts == 0)
            break;
    char *part = ls_arena_format(&s->strings, "%.*s", (int)(end - start), path + start);
    return part ? ls_arena_strdup(&s->strings, ls_utf8_printable(part, room, sizeof room)) : NULL;
}

static bool is_taken(const struct ls_subject *s, int run, const char *name)
{
    for (int i = 0; i < s->n_runs; i++)
        if (i != run && s->runs[i].name && strcmp(s->runs[i].name, name) == 0)
            return true;
    return false;
}

/* A run is shown by the end of its path, by more of it where that is another run's name, too. */
static enum ls_status set_names(struct ls_subject *s)
{
    for (int i = 0; i < s->n_runs; i++) {
        const char *path = s->runs[i].path;
        char *absolute = strcmp(path, ".") == 0 || strcmp(path, "..") == 0 ? ls_path_absolute(path) : NULL;
        for (int parts = 1; parts <= 16; parts++) {
            s->runs[i].name = tail(s, absolute ? absolute : path, parts);
            if (!s->runs[i].name || !is_taken(s, i, s->runs[i].name))
                break;
        }
        ls_free(absolute);
        if (!s->runs[i].name)
            return LS_FAILED;
    }
    for (int i = 0; i < s->n_benches; i++)
        if (!(s->benches[i].name = tail(s, s->benches[i].path, 1)))
            return LS_FAILED;
    return LS_OK;
}

enum ls_status ls_subject_load(struct ls_subject *s, char **words, int n)
{
    *s = (struct ls_subject){0};
    for (int i = 0; i < n; i++)
        LS_TRY(add_word(s, words[i]));
    LS_TRY(set_names(s));
    if (n == 1)
        s->title = tail(s, words[0], 1);
    return ls_subject_varied(s);
}

void ls_subject_release(struct ls_subject *s)
{
    for (int i = 0; i < s->n_runs; i++)
        ls_run_view_release(&s->runs[i]);
    for (int i = 0; i < s->n_benches; i++)
        ls_bench_file_release(&s->benches[i]);
    for (int i = 0; i < s->n_varied; i++)
        ls_free(s->varied[i].values);
    ls_free(s->runs);
    ls_free(s->benches);
    ls_arena_release(&s->strings);
    *s = (struct ls_subject){0};
}
