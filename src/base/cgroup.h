/* Control groups: how much CPU time the kernel gives this process, whatever cores it may run on. */
#ifndef LS_BASE_CGROUP_H
#define LS_BASE_CGROUP_H

#include <stdint.h>

/* The least CPU quota of this process's group and of those around it, in cores' worth of time (1.5: a core and a half);
 * 0: none. Version 1 and 2, wherever they are mounted. root: "", or a folder that stands for / (tests). *group: names the
 * group whose quota it is; processes that share it have the same number. NULL: nobody asks. */
double ls_cgroup_cpus(const char *root, uint64_t *group);
/* As many of `cores` as the quota pays for, rounded up; at least one. */
int ls_cgroup_cores(const char *root, int cores);

#endif
