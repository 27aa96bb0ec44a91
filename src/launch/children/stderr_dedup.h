/* Merges the standard error of several workers and prints equal lines once. All workers run the same program on the same
 * input, so each of them reports the same error. */
#ifndef LS_LAUNCH_STDERR_DEDUP_H
#define LS_LAUNCH_STDERR_DEDUP_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_DEDUP_LINE = 4096, LS_DEDUP_LINES = 64 };

struct ls_stderr_dedup_stream {
    int fd; /* owned; read end of the pipe; -1: closed */
    int used;
    bool complained; /* has reported an error, printed or suppressed */
    char line[LS_DEDUP_LINE];
};

struct ls_stderr_dedup {
    struct ls_stderr_dedup_stream *streams; /* owned */
    int n;
    struct {
        uint64_t hash;
        int rank;              /* the worker that printed it; equal lines of others are suppressed */
    } printed[LS_DEDUP_LINES]; /* the last lines */
    unsigned at;
};

enum ls_status ls_stderr_dedup_init(struct ls_stderr_dedup *c, int n);
/* Prints lines that have no end yet, too. */
void ls_stderr_dedup_release(struct ls_stderr_dedup *c);
/* Reads available data and prints complete lines that no other worker printed lately. At the end of the stream prints the
 * rest as well. Returns the bytes read. */
size_t ls_stderr_dedup_read(struct ls_stderr_dedup *c, int rank);

#endif
