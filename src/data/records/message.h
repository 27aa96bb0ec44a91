/* The fields of a protobuf message, one after the other. */
#ifndef LS_DATA_FORMATS_MESSAGE_H
#define LS_DATA_FORMATS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of a message; data NULL: none. */
struct ls_bytes {
    const uint8_t *data;
    size_t size;
};

enum ls_message_type { LS_MESSAGE_NUMBER = 0, LS_MESSAGE_FIXED64 = 1, LS_MESSAGE_BYTES = 2, LS_MESSAGE_FIXED32 = 5 };

struct ls_message_field {
    uint32_t number;
    enum ls_message_type type;
    uint64_t value;        /* NUMBER */
    struct ls_bytes bytes; /* BYTES */
};

/* Each takes from the front. False: the bytes are no such thing. */
bool ls_message_varint(struct ls_bytes *from, uint64_t *value);
bool ls_message_field(struct ls_bytes *from, struct ls_message_field *f);

#endif
