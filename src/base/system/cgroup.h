/* Limits of control groups (cgroups): a CPU quota limits CPU time independently of the affinity mask, and a memory limit
 * memory independently of what the machine has. */
#ifndef LS_BASE_CGROUP_H
#define LS_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the smallest CPU quota of this process's cgroup and its ancestors, in cores (1.5: one and a half cores), or 0
 * if there is none. Reads cgroup v1 and v2 at any mount point. root replaces "/" in tests and is "" otherwise. *group gets
 * a hash of the cgroup that has the quota: processes under the same quota get the same value. group may be NULL. */
double ls_cgroup_cpus(const char *root, uint64_t *group);
/* Returns the smaller of `cores` and the quota, rounded up to whole cores; at least 1. */
int ls_cgroup_cores(const char *root, int cores);
/* Finds the memory that this process's cgroup and its ancestors may still take, in bytes: the smallest difference of limit
 * and use. The cached files of a cgroup count as free. Returns false if there is no limit. */
bool ls_cgroup_memory(const char *root, uint64_t *left);

#endif
