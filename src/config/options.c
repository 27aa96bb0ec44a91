#include "config/options.h"

#include "base/text/text.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/table.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define YAML_LIMIT ((size_t)1 << 20)
#define PREFIX "LOCKSTEP_"

extern char **environ;

/* Options and arguments of the command line. Their form has been checked, but not their values: the YAML file among
 * them must be read before the options override it. */
struct words {
    struct word {
        const struct ls_option *option;
        const char *value; /* borrowed from argv */
    } * list;              /* owned; argc entries */
    int n;
    const char **arguments; /* owned; borrowed strings */
    int n_arguments;
    const char **files; /* owned; borrowed strings: the YAML files */
    int n_files;
    const char *model; /* the file that describes a model, or NULL */
    bool help;
};

static const struct ls_command_info *info_of(enum ls_command command)
{
    const struct ls_command_info *info = ls_commands;
    while (info->name && info->command != command)
        info++;
    return info;
}

static bool ends_in_yaml(const char *text)
{
    return ls_ends_in(text, ".yaml") || ls_ends_in(text, ".yml");
}

/* --- the command line ------------------------------------------------------------------------------------------- */

static enum ls_status unknown_option(enum ls_command command, const char *word)
{
    const char *bare = word + 2, *no = "";
    if (word[1] != '-')
        return ls_fail(LS_USAGE, "unknown option %s; options are words, such as --batch", word);
    if (strncmp(bare, "no-", 3) == 0) {
        no = "no-";
        bare += 3;
    }
    char name[64];
    int length = (int)strcspn(word, "=");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    const char *near = ls_option_nearest(name, command);
    if (near && *no && !ls_option_is_switch(ls_option_find(near)))
        no = "";
    if (near)
        return ls_fail(LS_USAGE, "unknown option %.*s; did you mean --%s%s?", length, word, no, near);
    return ls_fail(LS_USAGE, "unknown option %.*s; `lockstep %s --help` lists them", length, word,
                   info_of(command)->name);
}

static enum ls_status not_for_command(enum ls_command command, const struct ls_option *option)
{
    char list[256];
    size_t used = 0;
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        if (option->commands & info->command)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", info->name);
    return ls_fail(LS_USAGE, "%s takes no --%s; it is an option of %s", info_of(command)->name, option->name, list);
}

/* Checks that the command of data which the first argument names takes every option; check is meant where it names
 * none. */
static enum ls_status check_parts(const struct words *w, enum ls_command command)
{
    const struct ls_subcommand *all = ls_subcommands(command);
    const struct ls_subcommand *sub = w->n_arguments > 0 ? ls_subcommand_find(command, w->arguments[0]) : NULL;
    sub = sub ? sub : all;
    for (int i = 0; i < w->n && all->name; i++)
        if (!ls_option_takes(w->list[i].option, command, sub))
            return ls_fail(LS_USAGE, "%s %s takes no --%s; it is an option of %s %s", info_of(command)->name, sub->name,
                           w->list[i].option->name, info_of(command)->name, w->list[i].option->parts);
    return LS_OK;
}

/* Returns the row of a word such as -o, or NULL. */
static const struct ls_option *find_letter(const char *word)
{
    for (int i = 0; i < ls_option_count && word[1] && word[1] != '-' && !word[2]; i++)
        if (ls_option_table[i].letter == word[1])
            return &ls_option_table[i];
    return NULL;
}

/* Takes the word at *i, and also the next word where it is the option's value. */
static enum ls_status take_option(struct words *w, enum ls_command command, int argc, char **argv, int *i)
{
    const char *word = argv[*i], *equals = strchr(word, '='), *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    char name[64] = "";
    if (word[1] == '-')
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const struct ls_option *option = *name ? ls_option_find(name) : find_letter(word);
    bool no = !option && strncmp(name, "no-", 3) == 0;
    if (no)
        option = ls_option_find(name + 3);
    if (!option || (no && !ls_option_is_switch(option)))
        return unknown_option(command, word);
    if (!(option->commands & command))
        return not_for_command(command, option);
    if (no && equals)
        return ls_fail(LS_USAGE, "--%s takes no value", name);

    const char *value;
    if (equals)
        value = equals + 1;
    else if (ls_option_is_switch(option))
        value = no ? "false" : "true";
    else if (option->alone && (!next || next[0] == '-' || ends_in_yaml(next)))
        value = "auto";
    else if (!next || strncmp(next, "--", 2) == 0)
        value = "";
    else {
        value = next;
        ++*i;
    }
    w->list[w->n++] = (struct word){option, value};
    return LS_OK;
}

/* Collects a YAML file or an argument. The command checks the arguments. */
static void take_argument(struct words *w, enum ls_command command, const char *word)
{
    enum ls_command_words words = info_of(command)->words;
    if ((words == LS_WORDS_CONFIG || words == LS_WORDS_RUN) && ends_in_yaml(word))
        w->files[w->n_files++] = word;
    else
        w->arguments[w->n_arguments++] = word;
}

static enum ls_status split_words(struct words *w, enum ls_command command, int argc, char **argv)
{
    bool options = true;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (options && strcmp(word, "--") == 0)
            options = false;
        else if (options && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
            w->help = true;
        else if (options && word[0] == '-' && word[1])
            LS_TRY(take_option(w, command, argc, argv, &i));
        else {
            take_argument(w, command, word);
            options = options && info_of(command)->words != LS_WORDS_PROGRAM; /* the others are the program's */
        }
        if (w->help)
            break;
    }
    return LS_OK;
}

static enum ls_status set_words(struct ls_options *o, const struct words *w)
{
    char where[64];
    for (int i = 0; i < w->n; i++) {
        const struct ls_option *option = w->list[i].option;
        snprintf(where, sizeof where, "--%s", option->name);
        LS_TRY(ls_option_set(o, option, where, w->list[i].value));
        ls_option_mark(o, option);
    }
    o->args = ls_alloc((size_t)w->n_arguments + 1, sizeof *o->args);
    if (!o->args)
        return LS_FAILED;
    for (; o->n_args < w->n_arguments; o->n_args++) {
        o->args[o->n_args] = ls_strdup(w->arguments[o->n_args]);
        if (!o->args[o->n_args])
            return LS_FAILED;
    }
    return LS_OK;
}

/* --- the environment -------------------------------------------------------------------------------------------- */

static void warn_unknown_variable(const char *variable, int length, const char *name)
{
    const char *near = ls_option_nearest(name, ~0u);
    char upper[64] = "";
    for (int i = 0; near && near[i] && i < 63; i++)
        upper[i] = near[i] == '-' ? '_' : (char)toupper((unsigned char)near[i]);
    if (near)
        ls_warn("%.*s: no such option; did you mean " PREFIX "%s?", length, variable, upper);
    else
        ls_warn("%.*s: no such option, ignored", length, variable);
}

/* Variables that Lockstep processes set for each other (WORKER_*, LAUNCH_*), the folder of the modules (MODULES), and
 * the name that hosts share to count as one node (NODE). */
static bool is_internal(const char *name)
{
    return strncmp(name, "WORKER_", 7) == 0 || strncmp(name, "LAUNCH_", 7) == 0 || strcmp(name, "MODULES") == 0 ||
           strcmp(name, "NODE") == 0;
}

static enum ls_status set_variable(struct ls_options *o, const char *variable)
{
    const char *equals = strchr(variable, '=');
    if (!equals || !equals[1]) /* an empty variable counts as not set */
        return LS_OK;
    int length = (int)(equals - variable);
    char name[64], where[sizeof PREFIX + sizeof name];
    snprintf(name, sizeof name, "%.*s", length - (int)strlen(PREFIX), variable + strlen(PREFIX));
    const struct ls_option *option = ls_option_find(name);
    if (is_internal(name))
        return LS_OK;
    if (!option) {
        warn_unknown_variable(variable, length, name);
        return LS_OK;
    }
    snprintf(where, sizeof where, PREFIX "%s", name);
    LS_TRY(ls_option_set(o, option, where, equals + 1));
    ls_option_mark(o, option);
    return LS_OK;
}

/* This is the only place where Lockstep reads settings from the environment. launch/variables.c reads how a process was
 * started. */
static enum ls_status set_environment(struct ls_options *o)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no_color && *no_color)
        o->color = false;
    if (term && strcmp(term, "dumb") == 0)
        o->progress = false;
    for (char **v = environ; v && *v; v++)
        if (strncmp(*v, PREFIX, strlen(PREFIX)) == 0)
            LS_TRY(set_variable(o, *v));
    return LS_OK;
}

/* --- all sources ------------------------------------------------------------------------------------------------ */

enum ls_status ls_options_default(struct ls_options *o)
{
    *o = (struct ls_options){0};
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        enum ls_status st = option->missing ? ls_option_set(o, option, option->name, option->missing) : LS_OK;
        if (st != LS_OK) {
            ls_options_release(o);
            return st;
        }
    }
    return LS_OK;
}

static enum ls_status load(struct ls_options *o, const char *path, const uint64_t keep[LS_OPTION_WORDS], bool *is_model)
{
    char *text;
    size_t size;
    LS_TRY(ls_file_read(path, YAML_LIMIT, &text, &size));
    bool model = ls_yaml_is_model(text, size);
    enum ls_status st = LS_OK;
    if (!model)
        st = ls_options_yaml(o, path, text, size, keep);
    else if (!is_model)
        st = ls_fail(LS_BAD_INPUT, "%s: expected a configuration, found a model (a list of layers)", path);
    if (is_model)
        *is_model = model;
    ls_free(text);
    return st == LS_OK && !model ? ls_options_settle(o, path, keep) : st;
}

enum ls_status ls_options_load(struct ls_options *o, const char *path)
{
    struct ls_options kept = {0};
    memcpy(kept.given, o->given, sizeof kept.given);
    for (int i = 0; i < ls_option_count; i++)
        if (ls_option_table[i].view)
            ls_option_mark(&kept, &ls_option_table[i]);
    return load(o, path, kept.given, NULL);
}

static bool has_meaning(const struct ls_option *option, enum ls_command command)
{
    return (option->commands & command) && !option->here && !option->view && !option->free;
}

void ls_options_write_result(const struct ls_options *o, enum ls_command command, bool common, FILE *out)
{
    char room[32];
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        const char *value = ls_option_get(o, option, room);
        if (has_meaning(option, command) || (common && option->common && (option->commands & command)))
            fprintf(out, "%s: %s\n", option->name, value ? value : "");
    }
}

void ls_options_differ(const struct ls_options *was, const struct ls_options *is, enum ls_command command, char *text,
                       size_t room)
{
    char room_was[32], room_is[32];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < ls_option_count && used < room; i++) {
        const struct ls_option *option = &ls_option_table[i];
        const char *a = ls_option_get(was, option, room_was), *b = ls_option_get(is, option, room_is);
        a = a ? a : "not given";
        b = b ? b : "not given";
        if (has_meaning(option, command) && strcmp(a, b) != 0)
            used +=
                (size_t)snprintf(text + used, room - used, "%s--%s %s is now %s", used ? ", " : "", option->name, a, b);
    }
}

/* Loads at most one configuration and one model. */
static enum ls_status load_files(struct ls_options *o, struct words *w)
{
    const char *configuration = NULL;
    for (int i = 0; i < w->n_files; i++) {
        bool model;
        LS_TRY(load(o, w->files[i], NULL, &model));
        const char **kind = model ? &w->model : &configuration;
        if (*kind)
            return ls_fail(LS_USAGE, "%s and %s are two %s; give one", *kind, w->files[i],
                           model ? "models" : "configurations");
        *kind = w->files[i];
    }
    return LS_OK;
}

/* A model file among the words has the same effect as --model FILE. */
static enum ls_status set_model(struct ls_options *o, const struct words *w)
{
    const struct ls_option *option = ls_option_find("model");
    if (!w->model)
        return LS_OK;
    for (int i = 0; i < w->n; i++)
        if (w->list[i].option == option)
            return ls_fail(LS_USAGE, "two models are given, %s and --model %s; leave out one", w->model,
                           w->list[i].value);
    LS_TRY(ls_option_set(o, option, w->model, w->model));
    ls_option_mark(o, option);
    return LS_OK;
}

static enum ls_status set_all(struct ls_options *o, enum ls_command command, struct words *w)
{
    uint64_t in_file[LS_OPTION_WORDS];
    LS_TRY(ls_options_default(o));
    o->takes_lists = command == LS_CMD_BENCH;
    LS_TRY(load_files(o, w));
    memcpy(in_file, o->given, sizeof in_file);
    memset(o->given, 0, sizeof o->given);
    LS_TRY(set_environment(o));
    LS_TRY(set_model(o, w));
    LS_TRY(set_words(o, w));
    /* A given model replaces that of the configuration, whose text may have been loaded. */
    if (ls_options_given(o, "model")) {
        ls_free(o->model_yaml);
        o->model_yaml = NULL;
    }
    for (int i = 0; i < LS_OPTION_WORDS; i++)
        o->given[i] |= in_file[i];
    return LS_OK;
}

enum ls_status ls_options_parse(struct ls_options *o, enum ls_command command, int argc, char **argv, bool *help)
{
    enum ls_status st = LS_FAILED;
    struct words w = {0};
    *o = (struct ls_options){0};
    *help = false;
    w.list = ls_alloc((size_t)argc + 1, sizeof *w.list);
    w.arguments = ls_alloc((size_t)argc + 1, sizeof *w.arguments);
    w.files = ls_alloc((size_t)argc + 1, sizeof *w.files);
    if (!w.list || !w.arguments || !w.files)
        goto free_words;
    LS_TRY_GOTO(free_words, split_words(&w, command, argc, argv));
    if (w.help) {
        ls_options_help(command, w.n_arguments > 0 ? ls_subcommand_find(command, w.arguments[0]) : NULL, stdout);
        *help = true;
        goto free_words;
    }
    LS_TRY_GOTO(free_words, check_parts(&w, command));
    st = set_all(o, command, &w);
    if (st != LS_OK)
        ls_options_release(o);
free_words:
    ls_free(w.list);
    ls_free(w.arguments);
    ls_free(w.files);
    return st;
}

void ls_options_release(struct ls_options *o)
{
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (option->type == LS_OPTION_TEXT || option->type == LS_OPTION_SHAPE)
            ls_free(*(char **)((char *)o + option->offset));
    }
    for (int i = 0; i < LS_OPTION_ROWS; i++)
        ls_free(o->lists[i]);
    ls_free(o->model_yaml);
    for (int i = 0; i < o->n_args; i++)
        ls_free(o->args[i]);
    ls_free(o->args);
    ls_free(o->config_run);
    *o = (struct ls_options){0};
}

/* --- the command line as text ----------------------------------------------------------------------------------- */

static void put_quoted(const char *word, FILE *out)
{
    static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:,+-=@%";
    if (*word && strspn(word, safe) == strlen(word)) {
        fputs(word, out);
        return;
    }
    putc('\'', out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, out);
    putc('\'', out);
}

void ls_options_command(const struct ls_options *o, FILE *out)
{
    bool hide = false;
    for (int i = 0; i < o->n_command_line; i++) {
        const char *word = o->command_line[i], *equals = strchr(word, '=');
        char name[64] = "";
        if (strncmp(word, "--", 2) == 0)
            snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
        const struct ls_option *option = ls_option_find(name);
        bool secret = option && option->secret;
        fputs(i ? " " : "", out);
        if (hide)
            fputs("...", out);
        else if (secret && equals)
            fprintf(out, "--%s=...", name);
        else
            put_quoted(word, out);
        hide = secret && !equals && !hide;
    }
}

bool ls_options_given(const struct ls_options *o, const char *name)
{
    const struct ls_option *option = ls_option_find(name);
    return option && ls_option_given(o->given, option);
}

bool ls_options_changed(const struct ls_options *o, const char *name)
{
    const struct ls_option *option = ls_option_find(name);
    char room[32];
    const char *value = option ? ls_option_get(o, option, room) : NULL;
    return value && (!option->missing || strcmp(value, option->missing) != 0);
}
