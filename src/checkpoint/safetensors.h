/* safetensors files: named, row-major tensors in one file.
 *
 *   u64 N | N bytes of JSON {"__metadata__": {..}, name: {"dtype", "shape", "data_offsets"}} | data
 *
 * Invariants of every file that the reader accepts (tests cite them):
 *  S1  N <= 100,000,000 and 8 + N <= file size; the JSON is one object and starts at its first byte.
 *  S2  Sorted by offset, entries have no gaps and no overlaps; the last one ends at the end of the file.
 *  S3  The element count times the element size, without overflow, is the length of the entry.
 *  S4  No name occurs twice; "__metadata__" maps strings to strings. */
#ifndef LS_CHECKPOINT_SAFETENSORS_H
#define LS_CHECKPOINT_SAFETENSORS_H

#include "base/memory.h"
#include "base/status.h"
#include <stdint.h>

enum ls_st_type {
    LS_ST_BOOL,
    LS_ST_U8,
    LS_ST_I8,
    LS_ST_F8_E4M3,
    LS_ST_F8_E5M2,
    LS_ST_U16,
    LS_ST_I16,
    LS_ST_F16,
    LS_ST_BF16,
    LS_ST_U32,
    LS_ST_I32,
    LS_ST_F32,
    LS_ST_U64,
    LS_ST_I64,
    LS_ST_F64,
    LS_ST_TYPES
};
const char *ls_st_type_name(enum ls_st_type type);
size_t ls_st_type_size(enum ls_st_type type);

struct ls_st_tensor {
    const char *name;
    enum ls_st_type type;
    int rank;
    const int64_t *dim;
    uint64_t count, begin, bytes; /* number of elements; offset of the data after the header; size */
    const void *data;             /* reader: points into the mapping, may be unaligned. writer: values, or NULL */
};

struct ls_st_pair {
    const char *key, *value;
};

struct ls_safetensors {
    struct ls_arena strings;      /* names, shapes, metadata */
    struct ls_st_tensor *tensors; /* owned; sorted by offset */
    int n_tensors;
    struct ls_st_pair *metadata; /* owned */
    int n_metadata;
    void *map; /* owned mapping; NULL: parsed from memory */
    size_t map_bytes;
};

/* Maps a file and checks everything except the values. */
enum ls_status ls_safetensors_open(const char *path, struct ls_safetensors *s);
/* Parses bytes in memory, which must outlive *s. `where` names them in messages. */
enum ls_status ls_safetensors_parse(const void *bytes, size_t size, const char *where, struct ls_safetensors *s);
void ls_safetensors_release(struct ls_safetensors *s);
/* Both return NULL if there is no such entry. */
const struct ls_st_tensor *ls_safetensors_find(const struct ls_safetensors *s, const char *name);
const char *ls_safetensors_metadata(const struct ls_safetensors *s, const char *key);
/* Converts all values to f32. LS_BAD_INPUT if the type is not F16, BF16, F32 or F64. */
enum ls_status ls_safetensors_f32(const struct ls_st_tensor *t, const char *where, float *values);

/* Provides the values of tensor i to the writer, t->bytes bytes. */
typedef enum ls_status (*ls_st_fill)(void *context, int i, void *values);
/* Writes a file atomically and durably. Of tensors[], reads name, type, rank, dim and data; if data is NULL, calls `fill`.
 * Data is sorted by decreasing element size, then by name. *checksum gets the checksum of the whole file; it may be NULL. */
enum ls_status ls_safetensors_write(const char *path, const struct ls_st_pair *metadata, int n_metadata,
                                    const struct ls_st_tensor *tensors, int n, ls_st_fill fill, void *context,
                                    uint64_t *checksum);

#endif
