/* Unpacks archives from the network. Only folders and regular files are made, and only inside of the given folder: an
 * archive with a link, a device, an absolute path or ".." is refused, and so is one that grows beyond the limits. */
#ifndef LS_DATA_FETCH_UNPACK_H
#define LS_DATA_FETCH_UNPACK_H

#include "base/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_unpack {
    const char *archive; /* path, also for messages */
    const char *folder;  /* exists and is empty */
    bool (*is_stopped)(void);
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
    void *context;
    /* set while unpacking */
    int64_t entries, bytes;
    int fd; /* the file that is being written; -1: none */
    char path[PATH_MAX];
};

enum ls_status ls_untar(struct ls_unpack *u); /* .tar.gz */
enum ls_status ls_unzip(struct ls_unpack *u);

/* For the two above: makes a folder, or opens a file, of that name in the archive; adds bytes to the file; closes it. */
enum ls_status ls_unpack_folder(struct ls_unpack *u, const char *name);
enum ls_status ls_unpack_open(struct ls_unpack *u, const char *name);
enum ls_status ls_unpack_put(struct ls_unpack *u, const void *data, size_t size);
enum ls_status ls_unpack_close(struct ls_unpack *u);
/* Returns LS_INTERRUPTED, reported, when the user stops the program. done and total are of the archive. */
enum ls_status ls_unpack_tick(struct ls_unpack *u, int64_t done, int64_t total);

#endif
