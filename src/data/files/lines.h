/* The lines of a small text file: class names, annotations. */
#ifndef LS_DATA_FORMATS_LINES_H
#define LS_DATA_FORMATS_LINES_H

#include "base/status.h"
#include <stddef.h>

struct ls_lines {
    char *text;  /* owned */
    char **line; /* owned array; points into text, without line ends */
    int count;
};

/* Reads a file and splits it into lines. Skips empty lines. */
enum ls_status ls_lines_load(const char *path, struct ls_lines *lines);
void ls_lines_release(struct ls_lines *lines);
/* Returns the next tab-separated field and moves behind it; NULL at the end of the line. */
char *ls_lines_field(char **rest);

#endif
