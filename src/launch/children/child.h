/* One process that ls_children_run starts: what happens between fork and exec. */
#ifndef LS_LAUNCH_CHILD_H
#define LS_LAUNCH_CHILD_H

#include "launch/children/children.h"
#include <sched.h> /* with _GNU_SOURCE */
#include <signal.h>
#include <sys/types.h>

struct ls_child {
    const struct ls_children_job *job;
    int number;             /* on this node, from 0 */
    const char *session;    /* of the shared memory */
    const cpu_set_t *cores; /* NULL: those of the parent */
    int output, errors;     /* pipes to the parent; -1: the parent's own stream */
    pid_t parent;
    const sigset_t *mask; /* signals that are blocked in the program */
};

/* The rank of a child of this node, or its number where ranks are given in the order of arrival. */
int ls_child_rank(const struct ls_children_job *job, int number);
/* Runs in the child process, becomes the program and does not return. */
void ls_child_become(const struct ls_child *c) __attribute__((noreturn));

#endif
