/* A data set whose samples are byte ranges of large files, the shards (tar, TFRecord, LMDB). A format finds the shards
 * and scans them for samples once. The index is kept beside the data or in the cache, and is used while names, sizes
 * and times of the shards are the same. Samples are then read in any order, so several workers may share the shards. */
#ifndef LS_DATA_FORMATS_RECORDS_H
#define LS_DATA_FORMATS_RECORDS_H

#include "base/memory.h"
#include "data/dataset.h"
#include "data/records/labels.h"

struct ls_shard {
    char *path; /* owned */
    uint64_t size;
    int64_t changed; /* nanoseconds since 1970 */
    int fd;
};

/* A record of a shard, and the encoded image within it. */
struct ls_record_entry {
    uint64_t offset; /* of the record in the shard */
    uint64_t name;   /* offset in `names` */
    uint32_t bytes;  /* of the record */
    uint32_t image, image_bytes;
    uint32_t shard;
    int32_t label;
    uint16_t channels, height, width; /* of planes of bytes; 0: the image is encoded */
    uint16_t unused;                  /* 0 */
};

struct ls_records {
    struct ls_dataset base;
    struct ls_arena arena;
    struct ls_shard *shards; /* owned */
    int n_shards;
    struct ls_record_entry *entry; /* owned; base.info.count of them */
    char *names;                   /* owned; the names of the samples, each ended by a 0 */
    size_t names_size;
    const char **class_names; /* owned array */
    const char **class_ids;   /* owned array, or NULL */
    /* Tests a record that was read, `bytes` bytes and `behind` more. NULL: nothing to test. */
    bool (*verify)(const uint8_t *record, size_t bytes);
    uint32_t behind;
};

/* --- scanning --------------------------------------------------------------------------------------------------------- */

/* The samples of one shard, filled by the scan of a format. */
struct ls_shard_scan {
    const char *path;
    int fd;
    uint64_t size;
    struct ls_record_entry *entry; /* owned */
    int64_t count, room;
    uint64_t *label; /* owned; of each sample, the offset of its label in `text` */
    char *text;      /* owned; names and labels */
    size_t used, text_room;
    int64_t without_image; /* samples that have no image, which are left out */
    bool is_unended;       /* the end mark of the format is missing: the file may be cut off */
    char why[300];         /* of a failure */
};
/* Reads bytes of the shard. False: the shard is shorter, or cannot be read; `why` says so. */
bool ls_scan_read(struct ls_shard_scan *s, uint64_t offset, void *to, size_t bytes);
/* Writes the cause, after "SHARD: at byte OFFSET: ", and returns LS_BAD_INPUT. */
enum ls_status ls_scan_refuse(struct ls_shard_scan *s, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The name of e is ignored: it becomes `name`. */
enum ls_status ls_scan_add(struct ls_shard_scan *s, const struct ls_record_entry *e, const char *name,
                           const char *label);
/* Frees what a scan has collected. */
void ls_scan_release(struct ls_shard_scan *s);

/* --- opening ------------------------------------------------------------------------------------------------------------ */

struct ls_record_format {
    const char *what; /* "tar", for messages */
    bool (*is_shard)(const char *name);
    enum ls_status (*scan)(struct ls_shard_scan *s);
    bool (*verify)(const uint8_t *record, size_t bytes);
    uint32_t behind;
    bool counts_classes; /* a label that is a number is a position in LS_CLASS_FILE, not the name of a class */
};

/* Tests whether spec is a shard, or a folder with shards for training in one of the known places (shards.c). */
bool ls_records_recognise(const char *spec, const struct ls_record_format *format);
enum ls_status ls_records_open(const char *spec, const char *part, const struct ls_record_format *format,
                               struct ls_dataset **set);
void ls_records_close(struct ls_dataset *set);
enum ls_status ls_records_read(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                               int32_t *label);
enum ls_status ls_records_encoded(struct ls_dataset *set, int64_t i, struct ls_image *image, const uint8_t **bytes,
                                  size_t *size);
int32_t ls_records_label(const struct ls_dataset *set, int64_t i);
void ls_records_where(const struct ls_dataset *set, int64_t i, char *text, size_t room);
void ls_records_identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id);
/* What the formats of records have in common, for struct ls_dataset_ops. */
#define LS_RECORDS_OPS                                                                                            \
    .close = ls_records_close, .read = ls_records_read, .encoded = ls_records_encoded, .label = ls_records_label, \
    .where = ls_records_where, .identify = ls_records_identify

/* shards.c: the sorted paths of the shards of a part; *whole: both parts have the same. */
enum ls_status ls_shards_find(const char *spec, bool test, bool (*is_shard)(const char *name), char ***paths,
                              int *count, bool *whole);
void ls_shards_free(char **paths, int count);

/* class_file.c: gives the classes the names and the order of LS_CLASS_FILE, if there is one beside the shards. */
#define LS_CLASS_FILE "lockstep-classes.txt"
enum ls_status ls_records_name_classes(struct ls_records *r, bool positions);

/* record_index.c. load returns false if there is no index for these shards. Neither reports an error: an index can be made
 * again. `where` describes the data: a folder or a file. */
bool ls_record_index_load(struct ls_records *r, const char *where, const char *part);
void ls_record_index_save(const struct ls_records *r, const char *where, const char *part);

#endif
