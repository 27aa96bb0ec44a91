/* The directory of a sweep, and sweep.yaml in it: what is swept, complete and in a fixed form. */
#include "cmd/sweep/sweep.h"
#include "base/files/checksum.h"
#include "base/files/file.h"
#include "base/log.h"
#include "checkpoint/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *ls_sweep_path(const struct ls_sweep *s, struct ls_arena *arena, const char *a, const char *b)
{
    return ls_arena_format(arena, "%s/%s%s%s", s->folder, a, b ? "/" : "", b ? b : "");
}

/* --- sweep.yaml ------------------------------------------------------------------------------------------ */

/* Numbers and words as they are, other texts in quotes: they may contain commas and colons. JSON's strings are strings of
 * YAML. */
static void put_value(const struct ls_option *option, const char *text, FILE *out)
{
    bool is_text = option->type == LS_OPTION_TEXT || option->type == LS_OPTION_SHAPE;
    bool is_word = option->choices && text[strcspn(text, ":,")] == 0;
    json_t *value = is_text && !is_word ? ls_json_text(text) : NULL;
    char *quoted = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    fputs(quoted ? quoted : text, out);
    free(quoted);
    json_decref(value);
}

static void put_axis(const struct ls_axis *a, FILE *out)
{
    static const char *const kinds[] = {"", "{uniform: ", "{log: ", "{choice: "};
    fputs(kinds[a->kind], out);
    for (int i = 0; i < a->n; i++) {
        fputs(i ? ", " : "[", out);
        put_value(a->option, a->values[i], out);
    }
    fputs(a->kind == LS_AXIS_LIST ? "]" : "]}", out);
}

/* The axis that --seeds makes is no part of the file. */
static bool is_written(const struct ls_sweep *s, const struct ls_axis *a, bool random)
{
    bool made = s->o.seeds > 1 && strcmp(a->option->name, "seed") == 0;
    return !made && (a->kind != LS_AXIS_LIST) == random;
}

static void put_axes(const struct ls_sweep *s, const char *heading, bool random, FILE *out)
{
    bool any = false;
    for (int i = 0; i < s->n_axes; i++) {
        if (!is_written(s, &s->axes[i], random))
            continue;
        fprintf(out, "%s  %s: ", any ? "" : heading, s->axes[i].option->name);
        put_axis(&s->axes[i], out);
        fputc('\n', out);
        any = true;
    }
}

/* Whether train gets the option and its value is the same for all trials. */
static bool is_fixed(const struct ls_sweep *s, const struct ls_option *option)
{
    static const char *const own[] = {"run", "written-in", "parallel", NULL};
    for (const char *const *name = own; *name; name++)
        if (strcmp(option->name, *name) == 0)
            return false;
    bool made = s->o.seeds > 1 && strcmp(option->name, "seed") == 0;
    return (option->commands & LS_CMD_SWEEP) && (option->commands & LS_CMD_TRAIN) && !option->view &&
           (made || !ls_sweep_axis(s, option));
}

static void put_sweep(const struct ls_sweep *s, FILE *out)
{
    static const char *const own[] = {"trials", "seeds", "asha", "parallel", "target", "rank-by"};
    char room[32];
    fputs("# `lockstep sweep` with the directory of this file goes on with the sweep.\ntrain:\n", out);
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        bool always = strcmp(option->name, "model") == 0 || strcmp(option->name, "data") == 0;
        const char *value = ls_option_get(&s->o, option, room);
        if (!is_fixed(s, option) || !value || !(always || ls_option_given(s->o.given, option)))
            continue;
        fprintf(out, "  %s: ", option->name);
        put_value(option, value, out);
        fputc('\n', out);
    }
    put_axes(s, "grid:\n", false, out);
    put_axes(s, "random:\n", true, out);
    for (int i = 0; i < 6; i++) {
        const struct ls_option *option = ls_option_find(own[i]);
        if (ls_options_changed(&s->o, own[i]))
            fprintf(out, "%s: %s\n", own[i], ls_option_get(&s->o, option, room));
    }
}

static enum ls_status sweep_text(const struct ls_sweep *s, char **text, size_t *size)
{
    FILE *out = open_memstream(text, size);
    if (!out)
        return ls_fail(LS_FAILED, "the sweep cannot be formatted: %s", strerror(errno));
    put_sweep(s, out);
    if (fclose(out) == 0)
        return LS_OK;
    return ls_fail(LS_FAILED, "the sweep cannot be formatted: out of memory");
}

static enum ls_status write_sweep(const struct ls_sweep *s, const char *path)
{
    char *text = NULL;
    size_t size;
    enum ls_status st = sweep_text(s, &text, &size);
    if (st == LS_OK)
        st = ls_file_write(path, text, size);
    free(text);
    return st;
}

/* --- comparing with the sweep that the directory has -------------------------------------------------------- */

/* "0.05", "[0.1, 0.2]" or "{log: [0.001, 1]}". Freed by free(). */
static char *row_text(const struct ls_sweep *s, const struct ls_option *option)
{
    char *text = NULL, room[32];
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    const struct ls_axis *axis = is_fixed(s, option) ? NULL : ls_sweep_axis(s, option);
    const char *value = ls_option_get(&s->o, option, room);
    if (axis)
        put_axis(axis, out);
    else if (value)
        put_value(option, value, out);
    else
        fputs("not given", out);
    fclose(out);
    return text;
}

static void list_differences(const struct ls_sweep *was, const struct ls_sweep *is, char *text, size_t room)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < ls_option_count && used < room; i++) {
        const struct ls_option *option = &ls_option_table[i];
        bool own = strcmp(option->name, "seeds") == 0 || strcmp(option->name, "trials") == 0 ||
                   strcmp(option->name, "asha") == 0;
        if (!own && !is_fixed(was, option) && !is_fixed(is, option) && !ls_sweep_axis(is, option) &&
            !ls_sweep_axis(was, option))
            continue;
        char *a = row_text(was, option), *b = row_text(is, option);
        if (a && b && strcmp(a, b) != 0)
            used +=
                (size_t)snprintf(text + used, room - used, "%s%s %s is now %s", used ? ", " : "", option->name, a, b);
        free(a);
        free(b);
    }
}

/* Of all that decides what the trials compute. Options with their default value leave it as it is, so that a version with
 * more options finds the sweep again. */
static enum ls_status set_digest(struct ls_sweep *s)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return ls_fail(LS_FAILED, "the sweep cannot be formatted: %s", strerror(errno));
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        bool own = strcmp(option->name, "seeds") == 0 || strcmp(option->name, "trials") == 0 ||
                   strcmp(option->name, "asha") == 0;
        char *value = own || is_fixed(s, option) || ls_sweep_axis(s, option) ? row_text(s, option) : NULL;
        if (value && (ls_sweep_axis(s, option) || ls_options_changed(&s->o, option->name)))
            fprintf(out, "%s: %s\n", option->name, value);
        free(value);
    }
    for (int a = 0; a < s->n_axes; a++) /* their order numbers the trials */
        fprintf(out, "%s ", s->axes[a].option->name);
    bool good = fclose(out) == 0;
    snprintf(s->digest, sizeof s->digest, "%016" PRIx64, good ? ls_checksum_of(text, size) : 0);
    free(text);
    return good ? LS_OK : ls_fail(LS_FAILED, "the sweep cannot be formatted: out of memory");
}

/* Takes the order of the axes from `was`, in which trials are numbered. */
static void reorder(const struct ls_sweep *was, struct ls_sweep *is)
{
    for (int i = 0; i < was->n_axes; i++)
        for (int k = i + 1; k < is->n_axes; k++)
            if (is->axes[i].option != was->axes[i].option && is->axes[k].option == was->axes[i].option) {
                struct ls_axis axis = is->axes[k];
                is->axes[k] = is->axes[i];
                is->axes[i] = axis;
            }
}

/* The directory has a sweep already. */
static enum ls_status check_same(struct ls_sweep *s, const char *path)
{
    char text[700];
    struct ls_sweep was = {.journal = -1};
    LS_TRY(ls_options_default(&was.o));
    enum ls_status st = ls_sweep_file_read(&was, path);
    if (st == LS_OK) {
        list_differences(&was, s, text, sizeof text);
        if (*text)
            st = ls_fail(LS_USAGE,
                         "%s: the directory has another sweep: %s; give another --run DIR, or go on with it: "
                         "lockstep sweep %s",
                         s->folder, text, s->folder);
    }
    if (st == LS_OK) {
        ls_sweep_forget_plan(s);
        reorder(&was, s);
        st = ls_sweep_plan(s);
    }
    if (st == LS_OK)
        st = set_digest(s);
    ls_sweep_release(&was);
    return st;
}

/* --- the directory ------------------------------------------------------------------------------------------ */

/* "sweeps/NAME" for NAME.yaml. Without a file the name follows from what is swept, so that the same command finds it
 * again. */
static enum ls_status choose_folder(struct ls_sweep *s)
{
    if (s->o.run) {
        s->folder = ls_path_absolute(s->o.run);
        return s->folder ? LS_OK : LS_FAILED;
    }
    const char *file = s->o.n_args > 0 ? s->o.args[0] : NULL, *slash = file ? strrchr(file, '/') : NULL;
    const char *stem = slash ? slash + 1 : file, *dot = file ? strrchr(stem, '.') : NULL;
    char *relative = file ? ls_format("sweeps/%.*s", (int)(dot && dot > stem ? dot - stem : (long)strlen(stem)), stem)
                          : ls_format("sweeps/sweep-%.8s", s->digest);
    s->folder = relative ? ls_path_absolute(relative) : NULL;
    ls_free(relative);
    return s->folder ? LS_OK : LS_FAILED;
}

/* A directory without sweep.yaml must be empty. */
static enum ls_status check_empty(const struct ls_sweep *s)
{
    DIR *dir = opendir(s->folder);
    enum ls_status st = LS_OK;
    for (struct dirent *entry; dir && st == LS_OK && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        bool own = ls_run_lock_is_file(name) || strncmp(name, "sweep.yaml.tmp", 14) == 0;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !own)
            st = ls_fail(LS_USAGE, "%s: %s; give an empty or new directory as --run DIR", s->folder,
                         ls_rundir_is_run(s->folder) ? "the directory of a run, not of a sweep"
                                                     : "not empty, and not the directory of a sweep");
    }
    if (dir)
        closedir(dir);
    return st;
}

enum ls_status ls_sweep_open(struct ls_sweep *s, char *const *argv)
{
    LS_TRY(set_digest(s));
    LS_TRY(choose_folder(s));
    char *path = ls_sweep_path(s, &s->strings, "sweep.yaml", NULL);
    char *logs = ls_sweep_path(s, &s->strings, "logs", NULL), *trials = ls_sweep_path(s, &s->strings, "trials", NULL);
    if (!path || !logs || !trials)
        return LS_FAILED;
    if (ls_file_exists(path)) /* before anything is written there */
        LS_TRY(check_same(s, path));
    else
        LS_TRY(check_empty(s));
    LS_TRY(ls_dir_make(s->folder));
    LS_TRY(ls_run_lock_take(s->folder, argv, LS_RUN_LOCK_TIMES, &s->lock));
    if (ls_file_exists(path))
        LS_TRY(check_same(s, path)); /* another sweep may have begun there before the lock */
    else
        LS_TRY(write_sweep(s, path));
    ls_file_remove_stale(path);
    LS_TRY(ls_dir_make(logs));
    return ls_dir_make(trials);
}

enum ls_status ls_sweep_update(const struct ls_sweep *s)
{
    char *path = ls_format("%s/sweep.yaml", s->folder);
    enum ls_status st = path ? write_sweep(s, path) : LS_FAILED;
    ls_free(path);
    return st;
}
