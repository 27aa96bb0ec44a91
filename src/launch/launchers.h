/* Detects the innermost launcher of this process from the environment. For the files of this folder. */
#ifndef LS_LAUNCH_LAUNCHERS_H
#define LS_LAUNCH_LAUNCHERS_H

#include "launch/launch.h"

/* Sets kind, how, mpi, ranks and sizes of *l, and address, port and token where the launcher gives them. Without a launcher
 * *l is rank 0 of 1. LS_USAGE if variables are missing or contradict each other. */
enum ls_status ls_launchers_innermost(struct ls_launch *l);

/* True in a process that srun started. A batch script has SLURM_PROCID too, but belongs to no job step. */
bool ls_launchers_in_slurm(void);
/* Sets address and port to those of rank 0, which runs on the first node of the job step; srun may run elsewhere. */
enum ls_status ls_launchers_slurm_address(struct ls_launch *l);
bool ls_launchers_in_pod(void);
/* In a pod of Kubernetes: *index is the index of an indexed job (JOB_COMPLETION_INDEX) or of a host name such as train-2,
 * and *from names its source. Elsewhere *index is -1. */
enum ls_status ls_launchers_pod_index(int *index, const char **from);

/* Fails unless rank is one of size processes. `how` says where the numbers are from. */
enum ls_status ls_launch_check_place(const char *how, int rank, int size);
/* Replaces the text *to by a copy of `text`. */
enum ls_status ls_launch_copy(char **to, const char *text);

#endif
