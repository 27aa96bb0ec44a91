#include "base/text/help.h"
#include "config/table.h"

#include <ctype.h>
#include <string.h>

#define COLUMN 28
enum { NOTE = 512 }; /* size of the text with an option's choices and default */

/* "--batch N", "--nesterov", "--no-shuffle", "--resume [CHECKPOINT]". */
static void spell(const struct ls_option *option, char text[64])
{
    if (option->type == LS_OPTION_AUTO)
        snprintf(text, 64, "--%s, --no-%s", option->name, option->name);
    else if (option->type == LS_OPTION_SWITCH)
        snprintf(text, 64, "--%s%s", strcmp(option->missing, "true") == 0 ? "no-" : "", option->name);
    else if (option->letter)
        snprintf(text, 64, "-%c, --%s %s", option->letter, option->name, option->value);
    else
        snprintf(text, 64, option->alone ? "--%s [%s]" : "--%s %s", option->name, option->value);
}

/* The text after the help: the choices, unless the help lists them, and the default, where it is informative. */
static void note(const struct ls_option *option, char text[NOTE])
{
    size_t used = 0;
    text[0] = 0;
    if (option->choices && !option->head) {
        used += (size_t)snprintf(text, NOTE, ": %s", option->choices);
        for (char *space = text + 2; (space = strchr(space, ' '));)
            *space = '|';
    }
    bool said = !option->missing || ls_option_is_switch(option) || strcmp(option->missing, "0") == 0 ||
                strcmp(option->missing, "-1") == 0;
    if (!said)
        snprintf(text + used, NOTE - used, " (%s)", option->missing);
}

/* The help lists a switch that is on by the flag that turns it off. */
static const char *negation(const struct ls_option *option)
{
    return option->type == LS_OPTION_SWITCH && strcmp(option->missing, "true") == 0 ? "turn off: " : "";
}

/* The commands of data that take the option, where the help is about all of them: " [check, show]". */
static void note_parts(const struct ls_option *option, enum ls_command command, char text[NOTE])
{
    size_t used = 0;
    text[0] = 0;
    if (!option->parts || !ls_subcommands(command)->name)
        return;
    used += (size_t)snprintf(text, NOTE, " [");
    for (const char *c = option->parts; *c && used + 4 < NOTE; c++)
        used += (size_t)snprintf(text + used, NOTE - used, *c == ' ' ? ", " : "%c", *c);
    snprintf(text + used, NOTE - used, "]");
}

static void help_option(const struct ls_option *option, enum ls_command command, const struct ls_subcommand *sub,
                        FILE *out)
{
    char left[64], behind[NOTE], parts[NOTE] = "", text[1536];
    spell(option, left);
    note(option, behind);
    if (!sub)
        note_parts(option, command, parts);
    snprintf(text, sizeof text, "%s%s%s%s", negation(option), option->help, behind, parts);
    ls_help_row(left, text, 2, COLUMN, out);
}

/* The options whose lists bench measures. */
static void help_lists(FILE *out)
{
    char text[1024];
    size_t used = 0;
    for (int i = 0; i < ls_option_count; i++)
        if (ls_option_table[i].axis)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s--%s", used ? ", " : "", ls_option_table[i].name);
    snprintf(
        text + used, sizeof text - used,
        ": a list such as --batch 32,64 --threads 1,2 measures every combination, in one table. --batch max: as many "
        "samples as fit in memory.");
    ls_help_text(text, 0, out);
    putc('\n', out);
}

static void help_head(const struct ls_command_info *info, const struct ls_subcommand *sub, FILE *out)
{
    const char *summary = sub ? sub->summary : info->summary;
    fprintf(out, "usage: lockstep %s%s%s %s\n", info->name, sub ? " " : "", sub ? sub->name : "",
            sub ? sub->arguments : info->arguments);
    const struct ls_subcommand *all = ls_subcommands(info->command);
    for (const struct ls_subcommand *s = all; s->name && !sub; s++)
        fprintf(out, "       lockstep %s %s %s\n", info->name, s->name, s->arguments);
    fprintf(out, "\n%c%s.\n", toupper(summary[0]), summary + 1);
    if (all->name && !sub) {
        fprintf(out, "\nCommands\n");
        for (const struct ls_subcommand *s = all; s->name; s++)
            ls_help_row(s->name, s->summary, 2, 12, out);
        fprintf(out, "\n");
        ls_help_text("Without one of these words the command is check. A data set of such a name is ./NAME.", 0, out);
    }
}

void ls_options_help(enum ls_command command, const struct ls_subcommand *sub, FILE *out)
{
    const struct ls_command_info *info = ls_commands;
    while (info->name && info->command != command)
        info++;
    help_head(info, sub, out);
    const char *group = "";
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!ls_option_takes(option, command, sub))
            continue;
        if (strcmp(group, option->group) != 0)
            fprintf(out, "\n%s\n", option->group);
        group = option->group;
        help_option(option, command, sub, out);
    }
    putc('\n', out);
    if (command == LS_CMD_BENCH)
        help_lists(out);
    ls_help_text(
        "Every option may also stand in CONFIG.yaml as `batch: 64`, or in the environment as LOCKSTEP_BATCH=64; the "
        "command line wins over the environment, that over the file.",
        0, out);
}

void ls_options_usage(const struct ls_help_row *topics, FILE *out)
{
    fprintf(out, "usage: lockstep COMMAND [options]\n\nTrain convolutional image classifiers.\n\n");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        ls_help_row(info->name, info->summary, 2, 12, out);
    putc('\n', out);
    ls_help_text("lockstep help COMMAND lists its options; lockstep help TOPIC explains:", 0, out);
    putc('\n', out);
    for (; topics->name; topics++)
        ls_help_row(topics->name, topics->text, 2, 14, out);
    putc('\n', out);
    ls_help_row("lockstep help --man", "all of it as a manual page", 2, 32, out);
    ls_help_row("lockstep help --completion", "completion for bash, as in", 2, 32, out);
    fprintf(out, "      source <(lockstep help --completion)\n  lockstep --version\n\n");
    ls_help_text("Exit codes: 0 done, 1 failed, 2 usage, 3 bad input file, 4 another process was lost, 5 training "
                 "diverged, 75 stopped after saving (run again with --resume to go on).",
                 0, out);
}

/* In roff a backslash and a leading dot or quote are special, and - would become a hyphen. */
static void roff(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '-' || *text == '\\')
            putc('\\', out);
        fputs(*text == '\\' ? "e" : (char[]){*text, 0}, out);
    }
}

static void man_option(const struct ls_option *option, FILE *out)
{
    char left[64], right[NOTE], commands[256];
    size_t used = 0;
    spell(option, left);
    note(option, right);
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        if (option->commands & info->command)
            used += (size_t)snprintf(commands + used, sizeof commands - used, "%s%s", used ? ", " : "", info->name);
    fprintf(out, ".TP\n.B ");
    roff(left, out);
    fprintf(out, "\n%s", negation(option));
    roff(option->help, out);
    roff(right, out);
    fprintf(out, ".\nOf %s.\n", commands);
}

static void man_synopsis(const struct ls_command_info *info, FILE *out)
{
    fprintf(out, ".B lockstep %s\n%s\n.br\n", info->name, info->arguments);
    for (const struct ls_subcommand *sub = ls_subcommands(info->command); sub->name; sub++)
        fprintf(out, ".B lockstep %s %s\n%s\n.br\n", info->name, sub->name, sub->arguments);
}

static void man_summary(const struct ls_command_info *info, FILE *out)
{
    fprintf(out, ".TP\n.B %s\n%s.\n", info->name, info->summary);
    for (const struct ls_subcommand *sub = ls_subcommands(info->command); sub->name; sub++)
        fprintf(out, ".TP\n.B %s %s\n%s.\n", info->name, sub->name, sub->summary);
}

void ls_options_man(const char *version, const struct ls_help_row *topics, FILE *out)
{
    fprintf(out, ".TH LOCKSTEP 1 \"\" \"lockstep %s\" \"User Commands\"\n", version);
    fprintf(out, ".SH NAME\nlockstep \\- train convolutional image classifiers\n.SH SYNOPSIS\n");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        man_synopsis(info, out);
    fprintf(out, ".SH COMMANDS\n");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        man_summary(info, out);
    const char *group = "";
    fprintf(out, ".SH OPTIONS\n");
    for (int i = 0; i < ls_option_count; i++) {
        if (strcmp(group, ls_option_table[i].group) != 0)
            fprintf(out, ".SS %s\n", ls_option_table[i].group);
        group = ls_option_table[i].group;
        man_option(&ls_option_table[i], out);
    }
    fprintf(out, ".SH HELP TOPICS\nExplained by\n.BR \"lockstep help TOPIC\" .\n");
    for (; topics->name; topics++) {
        fprintf(out, ".TP\n.B %s\n", topics->name);
        roff(topics->text, out);
        fprintf(out, ".\n");
    }
    fprintf(out, ".SH FILES\nEvery option may stand in a YAML file as\n.BR \"batch: 64\" .\n"
                 ".SH ENVIRONMENT\nEvery option may be a variable such as\n.BR LOCKSTEP_BATCH=64 .\n"
                 "The command line wins over the environment, the environment over the file.\n"
                 ".B NO_COLOR\nturns colours off.\n"
                 ".SH SEE ALSO\n.I share/doc/lockstep\nwhere it is installed: README, docs, recipes, examples.\n"
                 ".SH EXIT STATUS\n0 done, 1 failed, 2 usage, 3 bad input file, 4 another process was lost,\n"
                 "5 training diverged, 75 stopped after saving; run again with\n.B \\-\\-resume\nto go on.\n");
}
