/* A file's whole content in memory, decompressed. */
#ifndef LS_DATA_FORMATS_BLOB_H
#define LS_DATA_FORMATS_BLOB_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct ls_blob {
    uint8_t *bytes; /* owned */
    size_t size;
};

/* Read a file; gzip is recognised by its first bytes and decompressed. */
enum ls_status ls_blob_load(const char *path, struct ls_blob *blob);
/* One gzip member, checked against its own length and CRC; anything after it is an error. name: for messages.
 */
enum ls_status ls_blob_gunzip(const uint8_t *bytes, size_t size, const char *name, struct ls_blob *blob);
void ls_blob_release(struct ls_blob *blob);

#endif
