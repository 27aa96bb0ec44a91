/* Detects the innermost launcher of this process from the environment. For the files of this folder. */
#ifndef LS_LAUNCH_LAUNCHERS_H
#define LS_LAUNCH_LAUNCHERS_H

#include "launch/launch.h"

/* Sets kind, how, mpi, ranks and sizes of *l, and address, port and token where the launcher gives them. Without a launcher
 * *l is rank 0 of 1. LS_USAGE if variables are missing or contradict each other. */
enum ls_status ls_launchers_innermost(struct ls_launch *l);

/* Fails unless rank is one of size processes. `how` says where the numbers are from. */
enum ls_status ls_launch_check_place(const char *how, int rank, int size);
/* Replaces the text *to by a copy of `text`. */
enum ls_status ls_launch_copy(char **to, const char *text);

#endif
