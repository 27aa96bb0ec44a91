/* The commands. Each has one file and one line in config/lists/commands.def. The status that a command returns is
 * the exit code of the program. */
#ifndef LS_CMD_CMD_H
#define LS_CMD_CMD_H

#include "base/status.h"
#include "config/options.h"

#define X(NAME, name, ...) enum ls_status ls_cmd_##name(struct ls_options *o);
#include "config/lists/commands.def"

/* Runs `lockstep help` with the n words that follow it. */
enum ls_status ls_cmd_help(int n, char **words);
/* Returns NULL when there is no command of that name. */
const struct ls_command_info *ls_command_find(const char *name);
/* Reports an unknown command and suggests the nearest name. */
enum ls_status ls_command_unknown(const char *name);

#endif
