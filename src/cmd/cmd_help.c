/* lockstep help: prints the help of commands and topics, the manual page and the shell completion. */
#include "base/text/help.h"
#include "base/log.h"
#include "base/text/nearest.h"
#include "cmd/cmd.h"
#include "cmd/help/help.h"
#include "data/data.h"
#include "graph/ops.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    enum ls_status (*print)(const char *what, FILE *out);
    bool details; /* takes one argument, such as an op */
} topics[] = {
    {"augment", "the words of --augment, and what auto stands for", ls_help_augment, false},
    {"checkpoint", "run directories, checkpoints and the metadata of model files", ls_help_checkpoint, false},
    {"metrics", "the keys of metrics.jsonl", ls_help_metrics, false},
    {"ops", "model files: layers, ops, attributes; lockstep help ops conv: one op", ls_help_ops, true},
};
enum { TOPICS = sizeof topics / sizeof *topics };

const struct ls_command_info *ls_command_find(const char *name)
{
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        if (strcmp(info->name, name) == 0)
            return info;
    return NULL;
}

static int command_names(const char **names)
{
    int n = 0;
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        names[n++] = info->name;
    return n;
}

enum ls_status ls_command_unknown(const char *name)
{
    const char *known[32];
    int n = command_names(known);
    known[n++] = "help";
    const char *near = ls_nearest_word(name, known, n);
    if (near)
        return ls_fail(LS_USAGE, "unknown command '%s'; did you mean %s?", name, near);
    return ls_fail(LS_USAGE, "unknown command '%s'; `lockstep --help` lists them", name);
}

static enum ls_status unknown_topic(const char *name)
{
    const char *known[32 + TOPICS];
    char all[512] = "";
    size_t used = 0;
    int n = command_names(known);
    for (int i = 0; i < TOPICS; i++)
        known[n++] = topics[i].name;
    for (int i = 0; i < n && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, " %s", known[i]);
    const char *near = ls_nearest_word(name, known, n);
    return ls_fail(LS_USAGE, "help: unknown command or topic '%s'%s%s%s there are%s", name,
                   near ? "; did you mean " : "", near ? near : "", near ? "?" : ";", all);
}

/* --- shell completion ---------------------------------------------------------------------------------------- */

static void list_models(FILE *out)
{
    for (const struct ls_model *const *m = ls_models; *m; m++)
        fprintf(out, "%s ", (*m)->name);
}

static void list_data(FILE *out)
{
    for (const struct ls_dataset_ops *const *f = ls_dataset_formats; *f; f++)
        if ((*f)->word)
            fprintf(out, "%s ", (*f)->word);
}

static void list_augment(FILE *out)
{
    fputs("auto none ", out);
    for (const struct ls_augment_word *w = ls_augment_words; w->name; w++)
        fprintf(out, "%s%s ", w->name, *w->argument == ':' ? ":" : "");
    for (int i = 0; i < LS_EFFECTS; i++) {
        const char *name, *argument, *help;
        ls_effect_word(i, &name, &argument, &help);
        fprintf(out, "%s%s ", name, *argument == ':' ? ":" : "");
    }
}

static void list_topics(FILE *out)
{
    for (int i = 0; i < TOPICS; i++)
        fprintf(out, "%s ", topics[i].name);
}

static void list_ops(FILE *out)
{
    for (const struct ls_op *const *op = ls_ops; *op; op++)
        if ((*op)->layer)
            fprintf(out, "%s ", (*op)->name);
    for (const struct ls_help_row *row = ls_op_shorts; row->name; row++)
        fprintf(out, "%s ", row->name);
}

static enum ls_status print_completion(void)
{
    void (*const lists[])(FILE *) = {list_models, list_data, list_augment, list_topics, list_ops};
    char *texts[5] = {NULL};
    size_t size;
    enum ls_status st = LS_OK;
    for (int i = 0; i < 5 && st == LS_OK; i++) {
        FILE *out = open_memstream(&texts[i], &size);
        if (out)
            lists[i](out);
        if (!out || fclose(out) != 0)
            st = ls_fail(LS_FAILED, "out of memory");
    }
    if (st == LS_OK)
        ls_options_completion(&(struct ls_completion){texts[0], texts[1], texts[2], texts[3], texts[4]}, stdout);
    for (int i = 0; i < 5; i++)
        free(texts[i]);
    return st;
}

/* --- the command --------------------------------------------------------------------------------------------- */

enum ls_status ls_cmd_help(int n, char **words)
{
    const char *what = n > 0 ? words[0] : NULL, *more = n > 1 ? words[1] : NULL;
    struct ls_help_row rows[TOPICS + 1] = {{NULL, NULL}};
    for (int i = 0; i < TOPICS; i++)
        rows[i] = (struct ls_help_row){topics[i].name, topics[i].summary};
    int topic = 0;
    while (what && topic < TOPICS && strcmp(topics[topic].name, what) != 0)
        topic++;
    const struct ls_command_info *command = what ? ls_command_find(what) : NULL;
    const struct ls_subcommand *sub = command && more ? ls_subcommand_find(command->command, more) : NULL;
    bool details = sub || (what && topic < TOPICS && topics[topic].details);
    if (n > (details ? 2 : 1))
        return ls_fail(LS_USAGE, "help: '%s' is a word too many; `lockstep help` lists commands and topics",
                       words[details ? 2 : 1]);
    if (!what || strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0)
        ls_options_usage(rows, stdout);
    else if (strcmp(what, "--man") == 0)
        ls_options_man(LS_VERSION, rows, stdout);
    else if (strcmp(what, "--completion") == 0)
        return print_completion();
    else if (command)
        ls_options_help(command->command, sub, stdout);
    else if (topic < TOPICS)
        return topics[topic].print(more, stdout);
    else
        return unknown_topic(what);
    return LS_OK;
}
