/* What Slurm's variables say, as text: pure functions, tested by a table. */
#ifndef LS_LAUNCH_SLURM_H
#define LS_LAUNCH_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* The first host of a node list: "n[01-03,07],m2" -> "n01". False when there is none or it does not fit. */
bool ls_slurm_first_host(const char *list, char *host, size_t room);
/* How many tasks a node has: "2(x3),1" is 2, 2, 2, 1. -1: it does not say. */
int ls_slurm_tasks_of(const char *per_node, int node);

#endif
