/* The commands of `lockstep data`. Each has one file and one line in config/lists/data_commands.def. */
#ifndef LS_CMD_DATA_DATA_COMMANDS_H
#define LS_CMD_DATA_DATA_COMMANDS_H

#include "base/status.h"
#include "config/options.h"

/* n_words words follow the name of the command. */
#define X(name, ...) enum ls_status ls_data_##name(struct ls_options *o, int n_words, char **words);
#include "config/lists/data_commands.def"

#endif
