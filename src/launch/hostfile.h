/* Hostfiles: the hosts of a run, one on each line, with the number of processes that each is to have.
 *
 *     node1 slots=4       as Open MPI has it
 *     node2:4             as MPICH has it
 *     node3               one process
 *
 * '#' begins a comment. A host on several lines has the processes of all of them. */
#ifndef LS_LAUNCH_HOSTFILE_H
#define LS_LAUNCH_HOSTFILE_H

#include "base/status.h"

struct ls_hostfile {
    char *text; /* owned */
    struct ls_hostfile_host {
        const char *name; /* in text */
        int slots, line;
    } * hosts; /* owned */
    int n;
};

/* Reads a hostfile with at least one host. LS_BAD_INPUT names the line and what was expected. */
enum ls_status ls_hostfile_read(const char *path, struct ls_hostfile *h);
void ls_hostfile_release(struct ls_hostfile *h);
/* Finds the host that this process runs on, by the name of this host or by an address of its interfaces. LS_USAGE if there is
 * none or more than one. */
enum ls_status ls_hostfile_find_this(const struct ls_hostfile *h, const char *path, int *host);

#endif
