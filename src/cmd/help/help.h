/* The topics of `lockstep help`. Each has a file and a line in the list of cmd_help.c. A topic prints the tables
 * that the program itself reads. */
#ifndef LS_CMD_HELP_HELP_H
#define LS_CMD_HELP_HELP_H

#include "base/status.h"

#include <stdio.h>

/* what is one entry of the topic, such as an op. NULL: the whole topic. */
enum ls_status ls_help_augment(const char *what, FILE *out);
enum ls_status ls_help_checkpoint(const char *what, FILE *out);
enum ls_status ls_help_metrics(const char *what, FILE *out);
enum ls_status ls_help_ops(const char *what, FILE *out);

#endif
