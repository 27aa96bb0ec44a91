/* Paths in a run's config.yaml. They are absolute, so that the file means the same in every folder. The file also
 * records the run directory it was written in. When a path no longer exists, the run and its files may have moved
 * together. The path is then looked up at the same place relative to the run's present directory. The working
 * directory is never used. */
#include "base/text/text.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/utf8.h"
#include "config/downloads.h"
#include "config/table.h"

#include <stdlib.h>
#include <string.h>

#define MODEL_LIMIT ((size_t)4 << 20)

/* The names of built-in data and models are not paths. */
static bool is_path(const struct ls_option *option, const char *value)
{
    if (!value || !option->path)
        return false;
    if (strcmp(option->name, "model") == 0)
        return strchr(value, '/') || ls_ends_in(value, ".yaml") || ls_ends_in(value, ".yml");
    if (ls_download_find(value) && !ls_file_exists(value)) /* the name of a data set that was fetched */
        return false;
    return strcmp(value, "mnist") != 0 && strncmp(value, "synthetic:", 10) != 0;
}

static char **field(struct ls_options *o, const struct ls_option *option)
{
    return (char **)((char *)o + option->offset);
}

enum ls_status ls_options_absolute(const struct ls_options *o, struct ls_arena *strings, struct ls_options *plain)
{
    *plain = *o;
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!option->path || !is_path(option, *field(plain, option)))
            continue;
        char *path = ls_path_absolute(*field(plain, option));
        /* A parent folder may have a name that YAML cannot represent. */
        bool writable = path && ls_utf8_valid(path);
        char *kept = writable ? ls_arena_strdup(strings, path) : *field(plain, option);
        ls_free(path);
        if (!kept)
            return LS_FAILED;
        *field(plain, option) = kept;
    }
    return LS_OK;
}

/* --- reading ------------------------------------------------------------------------------------------ */

/* Returns the path whose position relative to `to` is that of `path` relative to `from`. The caller frees it with
 * ls_free. */
static char *moved(const char *path, const char *from, const char *to)
{
    size_t common = 0;
    char up[512] = "";
    for (size_t i = 0;; i++) {
        bool part_ends = (!path[i] || path[i] == '/') && (!from[i] || from[i] == '/');
        common = part_ends ? i : common;
        if (!path[i] || path[i] != from[i])
            break;
    }
    for (const char *p = from + common; *p && strlen(up) + 4 < sizeof up; p++)
        if (*p == '/' && p[1] && p[1] != '/')
            snprintf(up + strlen(up), sizeof up - strlen(up), "/..");
    return ls_format("%s%s%s", to, up, path + common);
}

static enum ls_status relocate(char **path, const char *from, const char *to)
{
    if ((*path)[0] != '/' || ls_file_exists(*path))
        return LS_OK;
    char *other = moved(*path, from, to);
    if (!other)
        return LS_FAILED;
    if (!ls_file_exists(other)) {
        ls_free(other);
        return LS_OK;
    }
    ls_free(*path);
    *path = ls_path_absolute(other);
    ls_free(other);
    return *path ? LS_OK : LS_FAILED;
}

/* --- the run of a configuration ----------------------------------------------------------------------- */

static bool has(const char *folder, const char *name)
{
    char *path = ls_format("%s/%s", folder, name);
    bool there = path && ls_file_exists(path);
    ls_free(path);
    return there;
}

/* The folder of a file after resolving all links, without its last `levels` components. The caller frees it with
 * ls_free. */
static char *folder_of(const char *file, int levels)
{
    char *real = realpath(file, NULL), *folder = real ? ls_strdup(real) : NULL;
    free(real);
    for (int i = 0; folder && i <= levels; i++) {
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = 0;
    }
    return folder;
}

/* Whether the config.yaml of the run names the same model as o. A copy of that file may have been edited. */
static bool same_model(const struct ls_options *o, const char *run)
{
    struct ls_options of_run;
    bool same = false;
    char *path = ls_format("%s/config.yaml", run), *text = NULL;
    size_t size;
    bool muted = ls_log_mute(true); /* a run that cannot be read does not match */
    if (path && ls_file_read(path, MODEL_LIMIT, &text, &size) == LS_OK && ls_options_default(&of_run) == LS_OK) {
        same = ls_options_yaml(&of_run, path, text, size, NULL) == LS_OK && strcmp(of_run.model, o->model) == 0;
        ls_options_release(&of_run);
    }
    ls_log_mute(muted);
    ls_free(text);
    ls_free(path);
    return same;
}

/* The run that a configuration belongs to. The file is in the run directory or in one of its checkpoints, or is a
 * copy of a file from there. NULL: there is no such run. The caller frees it with ls_free. */
static char *find_run(const struct ls_options *o, const char *file)
{
    char *folder = folder_of(file, 0), *above = folder_of(file, 2);
    bool checkpoint = folder && above && has(folder, "state.json") && has(above, "checkpoints");
    bool alone = folder && !checkpoint && !has(folder, "checkpoints") && !has(folder, "log.txt");
    const char *run = checkpoint                                               ? above
                      : alone && o->written_in && same_model(o, o->written_in) ? o->written_in
                                                                               : folder;
    char *found = run && (o->written_in || !alone) ? ls_strdup(run) : NULL;
    ls_free(above);
    ls_free(folder);
    return found;
}

/* The run trains the model of this copy, even if the original file has changed or is gone. */
static enum ls_status take_copy(struct ls_options *o, const char *folder)
{
    enum ls_status st = LS_OK;
    size_t size;
    char *copy = ls_format("%s/model.yaml", folder), *text = NULL;
    if (!copy)
        return LS_FAILED;
    if (ls_file_exists(copy))
        st = ls_file_read(copy, MODEL_LIMIT, &text, &size);
    ls_free(copy);
    if (st == LS_OK && text) {
        ls_free(o->model_yaml);
        o->model_yaml = text;
    }
    return st;
}

enum ls_status ls_options_settle(struct ls_options *o, const char *file, const uint64_t keep[LS_OPTION_WORDS])
{
    enum ls_status st = LS_OK;
    const uint64_t none[2] = {0};
    char *folder = find_run(o, file);
    if (!folder)
        return LS_OK;
    for (int i = 0; st == LS_OK && i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (o->written_in && option->path && is_path(option, *field(o, option)) &&
            !ls_option_given(keep ? keep : none, option))
            st = relocate(field(o, option), o->written_in, folder);
    }
    const struct ls_option *model = ls_option_find("model");
    if (st == LS_OK && o->written_in && is_path(model, o->model) && !ls_option_given(keep ? keep : none, model))
        st = take_copy(o, folder);
    ls_free(o->config_run);
    o->config_run = folder;
    return st;
}
