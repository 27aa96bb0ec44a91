/* Writers of data sets, for `lockstep data convert`. A writer puts the samples of one part into files of a folder. It is used
 * by one thread at a time. The folder is a temporary one: a writer leaves unfinished files behind when it fails. */
#ifndef LS_DATA_WRITE_H
#define LS_DATA_WRITE_H

#include "data/data.h"

#include <stdio.h>

struct ls_write_plan {
    const char *folder;                 /* exists */
    const char *part;                   /* "train", "val", or "": the data has no parts */
    const struct ls_dataset_info *info; /* of the part as it is written; borrowed until finish */
    int64_t shards;                     /* number of files; 0: as shard_bytes says */
    uint64_t shard_bytes;               /* a file gets no further sample when it is this large */
};

/* One sample: an encoded file, or pixels. */
struct ls_write_sample {
    const uint8_t *bytes;
    size_t size;
    const char *extension;       /* of a file: "jpg" ...; NULL: pixels */
    int channels, height, width; /* of a file: 0 if they are not known */
    int32_t label;
    int64_t number;            /* in the part, from 0 */
    const char *folder, *name; /* in the data set that it comes from; NULL: none */
};

struct ls_writer; /* opaque; starts with its ops */

struct ls_writer_ops {
    const char *name;
    bool takes_pixels; /* false: samples are files */
    bool is_sharded;   /* shards and shard_bytes are used */
    enum ls_status (*open)(const struct ls_write_plan *plan, struct ls_writer **w);
    enum ls_status (*put)(struct ls_writer *w, const struct ls_write_sample *sample);
    /* Completes and syncs the files. */
    enum ls_status (*finish)(struct ls_writer *w);
    void (*close)(struct ls_writer *w); /* also after finish */
};
struct ls_writer {
    const struct ls_writer_ops *ops;
};
extern const struct ls_writer_ops *const ls_writers[]; /* ends with NULL */

/* A file of a writer. put and close report an error. */
struct ls_out {
    char *path; /* owned */
    FILE *file;
    uint64_t bytes;
};
enum ls_status ls_out_open(struct ls_out *out, char *path); /* takes the path; NULL: out of memory */
enum ls_status ls_out_put(struct ls_out *out, const void *data, size_t size);
/* Writes zeros up to a multiple of `align`. */
enum ls_status ls_out_align(struct ls_out *out, size_t align);
/* Flushes, syncs and closes. */
enum ls_status ls_out_close(struct ls_out *out);
/* Closes without a sync; safe on a zeroed struct and after close. */
void ls_out_release(struct ls_out *out);

#endif
