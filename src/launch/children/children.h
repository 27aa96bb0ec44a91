/* Starts the processes of this node and supervises them: the workers of `--workers N`, which are copies of Lockstep, and the
 * processes of `lockstep run`, which are another program.
 *
 *   W1  If the parent ends for any reason, its children end. If a child fails, the parent reports it once and ends the other
 *       children: copies of Lockstep within the deadline and a few seconds, another program within a few seconds.
 *   W2  A signal to the parent reaches each child once, whether a terminal, kill or a batch system sent it. */
#ifndef LS_LAUNCH_CHILDREN_H
#define LS_LAUNCH_CHILDREN_H

#include "launch/launch.h"

struct ls_children_job {
    const struct ls_launch *launch; /* how they find each other and the children of other nodes */
    int n;
    const char *program; /* a path; of another program also a name to look for in PATH */
    char **argv;
    double deadline; /* --deadline */
    bool foreign;    /* another program: its output is kept as it is, and its own children get signals, too */
    bool label;      /* foreign only: each line of output begins with the rank */
};

/* Returns when all children have ended. *code is 0 or the exit code of the first child that failed; a failure that is only
 * the consequence of another one does not count. A child that a signal killed counts as LS_PEER_LOST; of another program, and
 * where this process got the same signal, as 128 and the number of the signal. A status other than LS_OK means that they
 * could not be started. */
enum ls_status ls_children_run(const struct ls_children_job *job, int *code);

#endif
