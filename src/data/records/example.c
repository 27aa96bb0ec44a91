/* Example.features = 1; Features.feature = 1, a map: key = 1, Feature = 2; Feature: bytes_list = 1, int64_list = 3; either
 * list: value = 1, where numbers may be packed. */
#include "data/records/example.h"

#include <string.h>

/* The first value of a list of bytes or numbers. */
static bool take_value(struct ls_bytes list, struct ls_bytes *bytes, bool *has_number, int64_t *number)
{
    struct ls_message_field f;
    while (list.size > 0) {
        if (!ls_message_field(&list, &f))
            return false;
        if (f.number != 1)
            continue;
        uint64_t value = f.value;
        if (f.type == LS_MESSAGE_BYTES && has_number && f.bytes.size > 0 && !ls_message_varint(&f.bytes, &value))
            return false;
        if (bytes && f.type == LS_MESSAGE_BYTES)
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
    struct ls_message_field f;
    struct ls_bytes *bytes = is_key(key, "image/encoded")        ? &e->image
                             : is_key(key, "image/class/synset") ? &e->synset
                             : is_key(key, "image/filename")     ? &e->filename
                                                                 : NULL;
    bool label = is_key(key, "image/class/label");
    while (feature.size > 0) {
        if (!ls_message_field(&feature, &f))
            return false;
        if (bytes && f.number == 1 && f.type == LS_MESSAGE_BYTES && !take_value(f.bytes, bytes, NULL, NULL))
            return false;
        if (label && f.number == 3 && f.type == LS_MESSAGE_BYTES &&
            !take_value(f.bytes, NULL, &e->has_label, &e->label))
            return false;
    }
    return true;
}

static bool take_entry(struct ls_bytes entry, struct ls_example *e)
{
    struct ls_bytes key = {0}, feature = {0};
    struct ls_message_field f;
    while (entry.size > 0) {
        if (!ls_message_field(&entry, &f))
            return false;
        if (f.type == LS_MESSAGE_BYTES && f.number == 1)
            key = f.bytes;
        if (f.type == LS_MESSAGE_BYTES && f.number == 2)
            feature = f.bytes;
    }
    return !key.data || take_feature(key, feature, e);
}

bool ls_example_parse(const uint8_t *data, size_t size, struct ls_example *e)
{
    struct ls_bytes message = {data, size};
    struct ls_message_field f;
    *e = (struct ls_example){0};
    while (message.size > 0) {
        if (!ls_message_field(&message, &f))
            return false;
        for (struct ls_bytes features = f.number == 1 ? f.bytes : (struct ls_bytes){0}; features.size > 0;) {
            struct ls_message_field entry;
            if (!ls_message_field(&features, &entry) ||
                (entry.number == 1 && entry.type == LS_MESSAGE_BYTES && !take_entry(entry.bytes, e)))
                return false;
        }
    }
    return true;
}
