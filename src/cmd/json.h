/* JSON output that is safe to show on a terminal. */
#ifndef LS_CMD_JSON_H
#define LS_CMD_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/* Writes like json_dumpf. DEL and C1 controls are written as \uHHHH; jansson does this only for
 * characters below space. Returns 0 on success. */
int ls_json_write(const json_t *value, size_t flags, FILE *out);
/* The same to standard output. */
int ls_json_print(const json_t *value, size_t flags);

#endif
