#define _GNU_SOURCE
#include "base/system/module.h"
#include "base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes folder + inner + "/" + file to path; false if no such file is readable. */
static bool is_there(char *path, const char *folder, const char *inner, const char *file)
{
    int n = snprintf(path, PATH_MAX, "%s%s/%s", folder, inner, file);
    return n > 0 && n < PATH_MAX && access(path, R_OK) == 0;
}

/* Removes the last component of path; false if it has no folder. */
static bool cut_to_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = 0;
    return slash != NULL;
}

static bool program_folder(char *folder)
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[n < 0 ? 0 : n] = 0;
    return cut_to_folder(folder);
}

/* The folder of the shared library that contains this code. A relative name is the main program's, or would resolve in the
 * current folder, so it is rejected. */
static bool library_folder(char *folder)
{
    Dl_info info;
    return dladdr((void *)(uintptr_t)ls_module_load, &info) && info.dli_fname && info.dli_fname[0] == '/' &&
           realpath(info.dli_fname, folder) && cut_to_folder(folder);
}

static const char *user_folder(void)
{
    return getenv("LOCKSTEP_MODULES");
}

/* Searches in this order: LOCKSTEP_MODULES, beside the program and in its install folder, beside the library and in its
 * install folder, the install folder of the build. */
static bool look_up(const char *file, const char *named, char *path)
{
    char folder[PATH_MAX];
    if (named && is_there(path, named, "", file))
        return true;
    if (program_folder(folder) &&
        (is_there(path, folder, "", file) || is_there(path, folder, "/../" LS_LIBDIR "/lockstep", file)))
        return true;
    if (library_folder(folder) && (is_there(path, folder, "", file) || is_there(path, folder, "/lockstep", file)))
        return true;
    return is_there(path, LS_MODULE_DIR, "", file);
}

bool ls_module_find(const char *file, char *path, size_t room)
{
    char at[PATH_MAX];
    if (!look_up(file, user_folder(), at))
        return false;
    if (path)
        snprintf(path, room, "%s", at);
    return true;
}

/* --- errors that name what to install ------------------------------------------------------------------------- */

static const struct {
    const char *file, *library, *packages; /* packages: of Debian; NULL: none */
} needs[] = {
    {"lockstep-mpi-openmpi.so", "Open MPI", "libopenmpi-dev openmpi-bin"},
    {"lockstep-mpi-mpich.so", "MPICH", "libmpich-dev mpich"},
    {"lockstep-tcp.so", "OpenSSL", "libssl-dev"},
    {"lockstep-ucx.so", "UCX", "libucx-dev libssl-dev"},
    {"lockstep-fetch.so", "libcurl", "libcurl4-openssl-dev libssl-dev"},
    {"lockstep-cuda.so", "a CUDA toolkit with cuDNN 9", NULL},
};

const char *ls_module_library(const char *file)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (strcmp(file, needs[i].file) == 0)
            return needs[i].library;
    return "its library";
}

/* Finds the build folder that this program or library runs from; false if it is installed. */
static bool build_folder(char *folder)
{
    char path[PATH_MAX];
    return (program_folder(folder) && is_there(path, folder, "", "build.ninja")) ||
           (library_folder(folder) && is_there(path, folder, "", "build.ninja"));
}

void ls_module_remedy(const char *file, char *text, size_t room)
{
    char folder[PATH_MAX], build[PATH_MAX + 32] = ", build Lockstep again and install it";
    const char *packages = NULL;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (strcmp(file, needs[i].file) == 0)
            packages = needs[i].packages;
    if (build_folder(folder))
        snprintf(build, sizeof build, " && cmake --build %s", folder);
    if (packages)
        snprintf(text, room, "%sapt-get install %s%s", geteuid() == 0 ? "" : "sudo ", packages, build);
    else
        snprintf(text, room, "install %s and build Lockstep again in an empty folder", ls_module_library(file));
}

enum ls_status ls_module_load(const char *file, const char *object, const char *instead, const void **found)
{
    const char *named = user_folder();
    char path[PATH_MAX], remedy[2 * PATH_MAX];
    ls_module_remedy(file, remedy, sizeof remedy);
    if (!look_up(file, named, path))
        return ls_fail(LS_FAILED,
                       "this Lockstep was built without %s; type: %s (%s was not found %s%s%sbeside the program or "
                       "in " LS_MODULE_DIR "; LOCKSTEP_MODULES names another folder; or %s)",
                       ls_module_library(file), remedy, file, named ? "in " : "", named ? named : "", named ? ", " : "",
                       instead);
    /* RTLD_NODELETE: MPI, UCX and CUDA leave threads and exit handlers behind. RTLD_GLOBAL: components of Open MPI
     * resolve symbols in it. */
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!module)
        return ls_fail(LS_FAILED, "%s: cannot be loaded: %s (if %s is missing, type: %s)", path, dlerror(),
                       ls_module_library(file), remedy);
    *found = dlsym(module, object);
    if (!*found)
        return ls_fail(LS_FAILED, "%s: not a module of Lockstep (it has no %s)", path, object);
    void (*forward_log)(ls_log_sink * sink);
    *(void **)&forward_log = dlsym(module, "ls_module_forward_log");
    if (forward_log)
        forward_log(ls_log_write);
    return LS_OK;
}
