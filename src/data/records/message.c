#include "data/records/message.h"

bool ls_message_varint(struct ls_bytes *from, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && from->size > 0; shift += 7) {
        uint8_t byte = *from->data++;
        from->size--;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool skip(struct ls_bytes *from, size_t n)
{
    if (n > from->size)
        return false;
    from->data += n;
    from->size -= n;
    return true;
}

bool ls_message_field(struct ls_bytes *from, struct ls_message_field *f)
{
    uint64_t tag;
    if (!ls_message_varint(from, &tag) || tag >> 32)
        return false;
    *f = (struct ls_message_field){.number = (uint32_t)(tag >> 3), .type = (enum ls_message_type)(tag & 7)};
    switch (f->type) {
    case LS_MESSAGE_NUMBER:
        return ls_message_varint(from, &f->value);
    case LS_MESSAGE_FIXED64:
        return skip(from, 8);
    case LS_MESSAGE_FIXED32:
        return skip(from, 4);
    case LS_MESSAGE_BYTES:
        if (!ls_message_varint(from, &f->value) || f->value > from->size)
            return false;
        f->bytes = (struct ls_bytes){from->data, (size_t)f->value};
        return skip(from, (size_t)f->value);
    }
    return false;
}
