/* Modules: shared objects that depend on optional libraries (MPI, UCX, OpenSSL, libcurl, CUDA). They lie beside the
 * program or in lib/lockstep and are loaded on first use. Each is linked with a separate copy of src/base and exports
 * one object. */
#ifndef LS_BASE_MODULE_H
#define LS_BASE_MODULE_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Searches the module folders for a file. Writes its path to path[room]; path may be NULL. */
bool ls_module_find(const char *file, char *path, size_t room);
/* Loads a module, which is never unloaded, and sets *found to its exported object. The error names what to install and
 * ends with `instead`, a hint for work without the module. */
enum ls_status ls_module_load(const char *file, const char *object, const char *instead, const void **found);

/* Returns the library that a module needs, such as "Open MPI". */
const char *ls_module_library(const char *file);
/* Writes the command that installs the library and builds the module. */
void ls_module_remedy(const char *file, char *text, size_t room);

#endif
