/* What `lockstep data convert` does with each sample. */
#ifndef LS_CMD_DATA_CONVERT_H
#define LS_CMD_DATA_CONVERT_H

#include "data/write/write.h"
#include "report/console.h"

struct ls_conversion {
    const struct ls_writer_ops *writer;
    int height, width; /* exact size; 0: see shorter */
    int shorter;       /* size of the shorter side; 0: images keep their size */
    int quality;       /* of JPEG; 0: files are copied unchanged where that is possible */
    bool pixels;       /* store pixels, not files */
    bool files;        /* store files, not pixels; neither: as the source has them, if the format can */
    bool skips_bad;
    int64_t shards;
    uint64_t shard_bytes;
    int threads;
};

/* The classes of the data set that is written: those of its training part. */
struct ls_conversion_part {
    struct ls_dataset *set; /* owned by the caller */
    const char *name;       /* "train", "val" or "" */
    const char *said;       /* for progress: "writing train" */
    const int32_t *class;   /* class of the set -> class that is written; NULL: the same */
    const struct ls_dataset_info *classes;
    int64_t written, left_out; /* results: samples */
    uint64_t bytes;            /* result */
};

enum ls_status ls_convert_part(const struct ls_conversion *c, const char *folder, struct ls_conversion_part *p,
                               struct ls_console *console);

#endif
