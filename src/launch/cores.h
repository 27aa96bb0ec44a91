/* Dealing the cores of this process to workers. */
#ifndef LS_LAUNCH_CORES_H
#define LS_LAUNCH_CORES_H

#include <sched.h> /* with _GNU_SOURCE */
#include <stdbool.h>

/* The cores that this process may use in n shares as even as possible, each of neighbouring cores: the threads of a core
 * stay together, then the cores of a socket. False: there are fewer cores than shares, or the system does not say. */
bool ls_cores_split(int n, cpu_set_t *shares);

#endif
