/* The memory that this process may still take. */
#ifndef LS_BASE_FREE_MEMORY_H
#define LS_BASE_FREE_MEMORY_H

/* Bytes that the machine and the process's cgroup have left; 0: not known. */
double ls_free_memory(void);
/* The limit of `ulimit -v`, less what the process has mapped already; at least 1. 0: there is no limit. */
double ls_free_address_space(void);

#endif
