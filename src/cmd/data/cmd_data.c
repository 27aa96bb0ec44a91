/* lockstep data: runs the command that the first word names, or check. */
#include "cmd/cmd.h"
#include "cmd/data/data_commands.h"

#include "base/files/file.h"
#include "base/log.h"

/* The order is that of ls_data_commands. */
static enum ls_status (*const commands[])(struct ls_options *o, int n_words, char **words) = {
#define X(name, ...) ls_data_##name,
#include "config/lists/data_commands.def"
};

enum ls_status ls_cmd_data(struct ls_options *o)
{
    const struct ls_subcommand *sub = o->n_args > 0 ? ls_subcommand_find(LS_CMD_DATA, o->args[0]) : NULL;
    if (!sub)
        return ls_data_check(o, o->n_args, o->args);
    if (o->n_args == 1 && ls_file_is_dir(o->args[0]))
        ls_warn("data: '%s' is read as a command; the folder of this name is ./%s", o->args[0], o->args[0]);
    return commands[sub - ls_data_commands](o, o->n_args - 1, o->args + 1);
}
