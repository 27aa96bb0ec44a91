/* The commands: one file each (cmd_NAME.c). The status a command returns is the program's exit code. */
#ifndef LS_CMD_CMD_H
#define LS_CMD_CMD_H

#include "base/status.h"
#include "config/options.h"

enum ls_status ls_cmd_train(struct ls_options *o);
enum ls_status ls_cmd_eval(struct ls_options *o);
enum ls_status ls_cmd_predict(struct ls_options *o);
enum ls_status ls_cmd_bench(struct ls_options *o);
enum ls_status ls_cmd_models(struct ls_options *o);
enum ls_status ls_cmd_plan(struct ls_options *o);
enum ls_status ls_cmd_data(struct ls_options *o);
enum ls_status ls_cmd_doctor(struct ls_options *o);

/* lockstep help, with the n words after it. */
enum ls_status ls_cmd_help(int n, char **words);
/* NULL: there is none of that name. */
const struct ls_command_info *ls_command_find(const char *name);
/* Says so, with the nearest one. */
enum ls_status ls_command_unknown(const char *name);

#endif
