/* Modules: shared objects for the parts of Lockstep that need a library of their own (MPI, UCX, OpenSSL, CUDA). They lie
 * beside the program or in lib/lockstep and are loaded when they are needed. Each is linked with its own copy of src/base
 * and exports one object, whose name its user knows. */
#ifndef LS_BASE_MODULE_H
#define LS_BASE_MODULE_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Whether a module of that name is there; path[room] gets where. path may be NULL. */
bool ls_module_find(const char *file, char *path, size_t room);
/* Loads a module for the life of the process and finds its object. The error says what to install and type, and
 * `instead`: what works without the module. */
enum ls_status ls_module_load(const char *file, const char *object, const char *instead, const void **found);

/* The library that a module needs, in words: "Open MPI". */
const char *ls_module_library(const char *file);
/* What to type to get that library and a Lockstep that uses it. */
void ls_module_remedy(const char *file, char *text, size_t room);

#endif
