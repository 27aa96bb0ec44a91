/* Example.features = 1; Features.feature = 1, a map: key = 1, Feature = 2; Feature: bytes_list = 1, int64_list = 3; either
 * list: value = 1, where numbers may be packed. */
#include "data/formats/example.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

struct field {
    uint32_t number;
    int type;
    uint64_t value;        /* VARINT */
    struct ls_bytes bytes; /* LENGTH */
};

static bool take_varint(struct ls_bytes *from, uint64_t *value)
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

/* Takes the next field of a message. */
static bool take_field(struct ls_bytes *from, struct field *f)
{
    uint64_t tag;
    if (!take_varint(from, &tag) || tag >> 32)
        return false;
    *f = (struct field){.number = (uint32_t)(tag >> 3), .type = (int)(tag & 7)};
    switch (f->type) {
    case VARINT:
        return take_varint(from, &f->value);
    case FIXED64:
        return skip(from, 8);
    case FIXED32:
        return skip(from, 4);
    case LENGTH:
        if (!take_varint(from, &f->value) || f->value > from->size)
            return false;
        f->bytes = (struct ls_bytes){from->data, (size_t)f->value};
        return skip(from, (size_t)f->value);
    default:
        return false;
    }
}

/* The first value of a list of bytes or numbers. */
static bool take_value(struct ls_bytes list, struct ls_bytes *bytes, bool *has_number, int64_t *number)
{
    struct field f;
    while (list.size > 0) {
        if (!take_field(&list, &f))
            return false;
        if (f.number != 1)
            continue;
        uint64_t value = f.value;
        if (f.type == LENGTH && has_number && f.bytes.size > 0 && !take_varint(&f.bytes, &value))
            return false;
        if (bytes && f.type == LENGTH)
            *bytes = f.bytes;
        if (has_number) {
            *has_number = true;
            *number = (int64_t)value;
        }
        return true;
    }
    return true;
}

static bool is_key(struct ls_bytes key, const char *text)
{
    return key.size == strlen(text) && memcmp(key.data, text, key.size) == 0;
}

static bool take_feature(struct ls_bytes key, struct ls_bytes feature, struct ls_example *e)
{
    struct field f;
    struct ls_bytes *bytes = is_key(key, "image/encoded")        ? &e->image
                             : is_key(key, "image/class/synset") ? &e->synset
                             : is_key(key, "image/filename")     ? &e->filename
                                                                 : NULL;
    bool label = is_key(key, "image/class/label");
    while (feature.size > 0) {
        if (!take_field(&feature, &f))
            return false;
        if (bytes && f.number == 1 && f.type == LENGTH && !take_value(f.bytes, bytes, NULL, NULL))
            return false;
        if (label && f.number == 3 && f.type == LENGTH && !take_value(f.bytes, NULL, &e->has_label, &e->label))
            return false;
    }
    return true;
}

static bool take_entry(struct ls_bytes entry, struct ls_example *e)
{
    struct ls_bytes key = {0}, feature = {0};
    struct field f;
    while (entry.size > 0) {
        if (!take_field(&entry, &f))
            return false;
        if (f.type == LENGTH && f.number == 1)
            key = f.bytes;
        if (f.type == LENGTH && f.number == 2)
            feature = f.bytes;
    }
    return !key.data || take_feature(key, feature, e);
}

bool ls_example_parse(const uint8_t *data, size_t size, struct ls_example *e)
{
    struct ls_bytes message = {data, size};
    struct field f;
    *e = (struct ls_example){0};
    while (message.size > 0) {
        if (!take_field(&message, &f))
            return false;
        for (struct ls_bytes features = f.number == 1 ? f.bytes : (struct ls_bytes){0}; features.size > 0;) {
            struct field entry;
            if (!take_field(&features, &entry) ||
                (entry.number == 1 && entry.type == LENGTH && !take_entry(entry.bytes, e)))
                return false;
        }
    }
    return true;
}
