#include "comm/transports.h"
#include "base/system/module.h"

#include <stdio.h>
#include <string.h>

static enum ls_status find_module(const char *file, const struct ls_transport **transport)
{
    const void *found;
    LS_TRY(ls_module_load(file, "ls_transport_module",
                          "start the processes of one machine with `lockstep train --workers N`, programs of your own "
                          "with LOCKSTEP_WORKER_RANK, see docs/library.md",
                          &found));
    *transport = found;
    return LS_OK;
}

enum ls_status ls_transport_find(const struct ls_launch *launch, const struct ls_transport **transport)
{
    char file[64];
    switch (launch->kind) {
    case LS_LAUNCH_MPI:
        return find_module(launch->mpi && strcmp(launch->mpi, "mpich") == 0 ? "lockstep-mpi-mpich.so"
                                                                            : "lockstep-mpi-openmpi.so",
                           transport);
    case LS_LAUNCH_TCP:
    case LS_LAUNCH_FILE:
        snprintf(file, sizeof file, "lockstep-%s.so", launch->transport);
        return find_module(file, transport);
    case LS_LAUNCH_ALONE:
    case LS_LAUNCH_WORKERS:
        break;
    }
    *transport = &ls_transport_shm;
    return LS_OK;
}
