/* The topics of `lockstep help`: one file each, and one line in the list of cmd_help.c. What a topic lists comes from the
 * tables that the program itself reads. */
#ifndef LS_CMD_HELP_HELP_H
#define LS_CMD_HELP_HELP_H

#include "base/status.h"

#include <stdio.h>

/* what: one op, say; NULL: all of it. */
enum ls_status ls_help_augment(const char *what, FILE *out);
enum ls_status ls_help_checkpoint(const char *what, FILE *out);
enum ls_status ls_help_metrics(const char *what, FILE *out);
enum ls_status ls_help_ops(const char *what, FILE *out);

#endif
