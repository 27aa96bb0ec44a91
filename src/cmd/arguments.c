#include "cmd/arguments.h"
#include "base/text/text.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/nearest.h"
#include "config/downloads.h"
#include "config/table.h"
#include "data/data.h"
#include "data/files/files.h"
#include "model/model.h"
#include "checkpoint/rundir.h"

#include <limits.h>
#include <string.h>

#define LARGEST_LIST ((size_t)1 << 30)

/* True for a run, a checkpoint and a .safetensors file: each holds weights. */
static bool is_trained(const char *word)
{
    return ls_ends_in(word, ".safetensors") ||
           (ls_file_is_dir(word) && (ls_rundir_is_run(word) || ls_rundir_is_checkpoint(word)));
}

/* Returns the value of --run or --init on the command line, or NULL. A value from the environment does not count: an
 * argument overrides it. */
static const char *typed_model(const struct ls_options *o)
{
    for (int i = 2; i < o->n_command_line && strcmp(o->command_line[i], "--") != 0; i++) {
        if (strcmp(o->command_line[i], "--run") == 0 || strncmp(o->command_line[i], "--run=", 6) == 0)
            return o->run;
        if (strcmp(o->command_line[i], "--init") == 0 || strncmp(o->command_line[i], "--init=", 7) == 0)
            return o->init;
    }
    return NULL;
}

static bool is_data(const char *word)
{
    for (const struct ls_dataset_ops *const *f = ls_dataset_formats; *f; f++)
        if ((*f)->word && strncmp(word, (*f)->word, strlen((*f)->word)) == 0)
            return true;
    return ls_file_is_dir(word) || ls_download_find(word);
}

static const char *nearest_model(const char *word)
{
    const char *names[64];
    int n = 0;
    for (; ls_models[n] && n < 64; n++)
        names[n] = ls_models[n]->name;
    return ls_nearest_word(word, names, n);
}

/* --- train, bench and plan ----------------------------------------------------------------------------------- */

static enum ls_status explain_trained(const char *command, bool train, const char *word)
{
    if (ls_ends_in(word, ".safetensors"))
        return ls_fail(LS_USAGE, "%s: '%s' holds weights; to start from them: lockstep train --init %s", command, word,
                       word);
    if (!train)
        return ls_fail(LS_USAGE, "%s: '%s' is a run directory; for its configuration: lockstep %s %s/config.yaml",
                       command, word, command, word);
    if (ls_rundir_is_run(word))
        return ls_fail(LS_USAGE,
                       "train: '%s' is a run directory; to continue it: lockstep train --run %s --resume; to train the "
                       "same again: lockstep train %s/config.yaml",
                       word, word, word);
    return ls_fail(LS_USAGE, "train: '%s' is a checkpoint; to go on from it: lockstep train --resume %s", word, word);
}

/* The error for an argument of train, bench or plan. The only argument that they take is a configuration or model
 * file. */
static enum ls_status explain(enum ls_command command, const char *name, const char *word)
{
    const struct ls_option *option = ls_option_find(word);
    const char *near = nearest_model(word);
    if (strcmp(word, "help") == 0)
        return ls_fail(LS_USAGE, "%s: for its options: lockstep %s --help", name, name);
    if (is_trained(word))
        return explain_trained(name, command == LS_CMD_TRAIN, word);
    if (ls_model_find(word))
        return ls_fail(LS_USAGE, "%s: '%s' is a model; type: lockstep %s --model %s", name, word, name, word);
    if (is_data(word))
        return ls_fail(LS_USAGE, "%s: '%s' is data; type: lockstep %s --data %s", name, word, name, word);
    if (option && (option->commands & command))
        return ls_fail(LS_USAGE, "%s: '%s' is an option; type: --%s", name, word, option->name);
    if (ls_file_exists(word))
        return ls_fail(LS_USAGE, "%s: '%s': the name of a configuration or model file ends in .yaml", name, word);
    if (near)
        return ls_fail(LS_USAGE, "%s: '%s' is not an option; did you mean --model %s?", name, word, near);
    return ls_fail(
        LS_USAGE,
        "%s: '%s' is neither an option nor a file, folder or model; a model is given as --model NAME, data as "
        "--data NAME, a configuration as FILE.yaml",
        name, word);
}

/* The files of `bench --merge`. */
static enum ls_status check_merge(const struct ls_options *o)
{
    if (o->n_args == 0)
        return ls_fail(LS_USAGE, "bench --merge: needs the files; type: lockstep bench --merge A.json B.json");
    for (int i = 0; i < o->n_args; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(o->args[i], o->args[k]) == 0)
                return ls_fail(LS_USAGE, "bench --merge: '%s' is given twice; leave out one", o->args[i]);
    return LS_OK;
}

/* --- eval ---------------------------------------------------------------------------------------------------- */

static enum ls_status check_eval(const struct ls_options *o)
{
    const char *word = o->n_args > 0 ? o->args[0] : NULL, *more = o->n_args > 1 ? o->args[1] : NULL;
    const char *run = o->run ? o->run : o->init, *typed = typed_model(o);
    if (!word && !run && ls_options_given(o, "model"))
        return ls_fail(
            LS_USAGE,
            "eval: the model %s has no weights; type: lockstep eval RUN, with the directory of a run, or add "
            "--init FILE.safetensors",
            o->model);
    if (more && is_trained(word) && !is_trained(more) && is_data(more))
        return ls_fail(LS_USAGE, "eval: '%s' is data; type: lockstep eval %s --eval-data %s", more, word, more);
    if (more)
        return ls_fail(LS_USAGE, "eval: takes one model, '%s'; '%s' is one too many", word, more);
    if (word && is_trained(word) && typed)
        return ls_fail(LS_USAGE, "eval: two models are given, '%s' and '%s'; leave out one", word, typed);
    if (!word || is_trained(word) || (!ls_model_find(word) && !is_data(word)))
        return LS_OK;
    if (ls_model_find(word))
        return ls_fail(
            LS_USAGE,
            "eval: '%s' is a model without weights; type: lockstep eval RUN, with the directory of a run, or "
            "lockstep eval --model %s --init FILE.safetensors",
            word, word);
    return ls_fail(LS_USAGE, "eval: '%s' is data, not a run; type: lockstep eval %s --eval-data %s", word,
                   run ? run : "RUN", word);
}

enum ls_status ls_arguments_check(const struct ls_command_info *command, const struct ls_options *o)
{
    if (command->command == LS_CMD_EVAL)
        return check_eval(o);
    if (command->command == LS_CMD_BENCH && o->merge)
        return check_merge(o);
    if (command->words == LS_WORDS_NONE && o->n_args > 0)
        return ls_fail(LS_USAGE, "%s: takes options alone, not '%s'; `lockstep %s --help` lists them", command->name,
                       o->args[0], command->name);
    if (command->words == LS_WORDS_CONFIG && o->n_args > 0)
        return explain(command->command, command->name, o->args[0]);
    return LS_OK;
}

/* --- predict ------------------------------------------------------------------------------------------------- */

static enum ls_status add(struct ls_pictures *p, const char *file)
{
    if (p->n == p->room) {
        int room = p->room ? 2 * p->room : 64;
        const char **larger = ls_realloc(p->files, (size_t)p->n, (size_t)room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        p->files = larger;
        p->room = room;
    }
    p->files[p->n] = ls_arena_strdup(&p->strings, file);
    return p->files[p->n++] ? LS_OK : LS_FAILED;
}

/* Adds every image in the folder and in its subfolders, sorted. */
static enum ls_status add_folder(struct ls_pictures *p, const char *folder)
{
    struct ls_files *found;
    int64_t n = 0;
    char path[PATH_MAX];
    LS_TRY(ls_files_new(&found));
    enum ls_status st = ls_files_add_tree(found, folder, 0, &n);
    for (int64_t i = 0; i < n && st == LS_OK; i++) {
        ls_files_where(&found->base, i, path, sizeof path);
        st = add(p, path);
    }
    if (st == LS_OK && n == 0)
        st = ls_fail(LS_BAD_INPUT, "%s: no images in this folder; %s files are read", folder, ls_image_kinds());
    ls_files_close(&found->base);
    return st;
}

static bool is_list(const char *word)
{
    return (ls_ends_in(word, ".txt") || ls_ends_in(word, ".tsv") || ls_ends_in(word, ".lst")) && !ls_file_is_dir(word);
}

/* A line is the path of an image, relative to the folder of the list. A label may follow behind a tab or a space, as in a
 * list that is data. */
static enum ls_status add_line(struct ls_pictures *p, const char *list, char *line)
{
    const char *slash = strrchr(list, '/');
    int folder = *line == '/' || !slash ? 0 : (int)(slash - list) + 1;
    char path[PATH_MAX];
    line[strcspn(line, "\t")] = 0;
    for (;;) {
        char *space = strrchr(line, ' ');
        bool fits = snprintf(path, sizeof path, "%.*s%s", folder, list, line) < (int)sizeof path;
        if (!space || (fits && ls_file_exists(path)))
            return add(p, path);
        if (ls_image_by_name(line) != LS_NO_IMAGE)
            return add(p, path); /* the path of an image that is missing */
        *space = 0;
    }
}

static enum ls_status add_list(struct ls_pictures *p, const char *list)
{
    char *text;
    size_t size;
    int before = p->n;
    LS_TRY(ls_file_read(list, LARGEST_LIST, &text, &size));
    enum ls_status st = memchr(text, 0, size)
                            ? ls_fail(LS_BAD_INPUT, "%s: not a text file: a zero byte at %zu", list, strlen(text))
                            : LS_OK;
    for (char *line = text, *end = text + size; st == LS_OK && line < end;) {
        char *stop = line + strcspn(line, "\n"), *next = stop + 1;
        while (stop > line && strchr(" \t\r", stop[-1]))
            stop--;
        *stop = 0;
        if (stop > line)
            st = add_line(p, list, line);
        line = next;
    }
    if (st == LS_OK && p->n == before)
        st = ls_fail(LS_BAD_INPUT, "%s: no line in it; expected the path of an image in each", list);
    ls_free(text);
    return st;
}

static enum ls_status add_word(struct ls_pictures *p, const char *word)
{
    if (ls_file_is_dir(word))
        return add_folder(p, word);
    return is_list(word) ? add_list(p, word) : add(p, word);
}

/* The error when no model is named. */
static enum ls_status which_model(const char *word)
{
    if (!word)
        return ls_fail(LS_USAGE,
                       "predict: which model, and which images? Type: lockstep predict RUN IMAGE..., with the "
                       "directory of a run");
    if (ls_model_find(word))
        return ls_fail(
            LS_USAGE,
            "predict: '%s' is a model without weights; type: lockstep predict RUN IMAGE..., or lockstep predict "
            "--model %s --init FILE.safetensors IMAGE...",
            word, word);
    if (!ls_file_exists(word))
        return ls_fail(LS_BAD_INPUT,
                       "%s: no such run directory, checkpoint or image; type: lockstep predict RUN IMAGE...", word);
    return ls_fail(
        LS_USAGE,
        "predict: which model? Type: lockstep predict RUN %s, with the directory of a run, a checkpoint or a "
        ".safetensors file",
        word);
}

/* The model is an argument, in any position, or an option. */
static enum ls_status find_model(struct ls_pictures *p, const struct ls_options *o)
{
    p->model = typed_model(o);
    for (int i = 0; i < o->n_args; i++) {
        if (!is_trained(o->args[i]))
            continue;
        if (p->model)
            return ls_fail(LS_USAGE, "predict: two models are given, '%s' and '%s'; leave out one", p->model,
                           o->args[i]);
        p->model = o->args[i];
    }
    if (!p->model)
        p->model = o->run ? o->run : o->init;
    return p->model ? LS_OK : which_model(o->n_args > 0 ? o->args[0] : NULL);
}

enum ls_status ls_pictures_find(struct ls_pictures *p, const struct ls_options *o)
{
    *p = (struct ls_pictures){0};
    LS_TRY(find_model(p, o));
    int named = 0;
    for (int i = 0; i < o->n_args; i++) {
        if (is_trained(o->args[i]))
            continue;
        named++;
        LS_TRY(add_word(p, o->args[i]));
    }
    if (named == 0)
        return ls_fail(LS_USAGE, "predict: which images? Name files or folders: lockstep predict %s IMAGE...",
                       p->model);
    return LS_OK;
}

void ls_pictures_release(struct ls_pictures *p)
{
    ls_free(p->files);
    ls_arena_release(&p->strings);
    *p = (struct ls_pictures){0};
}
