/* Files of about one size or of a given number, one after the other, for the writers of shards. */
#ifndef LS_DATA_WRITE_SHARDS_H
#define LS_DATA_WRITE_SHARDS_H

#include "data/write/write.h"

struct ls_shard_out {
    struct ls_write_plan plan;
    struct ls_out out;
    int64_t index;       /* of the current shard; -1: none yet */
    int64_t in_shard;    /* samples in it */
    const char *name;    /* of the part in file names */
    const char *end;     /* of file names */
    const void *trailer; /* at the end of each shard */
    size_t trailer_bytes;
};

/* Opens the next shard if this sample belongs there. */
enum ls_status ls_shard_out_turn(struct ls_shard_out *s, const struct ls_write_sample *sample);
/* Writes the trailer and closes the last shard. Sets *shards to their number. */
enum ls_status ls_shard_out_finish(struct ls_shard_out *s, int64_t *shards);

#endif
