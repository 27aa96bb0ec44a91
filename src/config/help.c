#include "base/help.h"
#include "config/table.h"

#include <ctype.h>
#include <string.h>

#define COLUMN 28

/* "--batch N", "--nesterov", "--no-shuffle", "--resume [CHECKPOINT]". */
static void spell(const struct ls_option *option, char text[64])
{
    if (option->type == LS_OPTION_SWITCH)
        snprintf(text, 64, "--%s%s", strcmp(option->missing, "true") == 0 ? "no-" : "", option->name);
    else
        snprintf(text, 64, option->alone ? "--%s [%s]" : "--%s %s", option->name, option->value);
}

/* What stands behind the help: choices unless the help spells them, and a default worth saying. */
static void note(const struct ls_option *option, char text[128])
{
    size_t used = 0;
    text[0] = 0;
    if (option->choices && !option->head) {
        used += (size_t)snprintf(text, 128, ": %s", option->choices);
        for (char *space = text + 2; (space = strchr(space, ' '));)
            *space = '|';
    }
    bool said = !option->missing || option->type == LS_OPTION_SWITCH || strcmp(option->missing, "0") == 0 ||
                strcmp(option->missing, "-1") == 0;
    if (!said)
        snprintf(text + used, 128 - used, " (%s)", option->missing);
}

/* A switch that is on is listed by what turns it off. */
static const char *negation(const struct ls_option *option)
{
    return option->type == LS_OPTION_SWITCH && strcmp(option->missing, "true") == 0 ? "turn off: " : "";
}

static void help_option(const struct ls_option *option, FILE *out)
{
    char left[64], behind[128], text[512];
    spell(option, left);
    note(option, behind);
    snprintf(text, sizeof text, "%s%s%s", negation(option), option->help, behind);
    ls_help_row(left, text, 2, COLUMN, out);
}

void ls_options_help(enum ls_command command, FILE *out)
{
    const struct ls_command_info *info = ls_commands;
    while (info->name && info->command != command)
        info++;
    fprintf(out, "usage: lockstep %s %s\n\n%c%s.\n", info->name, info->arguments, toupper(info->summary[0]),
            info->summary + 1);
    const char *group = "";
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!(option->commands & command))
            continue;
        if (strcmp(group, option->group) != 0)
            fprintf(out, "\n%s\n", option->group);
        group = option->group;
        help_option(option, out);
    }
    fprintf(out, "\nEvery option may also stand in the FILE.yaml as `batch: 64`, or in the environment as\n"
                 "LOCKSTEP_BATCH=64; the command line wins over the environment, that over the file.\n");
}

void ls_options_usage(FILE *out)
{
    fprintf(out, "usage: lockstep COMMAND [options]\n\nTrain convolutional image classifiers.\n\n");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        fprintf(out, "  %-10s%s\n", info->name, info->summary);
    fprintf(out, "\n  lockstep help COMMAND         the options of a command\n"
                 "  lockstep help --man           all of it as a manual page\n"
                 "  lockstep help --completion    completion for bash: source <(lockstep help --completion)\n"
                 "  lockstep --version\n"
                 "\nExit codes: 0 done, 1 failed, 2 usage, 3 bad input file, 4 a peer was lost, 5 training\n"
                 "diverged, 75 stopped after saving (run again with --resume to go on).\n");
}

/* roff: a backslash and a leading dot or quote mean something, and - would become a hyphen. */
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
    char left[64], right[128], commands[96];
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

void ls_options_man(const char *version, FILE *out)
{
    fprintf(out, ".TH LOCKSTEP 1 \"\" \"lockstep %s\" \"User Commands\"\n", version);
    fprintf(out, ".SH NAME\nlockstep \\- train convolutional image classifiers\n.SH SYNOPSIS\n");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        fprintf(out, ".B lockstep %s\n%s\n.br\n", info->name, info->arguments);
    fprintf(out, ".SH COMMANDS\n");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        fprintf(out, ".TP\n.B %s\n%s.\n", info->name, info->summary);
    const char *group = "";
    fprintf(out, ".SH OPTIONS\n");
    for (int i = 0; i < ls_option_count; i++) {
        if (strcmp(group, ls_option_table[i].group) != 0)
            fprintf(out, ".SS %s\n", ls_option_table[i].group);
        group = ls_option_table[i].group;
        man_option(&ls_option_table[i], out);
    }
    fprintf(out, ".SH FILES\nEvery option may stand in a YAML file as\n.BR \"batch: 64\" .\n"
                 ".SH ENVIRONMENT\nEvery option may be a variable such as\n.BR LOCKSTEP_BATCH=64 .\n"
                 "The command line wins over the environment, the environment over the file.\n"
                 ".B NO_COLOR\nturns colours off.\n"
                 ".SH EXIT STATUS\n0 done, 1 failed, 2 usage, 3 bad input file, 4 a peer was lost,\n"
                 "5 training diverged, 75 stopped after saving; run again with\n.B \\-\\-resume\nto go on.\n");
}

void ls_options_completion(FILE *out)
{
    fprintf(out, "_lockstep() {\n    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} words=\n"
                 "    COMPREPLY=()\n    case $last in\n");
    for (int i = 0; i < ls_option_count; i++)
        if (ls_option_table[i].choices)
            fprintf(out, "    --%s) words='%s' ;;\n", ls_option_table[i].name, ls_option_table[i].choices);
    fprintf(out, "    esac\n    if [ \"$COMP_CWORD\" = 1 ]; then\n        words='");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        fprintf(out, "%s ", info->name);
    fprintf(out, "help'\n    elif [[ $word == -* ]]; then\n        case ${COMP_WORDS[1]} in\n");
    for (const struct ls_command_info *info = ls_commands; info->name; info++) {
        fprintf(out, "        %s) words='", info->name);
        for (int i = 0; i < ls_option_count; i++) {
            const struct ls_option *option = &ls_option_table[i];
            bool on = option->type == LS_OPTION_SWITCH && strcmp(option->missing, "true") == 0;
            if (option->commands & info->command)
                fprintf(out, "--%s%s ", on ? "no-" : "", option->name);
        }
        fprintf(out, "--help' ;;\n");
    }
    fprintf(out, "        esac\n    fi\n"
                 "    [ \"$words\" ] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\n"
                 "complete -o default -F _lockstep lockstep\n");
}
