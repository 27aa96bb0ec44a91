/* A file that is read through the page cache, without a copy. */
#ifndef LS_BASE_MAPPED_H
#define LS_BASE_MAPPED_H

#include "base/files/file.h"

#include <stdatomic.h>

struct ls_mapped {
    const uint8_t *bytes;
    size_t size;
    /* The file became shorter, or its storage failed, while it was read: pages that are gone read as 0. */
    atomic_bool is_torn;
    int slot;
};

/* Maps a regular file for reading. On failure returns false and writes the reason to why, to follow "PATH: ". The struct must
 * stay where it is until ls_mapped_release. From the first call on, a page that cannot be read becomes a page of zeros and sets
 * is_torn; without that the process would die of SIGBUS. */
bool ls_mapped_open(struct ls_mapped *m, const char *path, char why[LS_FILE_WHY]);
void ls_mapped_release(struct ls_mapped *m);
/* Waits until these bytes are in memory. Returns false if they cannot be read. */
bool ls_mapped_wait(struct ls_mapped *m, size_t offset, size_t size);

#endif
