/* Detects the launcher of this process, its rank, and how the processes of a job find each other. */
#ifndef LS_LAUNCH_LAUNCH_H
#define LS_LAUNCH_LAUNCH_H

#include "base/status.h"
#include "config/options.h"
#include <stdbool.h>

enum ls_launch_kind {
    LS_LAUNCH_ALONE,   /* one process */
    LS_LAUNCH_WORKERS, /* `lockstep --workers N`: children of one parent, over shared memory */
    LS_LAUNCH_MPI,     /* mpirun, mpiexec, or srun with PMIx or PMI2: the MPI library connects */
    LS_LAUNCH_TCP,     /* RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, --master-ip, --hostfile, SLURM_* without PMI */
    LS_LAUNCH_FILE     /* --rendezvous file:///path */
};

struct ls_launch {
    enum ls_launch_kind kind;
    const char *how;       /* for messages: "mpirun (Open MPI)", "srun with PMIx", ... */
    const char *mpi;       /* the module to load, "openmpi" or "mpich"; NULL unless kind is MPI */
    const char *transport; /* TCP and FILE: what carries messages, a name of lists/transports.def */
    bool ucx_tcp;          /* UCX may listen on TCP ports (--allow-unprotected-ucx) */
    int rank, size;        /* -1: unknown until connected; of a parent: rank of its first worker, and all workers */
    int local_rank, local_size;
    int workers;       /* this process is a parent, which starts that many workers on its node; 0: it is a rank */
    bool one_per_node; /* a launcher started several processes, one on each node */
    bool late_names;   /* the name of rank 0's host may become known later: pods of Kubernetes */
    char *address;     /* owned; TCP: host of rank 0 */
    int port;
    char *path;       /* owned; FILE: the rendezvous folder */
    char *token;      /* owned; the shared secret; NULL: none */
    char *session;    /* owned; WORKERS: the name of the shared memory */
    const char *node; /* borrowed; processes with different names count as different nodes, for tests; NULL: none */
};

/* Reads options and environment. Contradictions (RANK without WORLD_SIZE, two launchers at once, a rank out of range) are
 * LS_USAGE; the message names what to set.
 *
 * A parent of several nodes has the kind by which its workers meet those of the other nodes, TCP or FILE. A parent of one
 * node is ALONE, with one process. */
enum ls_status ls_launch_detect(const struct ls_options *o, struct ls_launch *launch);
void ls_launch_release(struct ls_launch *launch);
/* True if options ask for workers, so that ls_launch_detect may find that this process is a parent. */
bool ls_launch_may_start_workers(const struct ls_options *o);
/* Returns the job number of the batch system, or "". */
const char *ls_launch_job(void);

#endif
