/* Packed files: the samples of one part of a data set in one file, which is mapped into memory.
 *
 *     head (256 bytes)   samples   index: entries, names of samples, names of classes, ids of classes
 *
 * Numbers are little-endian. A sample begins at a multiple of 64 bytes and is a file, such as a JPEG, or rows of pixels. The
 * names are texts that end with a 0. The name of a sample is two texts, its folder and its name in the data set that it comes
 * from; both are empty if that has no files. The names of samples end with one more 0. The last byte of the file is the last
 * of the index, so that a file that is cut off is recognised. */
#ifndef LS_DATA_FORMATS_PACKED_H
#define LS_DATA_FORMATS_PACKED_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

#define LS_PACKED_MAGIC "LSPACKED"
enum { LS_PACKED_VERSION = 1, LS_PACKED_ALIGN = 64 };

struct ls_packed_head {
    char magic[8];
    uint32_t version;
    uint32_t head_crc; /* CRC-32C of the head with this field 0 */
    uint64_t samples, classes;
    uint64_t index;                  /* offset */
    uint64_t name_bytes;             /* of the names of samples */
    uint64_t class_bytes;            /* of the names of classes, and of their ids */
    uint32_t index_crc;              /* CRC-32C of the index */
    uint32_t has_ids;                /* 1: the ids of the classes follow their names */
    uint32_t has_names;              /* 0: classes have no names */
    int32_t channels, height, width; /* of all images; height = width = 0: various */
    float mean[4], deviation[4];
    uint8_t unused[144];
};
_Static_assert(sizeof(struct ls_packed_head) == 256, "the head has no gaps");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packed files are little-endian");

struct ls_packed_entry {
    uint64_t offset, name; /* name: offset in the names */
    uint32_t bytes, crc;   /* CRC-32C of the sample */
    int32_t label;
    uint16_t height, width; /* 0: not known */
    uint8_t channels;       /* of pixels; 0: the sample is a file */
    uint8_t unused[7];
};
_Static_assert(sizeof(struct ls_packed_entry) == 40, "entries have no gaps");

/* What a file holds; all pointers lead into it. */
struct ls_packed_view {
    struct ls_packed_head head;
    const struct ls_packed_entry *entry;
    const char *names, *class_names; /* class_names: of has_names, then of has_ids */
};

/* Checks head and index of a file in memory, which is aligned to 8 bytes. path: for messages. */
enum ls_status ls_packed_parse(const uint8_t *bytes, size_t size, const char *path, struct ls_packed_view *view);
/* Writes the two checksums into the head, which describes this index. */
void ls_packed_seal(struct ls_packed_head *head, const void *index, size_t index_bytes);

#endif
