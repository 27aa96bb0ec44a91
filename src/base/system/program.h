/* The program that runs. */
#ifndef LS_BASE_PROGRAM_H
#define LS_BASE_PROGRAM_H

#include <stddef.h>

/* The file to start this program again, in `room`. When the file was replaced or removed since the start, by a new build or an
 * update, /proc/self/exe starts the old one. NULL and errno: it cannot be read. */
const char *ls_program_path(char *room, size_t size);
/* Seconds since the process started; 0 if /proc cannot be read. */
double ls_program_age(void);

#endif
