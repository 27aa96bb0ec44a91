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

#endif
