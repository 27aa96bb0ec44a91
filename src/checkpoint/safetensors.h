/* safetensors files: tensors by name, row-major, in one file that other programs read as well.
 *
 *   u64 N | N bytes of JSON {"__metadata__": {..}, name: {"dtype", "shape", "data_offsets"}} | data
 *
 * Reader, invariants of every file it accepts (tests cite them):
 *  S1  N <= 100,000,000 and 8 + N <= file size; the JSON is one object that begins at its first byte.
 *  S2  Sorted by offset, entries leave no hole and do not overlap; the last ends where the file ends.
 *  S3  Shape times element size, without overflow, is the entry's length.
 *  S4  No name stands twice; "__metadata__" maps strings to strings. */
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
    uint64_t count, begin, bytes; /* elements; place of the data after the header */
    const void *data;             /* reader: in the file's memory, perhaps unaligned. writer: values, or NULL */
};

struct ls_st_pair {
    const char *key, *value;
};

struct ls_safetensors {
    struct ls_arena strings;      /* names, shapes, metadata */
    struct ls_st_tensor *tensors; /* owned; in the order of their data */
    int n_tensors;
    struct ls_st_pair *metadata; /* owned */
    int n_metadata;
    void *map; /* owned mapping, NULL when parsed from memory */
    size_t map_bytes;
};

/* Map a file and check all of it but the values. LS_BAD_INPUT says file, place and what was expected. */
enum ls_status ls_safetensors_open(const char *path, struct ls_safetensors *s);
/* The same on bytes in memory, which must outlive *s; where names them in messages. */
enum ls_status ls_safetensors_parse(const void *bytes, size_t size, const char *where, struct ls_safetensors *s);
void ls_safetensors_release(struct ls_safetensors *s);
/* NULL when there is none. */
const struct ls_st_tensor *ls_safetensors_find(const struct ls_safetensors *s, const char *name);
const char *ls_safetensors_metadata(const struct ls_safetensors *s, const char *key);
/* All values as f32; LS_BAD_INPUT when the type is not a floating-point one of 2, 4 or 8 bytes. */
enum ls_status ls_safetensors_f32(const struct ls_st_tensor *t, const char *where, float *values);

/* Values of tensor i for the writer, t->bytes of them. */
typedef enum ls_status (*ls_st_fill)(void *context, int i, void *values);
/* Write durably, either all or nothing. tensors[]: name, type, rank, dim are read; data when not NULL, else
 * `fill` is asked. Data stand by falling element size, then name. *checksum (may be NULL): of all bytes of
 * the file. */
enum ls_status ls_safetensors_write(const char *path, const struct ls_st_pair *metadata, int n_metadata,
                                    const struct ls_st_tensor *tensors, int n, ls_st_fill fill, void *context,
                                    uint64_t *checksum);

#endif
