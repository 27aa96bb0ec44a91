/* Downloads public data sets, verifies them by their checksums and unpacks them. */
#ifndef LS_DATA_FETCH_FETCH_H
#define LS_DATA_FETCH_FETCH_H

#include "base/status.h"
#include "config/downloads.h"

#include <stdbool.h>
#include <stdint.h>

struct ls_fetch {
    const struct ls_download *set;
    const char *to;        /* the folder that will hold the folder of the data set */
    const char *from;      /* address of a folder with the same files; NULL: the data set's own */
    const char *checksums; /* file with checksums that replace the published ones, as sha256sum writes; NULL: none */
    bool quiet;            /* print nothing but errors */
    bool (*is_stopped)(void);
    void (*progress)(void *context, const char *what, int64_t done, int64_t total); /* bytes; total 0: unknown */
    void *context;
};

/* Fetches the data set into to/FOLDER. *was_there: the folder existed and nothing was done.
 *
 * Each file is downloaded to to/FILE.part, which stays when the transfer ends early: the next call continues it. A file
 * whose checksum is wrong is removed. Archives are unpacked into a folder of another name, which is renamed when it is
 * complete, so to/FOLDER never holds a part of the data. LS_INTERRUPTED: is_stopped returned true. */
enum ls_status ls_fetch(const struct ls_fetch *f, bool *was_there);

#endif
