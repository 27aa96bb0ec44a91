/* How this process was started, and how it finds the others. */
#ifndef LS_LAUNCH_LAUNCH_H
#define LS_LAUNCH_LAUNCH_H

#include "base/status.h"
#include "config/options.h"

enum ls_launch_kind {
    LS_LAUNCH_ALONE,   /* one process */
    LS_LAUNCH_WORKERS, /* by `lockstep --workers N`: children of one parent, over shared memory */
    LS_LAUNCH_MPI,     /* by mpirun, mpiexec, or srun with PMIx or PMI2: the MPI library knows */
    LS_LAUNCH_TCP,     /* RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, --master-ip ..., or SLURM_* without PMI */
    LS_LAUNCH_FILE     /* --rendezvous file:///path */
};

struct ls_launch {
    enum ls_launch_kind kind;
    const char *how; /* for people: "mpirun (Open MPI)", "srun with PMIx", "torchrun's variables" ... */
    const char *mpi; /* "openmpi" or "mpich": which module to load; NULL unless kind is MPI */
    bool ucx;        /* TCP and FILE: messages go over UCX, as --transport asks for */
    int rank, size;  /* -1: known once connected */
    int local_rank, local_size;
    char *address; /* owned; TCP: host of rank 0 */
    int port;
    char *path;       /* owned; FILE: where to meet */
    char *token;      /* owned; the shared secret, NULL: none given */
    char *session;    /* owned; WORKERS: the name of the shared memory */
    const char *node; /* borrowed; processes with different names count as different nodes, for tests; NULL: none */
};

/* From the options and the environment. Contradictions (RANK without WORLD_SIZE, two launchers at once, a rank out of
 * range) are LS_USAGE and say what to set. */
enum ls_status ls_launch_detect(const struct ls_options *o, struct ls_launch *launch);
void ls_launch_release(struct ls_launch *launch);
/* The number that a batch system gave the job of this process; "": none. */
const char *ls_launch_job(void);

#endif
