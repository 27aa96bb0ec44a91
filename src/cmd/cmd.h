/* The commands: one file each, and one line in config/lists/commands.def. The status that a command returns is the program's
 * exit code. */
#ifndef LS_CMD_CMD_H
#define LS_CMD_CMD_H

#include "base/status.h"
#include "config/options.h"

#define X(NAME, name, ...) enum ls_status ls_cmd_##name(struct ls_options *o);
#include "config/lists/commands.def"

/* lockstep help, with the n words after it. */
enum ls_status ls_cmd_help(int n, char **words);
/* NULL: there is none of that name. */
const struct ls_command_info *ls_command_find(const char *name);
/* Says so, with the nearest one. */
enum ls_status ls_command_unknown(const char *name);

#endif
