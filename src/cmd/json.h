/* JSON for programs, on a terminal that people may look at. */
#ifndef LS_CMD_JSON_H
#define LS_CMD_JSON_H

#include <jansson.h>
#include <stddef.h>

/* As json_dumpf to standard output, but DEL and C1 controls are written as \uHHHH, as jansson writes those below a space.
 * 0: done. */
int ls_json_print(const json_t *value, size_t flags);

#endif
