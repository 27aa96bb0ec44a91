/* Splits the cores of this process among workers. */
#ifndef LS_LAUNCH_CORES_H
#define LS_LAUNCH_CORES_H

#include <sched.h> /* with _GNU_SOURCE */
#include <stdbool.h>

/* Splits the affinity mask of this process into n shares of nearly equal size. Hardware threads of a core, and cores of a
 * socket, stay together. Returns false if there are fewer cores than shares or the mask is unknown. */
bool ls_cores_split(int n, cpu_set_t *shares);

#endif
