#include "checkpoint/safetensors.h"
#include "base/files/file.h"
#include "base/log.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEADER_LIMIT 100000000u

static const struct {
    const char *name;
    size_t size;
} types[LS_ST_TYPES] = {[LS_ST_BOOL] = {"BOOL", 1},       [LS_ST_U8] = {"U8", 1},           [LS_ST_I8] = {"I8", 1},
                        [LS_ST_F8_E4M3] = {"F8_E4M3", 1}, [LS_ST_F8_E5M2] = {"F8_E5M2", 1}, [LS_ST_U16] = {"U16", 2},
                        [LS_ST_I16] = {"I16", 2},         [LS_ST_F16] = {"F16", 2},         [LS_ST_BF16] = {"BF16", 2},
                        [LS_ST_U32] = {"U32", 4},         [LS_ST_I32] = {"I32", 4},         [LS_ST_F32] = {"F32", 4},
                        [LS_ST_U64] = {"U64", 8},         [LS_ST_I64] = {"I64", 8},         [LS_ST_F64] = {"F64", 8}};

const char *ls_st_type_name(enum ls_st_type type)
{
    return types[type].name;
}

size_t ls_st_type_size(enum ls_st_type type)
{
    return types[type].size;
}

/* --- reading one entry -------------------------------------------------------------------------------- */

static enum ls_status read_type(const char *where, const char *name, const json_t *entry, enum ls_st_type *type)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    for (int i = 0; text && i < LS_ST_TYPES; i++)
        if (strcmp(types[i].name, text) == 0) {
            *type = (enum ls_st_type)i;
            return LS_OK;
        }
    return ls_fail(LS_BAD_INPUT, "%s: tensor %s: dtype %s is not supported (F32, F16, BF16, I64, ...)", where, name,
                   text ? text : "(missing)");
}

static enum ls_status read_shape(const char *where, const json_t *entry, struct ls_arena *strings,
                                 struct ls_st_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return ls_fail(LS_BAD_INPUT, "%s: tensor %s: shape must be a list of whole numbers", where, t->name);
    size_t rank = json_array_size(shape);
    int64_t *dim = ls_arena_take(strings, (rank + 1) * sizeof *dim);
    if (!dim)
        return LS_FAILED;
    t->count = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *d = json_array_get(shape, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return ls_fail(LS_BAD_INPUT, "%s: tensor %s: dimension %zu of its shape is not a whole number from 0",
                           where, t->name, i);
        dim[i] = json_integer_value(d);
        if (__builtin_mul_overflow(t->count, (uint64_t)dim[i], &t->count))
            return ls_fail(LS_BAD_INPUT, "%s: tensor %s: the number of elements of its shape overflows", where,
                           t->name);
    }
    t->rank = (int)rank;
    t->dim = dim;
    return LS_OK;
}

static enum ls_status read_place(const char *where, const json_t *entry, struct ls_st_tensor *t)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return ls_fail(LS_BAD_INPUT, "%s: tensor %s: data_offsets must be [begin, end]", where, t->name);
    int64_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from)
        return ls_fail(LS_BAD_INPUT, "%s: tensor %s: data_offsets [%lld, %lld]: expected 0 <= begin <= end", where,
                       t->name, (long long)from, (long long)to);
    uint64_t need;
    if (__builtin_mul_overflow(t->count, (uint64_t)types[t->type].size, &need) || need != (uint64_t)(to - from))
        return ls_fail(LS_BAD_INPUT, "%s: tensor %s: %lld bytes of data, but its shape and dtype %s need %s%llu", where,
                       t->name, (long long)(to - from), types[t->type].name, need < t->count ? "more than " : "",
                       (unsigned long long)need);
    t->begin = (uint64_t)from;
    t->bytes = need;
    return LS_OK;
}

static enum ls_status read_entry(const char *where, const char *name, const json_t *entry, struct ls_arena *strings,
                                 struct ls_st_tensor *t)
{
    *t = (struct ls_st_tensor){.name = ls_arena_strdup(strings, name)};
    if (!t->name)
        return LS_FAILED;
    if (!json_is_object(entry))
        return ls_fail(LS_BAD_INPUT, "%s: tensor %s: its entry must be an object with dtype, shape and data_offsets",
                       where, name);
    LS_TRY(read_type(where, name, entry, &t->type));
    LS_TRY(read_shape(where, entry, strings, t));
    return read_place(where, entry, t);
}

static enum ls_status read_metadata(const char *where, json_t *object, struct ls_safetensors *s)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return ls_fail(LS_BAD_INPUT, "%s: __metadata__ must be an object of strings", where);
    s->metadata = ls_alloc(json_object_size(object), sizeof *s->metadata);
    if (!s->metadata)
        return LS_FAILED;
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return ls_fail(LS_BAD_INPUT, "%s: __metadata__: the value of %s is not a string", where, key);
        struct ls_st_pair *pair = &s->metadata[s->n_metadata++];
        pair->key = ls_arena_strdup(&s->strings, key);
        pair->value = ls_arena_strdup(&s->strings, json_string_value(value));
        if (!pair->key || !pair->value)
            return LS_FAILED;
    }
    return LS_OK;
}

/* --- reading the file --------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct ls_st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static enum ls_status read_header(const char *where, json_t *header, struct ls_safetensors *s)
{
    const char *name;
    json_t *entry;
    s->tensors = ls_alloc(json_object_size(header), sizeof *s->tensors);
    if (!s->tensors)
        return LS_FAILED;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            LS_TRY(read_metadata(where, entry, s));
        else
            LS_TRY(read_entry(where, name, entry, &s->strings, &s->tensors[s->n_tensors++]));
    }
    qsort(s->tensors, (size_t)s->n_tensors, sizeof *s->tensors, by_place);
    return LS_OK;
}

/* Checks S2 and sets the data pointer of each tensor. */
static enum ls_status place_data(const char *where, const char *data, uint64_t size, struct ls_safetensors *s)
{
    uint64_t at = 0;
    for (int i = 0; i < s->n_tensors; i++) {
        struct ls_st_tensor *t = &s->tensors[i];
        if (t->begin != at)
            return ls_fail(LS_BAD_INPUT, "%s: tensor %s: its data begin at %llu where %llu was expected (%s)", where,
                           t->name, (unsigned long long)t->begin, (unsigned long long)at,
                           t->begin > at ? "a gap" : "an overlap");
        if (t->bytes > size - at)
            return ls_fail(LS_BAD_INPUT,
                           "%s: tensor %s: its data end at %llu, but only %llu bytes follow the header: the "
                           "file is truncated or damaged",
                           where, t->name, (unsigned long long)(at + t->bytes), (unsigned long long)size);
        t->data = data + at;
        at += t->bytes;
    }
    if (at != size)
        return ls_fail(LS_BAD_INPUT, "%s: %llu bytes follow the last tensor", where, (unsigned long long)(size - at));
    return LS_OK;
}

static enum ls_status load_json(const char *where, const char *text, size_t size, json_t **header)
{
    json_error_t error;
    if (size == 0 || text[0] != '{')
        return ls_fail(LS_BAD_INPUT, "%s: byte 8: the header must begin with '{': not a safetensors file", where);
    *header = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!*header)
        return ls_fail(LS_BAD_INPUT, "%s: byte %d: the header is not valid JSON: %s", where, 8 + error.position,
                       error.text);
    return LS_OK;
}

enum ls_status ls_safetensors_parse(const void *bytes, size_t size, const char *where, struct ls_safetensors *s)
{
    enum ls_status st = LS_OK;
    uint64_t n;
    json_t *header = NULL;
    *s = (struct ls_safetensors){0};
    if (size < sizeof n)
        return ls_fail(LS_BAD_INPUT, "%s: %zu bytes: too short for a safetensors file", where, size);
    memcpy(&n, bytes, sizeof n);
    if (n > HEADER_LIMIT)
        return ls_fail(LS_BAD_INPUT,
                       "%s: byte 0: a header of %llu bytes, more than the %u allowed: not a safetensors file", where,
                       (unsigned long long)n, HEADER_LIMIT);
    if (n > size - sizeof n)
        return ls_fail(LS_BAD_INPUT, "%s: the header has %llu bytes, but the file ends after %zu", where,
                       (unsigned long long)n, size);
    const char *text = (const char *)bytes + sizeof n;
    LS_TRY_GOTO(out, load_json(where, text, (size_t)n, &header));
    LS_TRY_GOTO(out, read_header(where, header, s));
    LS_TRY_GOTO(out, place_data(where, text + n, size - sizeof n - n, s));
out:
    json_decref(header);
    if (st != LS_OK)
        ls_safetensors_release(s);
    return st;
}

enum ls_status ls_safetensors_open(const char *path, struct ls_safetensors *s)
{
    size_t size;
    char why[LS_FILE_WHY];
    int fd = ls_file_open(path, &size, why);
    if (fd < 0)
        return ls_fail(LS_BAD_INPUT, "%s: %s", path, why);
    if (size < 8) {
        close(fd);
        return ls_fail(LS_BAD_INPUT, "%s: not a safetensors file: shorter than 8 bytes", path);
    }
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return ls_fail(LS_FAILED, "%s: cannot be mapped: %s", path, strerror(errno));
    enum ls_status st = ls_safetensors_parse(map, size, path, s);
    if (st != LS_OK) {
        munmap(map, size);
        return st;
    }
    s->map = map;
    s->map_bytes = size;
    return LS_OK;
}

void ls_safetensors_release(struct ls_safetensors *s)
{
    if (s->map)
        munmap(s->map, s->map_bytes);
    ls_free(s->tensors);
    ls_free(s->metadata);
    ls_arena_release(&s->strings);
    *s = (struct ls_safetensors){0};
}

/* --- access ------------------------------------------------------------------------------------------- */

const struct ls_st_tensor *ls_safetensors_find(const struct ls_safetensors *s, const char *name)
{
    for (int i = 0; i < s->n_tensors; i++)
        if (strcmp(s->tensors[i].name, name) == 0)
            return &s->tensors[i];
    return NULL;
}

const char *ls_safetensors_metadata(const struct ls_safetensors *s, const char *key)
{
    for (int i = 0; i < s->n_metadata; i++)
        if (strcmp(s->metadata[i].key, key) == 0)
            return s->metadata[i].value;
    return NULL;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent > 0)
        return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
}

enum ls_status ls_safetensors_f32(const struct ls_st_tensor *t, const char *where, float *values)
{
    const char *data = t->data;
    if (t->type == LS_ST_F32) {
        memcpy(values, data, t->bytes);
        return LS_OK;
    }
    if (t->type != LS_ST_F16 && t->type != LS_ST_BF16 && t->type != LS_ST_F64)
        return ls_fail(LS_BAD_INPUT, "%s: tensor %s: dtype %s where F32, F16, BF16 or F64 was expected", where, t->name,
                       types[t->type].name);
    for (uint64_t i = 0; i < t->count; i++) {
        uint16_t half;
        double wide;
        if (t->type == LS_ST_F64) {
            memcpy(&wide, data + 8 * i, sizeof wide);
            values[i] = (float)wide;
            continue;
        }
        memcpy(&half, data + 2 * i, sizeof half);
        values[i] = t->type == LS_ST_F16 ? from_half(half) : from_bits((uint32_t)half << 16);
    }
    return LS_OK;
}
