/* Writes the output of several processes line by line, each line behind the rank of its process: "3: text". */
#ifndef LS_LAUNCH_LABELS_H
#define LS_LAUNCH_LABELS_H

#include "base/status.h"
#include <stddef.h>
#include <stdio.h>

struct ls_label_stream {
    int fd; /* owned; read end of a pipe; -1: closed */
    int rank;
    FILE *to;
    char *line; /* owned; the beginning of a line */
    size_t used, room;
};

struct ls_labels {
    struct ls_label_stream *streams; /* owned */
    int n;
};

enum ls_status ls_labels_init(struct ls_labels *l, int n);
/* Writes lines that have no end yet, too. */
void ls_labels_release(struct ls_labels *l);
/* Reads available data of a stream and writes complete lines; at its end also the rest. Returns the bytes read. Closes the
 * stream at its end, or where nobody reads what is written. */
size_t ls_labels_read(struct ls_labels *l, int stream);

#endif
