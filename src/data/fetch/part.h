/* The file of a download while it is incomplete: NAME.part. */
#ifndef LS_DATA_FETCH_PART_H
#define LS_DATA_FETCH_PART_H

#include "data/fetch/fetch.h"
#include "data/fetch/module.h"

struct ls_part {
    const struct ls_fetch *fetch;         /* borrowed */
    const struct ls_fetch_module *module; /* borrowed */
    const char *name;                     /* of the file on the server */
    char path[PATH_MAX];                  /* of the .part file */
    int64_t bytes;                        /* size of the whole file; 0: unknown */
    const char *checksum;                 /* "sha256:HEX" or "md5:HEX" */
    int fd;                               /* -1: closed */
    bool is_locked;
};

/* Opens the part and locks it, so that two processes never write to it. Close it after a failure, too. */
enum ls_status ls_part_open(struct ls_part *part);
/* Downloads what is missing of the file and verifies its checksum. */
enum ls_status ls_part_fetch(struct ls_part *part);
/* Removes the part if it is empty. */
void ls_part_close(struct ls_part *part);

#endif
