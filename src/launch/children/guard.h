/* A process that outlives its parent for a moment, to end the processes that the parent started and their own children: the
 * kernel tells a child of the parent's death, but not the children of that child. */
#ifndef LS_LAUNCH_GUARD_H
#define LS_LAUNCH_GUARD_H

#include <sys/types.h>

struct ls_guard {
    pid_t pid; /* 0: none */
    int pipe;  /* owned; closed by the kernel when the parent dies */
};

/* Starts the guard of these n process groups. Without one, *g is empty. */
void ls_guard_start(struct ls_guard *g, const pid_t *groups, int n);
/* Group number i has ended. */
void ls_guard_forget(const struct ls_guard *g, int i);
void ls_guard_end(struct ls_guard *g);

#endif
