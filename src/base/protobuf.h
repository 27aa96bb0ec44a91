/* An encoder of protobuf messages. Fields are appended in any order to one growing buffer. A message within a message stands
 * between ls_pb_open and ls_pb_close. After a failed allocation, which is reported once, `failed` is set and the contents are
 * undefined. */
#ifndef LS_BASE_PROTOBUF_H
#define LS_BASE_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_pb {
    uint8_t *bytes; /* owned; freed by ls_pb_release */
    size_t size, room;
    bool failed;
};

void ls_pb_release(struct ls_pb *pb);
/* Empties the buffer and keeps its memory. */
void ls_pb_clear(struct ls_pb *pb);

/* int32, int64, bool and enum fields. */
void ls_pb_whole(struct ls_pb *pb, int field, int64_t value);
void ls_pb_double(struct ls_pb *pb, int field, double value);
void ls_pb_float(struct ls_pb *pb, int field, float value);
/* The key and the length of a field whose `size` bytes the caller writes elsewhere. */
void ls_pb_head(struct ls_pb *pb, int field, uint64_t size);
void ls_pb_bytes(struct ls_pb *pb, int field, const void *data, size_t size);
/* A string must be UTF-8: any other byte is written as \xHH. */
void ls_pb_text(struct ls_pb *pb, int field, const char *text);
/* A packed field: one length for all values. */
void ls_pb_doubles(struct ls_pb *pb, int field, const double *values, int count);
/* Begins a message; returns the mark that ls_pb_close takes. */
size_t ls_pb_open(struct ls_pb *pb, int field);
void ls_pb_close(struct ls_pb *pb, size_t mark);

#endif
