/* Parsers for the variables of Slurm. Pure functions of their text. */
#ifndef LS_LAUNCH_SLURM_H
#define LS_LAUNCH_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* Finds the first host of a node list: "n[01-03,07],m2" -> "n01". False if there is none or it does not fit. */
bool ls_slurm_first_host(const char *list, char *host, size_t room);
/* Returns the number of tasks on a node: "2(x3),1" means 2, 2, 2, 1. -1 if the text has no such node. */
int ls_slurm_tasks_of(const char *per_node, int node);

#endif
