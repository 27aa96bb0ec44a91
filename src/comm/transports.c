#define _GNU_SOURCE
#include "comm/transports.h"
#include "base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Modules are loaded for good: MPI and UCX leave threads and exit handlers behind that need their code. */
static enum ls_status load(const char *path, const struct ls_transport **transport)
{
    /* Global: Open MPI loads components that look for its symbols. */
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!module)
        return ls_fail(LS_FAILED, "%s: cannot be loaded: %s", path, dlerror());
    const struct ls_transport *found = dlsym(module, "ls_transport_module");
    if (!found)
        return ls_fail(LS_FAILED, "%s: is no transport of Lockstep (it has no ls_transport_module)", path);
    *transport = found;
    return LS_OK;
}

/* folder/file; false when there is no such file. */
static bool is_there(char *path, const char *folder, const char *inner, const char *file)
{
    int n = snprintf(path, PATH_MAX, "%s%s/%s", folder, inner, file);
    return n > 0 && n < PATH_MAX && access(path, R_OK) == 0;
}

static enum ls_status find_module(const char *file, const struct ls_transport **transport)
{
    char path[PATH_MAX], folder[PATH_MAX];
    const char *named = getenv("LOCKSTEP_MODULES");
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    if ((named && is_there(path, named, "", file)) || (slash && is_there(path, folder, "", file)) ||
        (slash && is_there(path, folder, "/../lib/lockstep", file)))
        return load(path, transport);
    return ls_fail(LS_FAILED,
                   "%s was not found in %s%s%s or %s/../lib/lockstep: build Lockstep where that library is installed, "
                   "set LOCKSTEP_MODULES to its folder, or start the workers of one machine with --workers N",
                   file, named ? named : "", named ? ", " : "", folder, folder);
}

enum ls_status ls_transport_find(const struct ls_launch *launch, const struct ls_transport **transport)
{
    switch (launch->kind) {
    case LS_LAUNCH_MPI:
        return find_module(launch->mpi && strcmp(launch->mpi, "mpich") == 0 ? "lockstep-mpi-mpich.so"
                                                                            : "lockstep-mpi-openmpi.so",
                           transport);
    case LS_LAUNCH_TCP:
    case LS_LAUNCH_FILE:
        return find_module("lockstep-ucx.so", transport);
    case LS_LAUNCH_ALONE:
    case LS_LAUNCH_WORKERS:
        break;
    }
    *transport = &ls_transport_shm;
    return LS_OK;
}
