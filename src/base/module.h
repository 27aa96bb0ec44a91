/* Parts of the program that stand on libraries it does without otherwise: files beside it (or in lib/lockstep), loaded
 * when they are needed. A module has a copy of this folder of its own, and shows one object that its user knows. */
#ifndef LS_BASE_MODULE_H
#define LS_BASE_MODULE_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Is there a file of that name where modules are? Its path into path[room]; NULL: not wanted. */
bool ls_module_there(const char *file, char *path, size_t room);
/* Load it, for good, and find its object. The error says where it was looked for, and `instead`: what to do without. */
enum ls_status ls_module_load(const char *file, const char *object, const char *instead, const void **found);

#endif
