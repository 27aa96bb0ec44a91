#define _GNU_SOURCE
#include "comm/transports.h"
#include "base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
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
    void (*join)(ls_log_ear * ear);
    *(void **)&join = dlsym(module, "ls_module_join");
    if (join)
        join(ls_log_hear);
    *transport = found;
    return LS_OK;
}

/* folder/file; false when there is no such file. */
static bool is_there(char *path, const char *folder, const char *inner, const char *file)
{
    int n = snprintf(path, PATH_MAX, "%s%s/%s", folder, inner, file);
    return n > 0 && n < PATH_MAX && access(path, R_OK) == 0;
}

/* The folder of a file, in place; false: it has none. */
static bool cut_to_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = 0;
    return slash != NULL;
}

/* Of the program. */
static bool program_folder(char *folder)
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[n < 0 ? 0 : n] = 0;
    return cut_to_folder(folder);
}

/* Of the library that this code was loaded from by another program. A name that is not absolute is a program's own, or
 * would lead to whatever the current folder holds. */
static bool library_folder(char *folder)
{
    Dl_info info;
    return dladdr((void *)(uintptr_t)ls_transport_find, &info) && info.dli_fname && info.dli_fname[0] == '/' &&
           realpath(info.dli_fname, folder) && cut_to_folder(folder);
}

/* In the order of trust: where the user says, beside the program and where it is installed, likewise for the library,
 * where the build would install it. */
static bool look_up(const char *file, const char *named, char *path)
{
    char folder[PATH_MAX];
    if (named && is_there(path, named, "", file))
        return true;
    if (program_folder(folder) &&
        (is_there(path, folder, "", file) || is_there(path, folder, "/../lib/lockstep", file)))
        return true;
    if (library_folder(folder) && (is_there(path, folder, "", file) || is_there(path, folder, "/lockstep", file)))
        return true;
    return is_there(path, LS_MODULE_DIR, "", file);
}

static enum ls_status find_module(const char *file, const struct ls_transport **transport)
{
    const char *named = getenv("LOCKSTEP_MODULES");
    char path[PATH_MAX];
    if (look_up(file, named, path))
        return load(path, transport);
    return ls_fail(LS_FAILED,
                   "%s was not found %s%s%sbeside the program or in " LS_MODULE_DIR
                   ": build Lockstep where that library is installed, set LOCKSTEP_MODULES to its folder, or start the "
                   "workers of one machine with --workers N",
                   file, named ? "in " : "", named ? named : "", named ? ", " : "");
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
