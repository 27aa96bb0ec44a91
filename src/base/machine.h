/* What the kernel says about this machine. */
#ifndef LS_BASE_MACHINE_H
#define LS_BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

/* The value behind "KEY   :" in a file of such lines, such as /proc/meminfo; false: there is none. */
bool ls_machine_value(const char *path, const char *key, char *value, size_t room);
/* The processor's model; its architecture where the kernel names no model. */
void ls_machine_processor(char *text, size_t room);

#endif
