/* Facts about this machine from the kernel. */
#ifndef LS_BASE_MACHINE_H
#define LS_BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

/* Finds the value of "KEY   : VALUE" in a file such as /proc/meminfo; false if the key is missing. */
bool ls_machine_value(const char *path, const char *key, char *value, size_t room);
/* Writes the model of the processor, or its architecture if the kernel names no model. */
void ls_machine_processor(char *text, size_t room);

#endif
