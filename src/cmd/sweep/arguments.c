/* The command line of a sweep. An option whose value is a list becomes an axis; the other words are read as those of any
 * command. */
#include "cmd/sweep/sweep.h"
#include "base/files/file.h"
#include "base/log.h"
#include "launch/launch.h"

#include <string.h>

/* Returns what separates the items of a list, 0 if the text is one value. A semicolon always does. A comma does unless one
 * value may contain it: in --augment, --schedule, and in names of files other than models. */
static char separator(const struct ls_option *option, const char *text)
{
    bool is_name = option->type == LS_OPTION_TEXT && !option->choices && strcmp(option->name, "model") != 0;
    if (strchr(text, ';'))
        return ';';
    if (is_name || strcmp(option->name, "schedule") == 0 || !strchr(text, ','))
        return 0;
    return option->path && ls_file_exists(text) ? 0 : ',';
}

static enum ls_status add_list(struct ls_sweep *s, const struct ls_option *option, const char *text, char between)
{
    struct ls_axis axis = {.option = option};
    char where[80];
    char *copy = ls_arena_strdup(&s->strings, text);
    snprintf(where, sizeof where, "--%s", option->name);
    for (const char *p = text; (p = strchr(p, between)); p++)
        axis.n++;
    axis.values = ls_arena_take(&s->strings, sizeof *axis.values * (size_t)(axis.n + 1));
    if (!copy || !axis.values)
        return LS_FAILED;
    axis.n = 0;
    for (char *item = copy, *end; item; item = end) {
        end = strchr(item, between);
        if (end)
            *end++ = 0;
        if (!*item)
            return ls_fail(LS_USAGE, "%s: '%s' has an empty item; a list is written as A%cB%cC", where, text, between,
                           between);
        LS_TRY(ls_sweep_check_value(s, option, where, item, &axis.values[axis.n++]));
    }
    if (ls_sweep_axis(s, option))
        return ls_fail(LS_USAGE, "%s is given twice; leave out one", where);
    return ls_sweep_add_axis(s, where, &axis);
}

/* Takes the option at argv[*i] if its value is a list. Returns LS_OK with *taken false for all other words. */
static enum ls_status take_list(struct ls_sweep *s, int argc, char **argv, int *i, bool *taken)
{
    const char *word = argv[*i], *equals = strchr(word, '=');
    char name[64] = "";
    *taken = false;
    if (strncmp(word, "--", 2) != 0)
        return LS_OK;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const struct ls_option *option = ls_option_find(name);
    const char *value = equals ? equals + 1 : *i + 1 < argc ? argv[*i + 1] : NULL;
    if (!option || !value || !(option->commands & LS_CMD_SWEEP) || (!equals && ls_option_is_switch(option)))
        return LS_OK;
    char between = separator(option, value);
    *taken = between != 0;
    if (!*taken)
        return LS_OK;
    *i += !equals;
    return add_list(s, option, value, between);
}

static enum ls_status split(struct ls_sweep *s, int argc, char **argv, char **rest, int *n)
{
    bool options = true, taken;
    *n = 0;
    for (int i = 0; i < argc; i++) {
        options = options && strcmp(argv[i], "--") != 0;
        taken = false;
        if (options)
            LS_TRY(take_list(s, argc, argv, &i, &taken));
        if (!taken)
            rest[(*n)++] = argv[i];
    }
    return LS_OK;
}

/* A list overrides the environment, but not another value of the command line. */
static enum ls_status check_once(const struct ls_sweep *s, int n, char **words)
{
    for (int i = 0; i < n && strcmp(words[i], "--") != 0; i++) {
        char name[64] = "";
        if (strncmp(words[i], "--", 2) == 0)
            snprintf(name, sizeof name, "%.*s", (int)strcspn(words[i] + 2, "="), words[i] + 2);
        const struct ls_option *option = ls_option_find(name);
        if (option && ls_sweep_axis(s, option))
            return ls_fail(LS_USAGE, "--%s is given twice, as a list and as one value; leave out one", option->name);
    }
    return LS_OK;
}

/* Checks what the command line and the environment have set to one value. */
static enum ls_status check_fixed(struct ls_sweep *s)
{
    char where[80], room[32];
    const char *value;
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!ls_option_given(s->o.given, option))
            continue;
        snprintf(where, sizeof where, "--%s", option->name);
        if (option->secret) { /* LOCKSTEP_TOKEN, for other commands: no trial needs it */
            ls_option_forget(s->o.given, option);
            continue;
        }
        if (!(option->commands & LS_CMD_SWEEP)) /* of the environment, for other commands */
            continue;
        LS_TRY(ls_sweep_takes(option, where));
        if (ls_sweep_axis(s, option))
            continue;
        if (option->commands & LS_CMD_TRAIN)
            LS_TRY(ls_sweep_check_value(s, option, where, ls_option_get(&s->o, option, room), &value));
        if (option->path) /* from now on absolute */
            LS_TRY(ls_option_set(&s->o, option, where, value));
    }
    return LS_OK;
}

static enum ls_status check_launcher(const struct ls_options *o)
{
    struct ls_launch launch;
    LS_TRY(ls_launch_detect(o, &launch));
    bool alone = launch.kind == LS_LAUNCH_ALONE;
    const char *how = launch.how;
    ls_launch_release(&launch);
    return alone ? LS_OK
                 : ls_fail(LS_USAGE,
                           "sweep: starts its trials itself, on this machine; start it as one process, not by %s", how);
}

static enum ls_status read_words(struct ls_sweep *s, int argc, char **argv, bool *help)
{
    char **rest = ls_alloc((size_t)argc + 1, sizeof *rest);
    int n;
    if (!rest)
        return LS_FAILED;
    enum ls_status st = split(s, argc, argv, rest, &n);
    if (st == LS_OK)
        st = check_once(s, n, rest);
    if (st == LS_OK)
        st = ls_options_parse(&s->o, LS_CMD_SWEEP, n, rest, help);
    ls_free(rest);
    return st;
}

/* DIR/sweep.yaml of a sweep that has begun means the same as DIR. */
static enum ls_status read_file(struct ls_sweep *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *folder = slash ? ls_format("%.*s", (int)(slash - path) + 1, path) : ls_strdup(".");
    char *journal = folder ? ls_format("%s/sweep.jsonl", folder) : NULL;
    enum ls_status st = journal ? LS_OK : LS_FAILED;
    if (st == LS_OK && !s->o.run && strcmp(name, "sweep.yaml") == 0 && ls_file_exists(journal))
        st = ls_option_set(&s->o, ls_option_find("run"), "--run", folder);
    ls_free(folder);
    ls_free(journal);
    return st == LS_OK ? ls_sweep_file_read(s, path) : st;
}

/* The argument is a sweep file, or a directory with one. */
static enum ls_status read_argument(struct ls_sweep *s)
{
    const char *word = s->o.n_args > 0 ? s->o.args[0] : NULL;
    if (s->o.n_args > 1)
        return ls_fail(LS_USAGE, "sweep: takes one sweep file or directory, '%s'; '%s' is one too many", word,
                       s->o.args[1]);
    if (!word)
        return LS_OK;
    if (!ls_file_exists(word))
        return ls_fail(LS_BAD_INPUT, "%s: no such sweep file or directory", word);
    if (!ls_file_is_dir(word))
        return read_file(s, word);
    if (s->o.run)
        return ls_fail(LS_USAGE, "sweep: '%s' is a directory, and --run %s another; give one", word, s->o.run);
    char *file = ls_format("%s/sweep.yaml", word);
    enum ls_status st = file ? LS_OK : LS_FAILED;
    if (st == LS_OK && !ls_file_exists(file))
        st = ls_fail(LS_BAD_INPUT, "%s: not the directory of a sweep: it has no sweep.yaml", word);
    if (st == LS_OK)
        st = ls_option_set(&s->o, ls_option_find("run"), "--run", word);
    if (st == LS_OK)
        st = ls_sweep_file_read(s, file);
    ls_free(file);
    return st;
}

enum ls_status ls_sweep_read(struct ls_sweep *s, int argc, char **argv, bool *help)
{
    *s = (struct ls_sweep){.journal = -1};
    *help = false;
    LS_TRY(read_words(s, argc, argv, help));
    if (*help)
        return LS_OK;
    LS_TRY(check_launcher(&s->o));
    LS_TRY(check_fixed(s));
    LS_TRY(read_argument(s));
    return ls_sweep_settle(s);
}
