/* Commands of a command, such as `lockstep data check`. */
#include "config/table.h"

#include <string.h>

/* clang-format off */
const struct ls_subcommand ls_data_commands[] = {
#define X(name, arguments, summary) {#name, arguments, summary},
#include "config/lists/data_commands.def"
    {0},
};
/* clang-format on */

const struct ls_subcommand *ls_subcommands(enum ls_command command)
{
    static const struct ls_subcommand none = {0};
    return command == LS_CMD_DATA ? ls_data_commands : &none;
}

const struct ls_subcommand *ls_subcommand_find(enum ls_command command, const char *name)
{
    for (const struct ls_subcommand *sub = ls_subcommands(command); sub->name; sub++)
        if (strcmp(sub->name, name) == 0)
            return sub;
    return NULL;
}

/* True if the list, words separated by spaces, has the word. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}

bool ls_option_takes(const struct ls_option *option, enum ls_command command, const struct ls_subcommand *sub)
{
    if (!(option->commands & command))
        return false;
    return !option->parts || !ls_subcommands(command)->name || !sub || has_word(option->parts, sub->name);
}
