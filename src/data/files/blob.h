/* The whole contents of a file in memory, decompressed. */
#ifndef LS_DATA_FORMATS_BLOB_H
#define LS_DATA_FORMATS_BLOB_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct ls_blob {
    uint8_t *bytes; /* owned */
    size_t size;
};

/* Reads a file. Recognises gzip by its first bytes and decompresses it. */
enum ls_status ls_blob_load(const char *path, struct ls_blob *blob);
/* Decompresses one gzip member and checks its length and CRC. Data after it is an error. name: for messages. */
enum ls_status ls_blob_gunzip(const uint8_t *bytes, size_t size, const char *name, struct ls_blob *blob);
void ls_blob_release(struct ls_blob *blob);

#endif
