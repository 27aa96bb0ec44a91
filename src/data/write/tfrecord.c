/* Writes TFRecord files with the features of ImageNet's: train-00000-of-00128, validation-00000-of-00128. The class is
 * image/class/synset (its id, or else its name), image/class/text (its name) and image/class/label, which begins at 1 as
 * ImageNet's do. */
#include "base/files/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/write/shards.h"
#include "data/write/writers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEAD = 12, TAIL = 4, LONGEST = 10 /* bytes of a varint */, FEATURES = 16 };

struct tfrecord {
    struct ls_writer base;
    struct ls_shard_out shards;
    uint8_t *message; /* owned; one record */
    size_t used, room;
};

static enum ls_status open_tfrecord(const struct ls_write_plan *plan, struct ls_writer **w)
{
    struct tfrecord *t = ls_alloc(1, sizeof *t);
    if (!t)
        return LS_FAILED;
    const char *name = strcmp(plan->part, "val") == 0 ? "validation" : *plan->part ? plan->part : "data";
    t->shards = (struct ls_shard_out){.plan = *plan, .index = -1, .name = name, .end = "", .trailer = ""};
    *w = &t->base;
    return LS_OK;
}

/* --- the message ------------------------------------------------------------------------------------------------------ */

static size_t varint(uint64_t value, uint8_t to[LONGEST])
{
    size_t n = 0;
    for (; value > 127; value >>= 7)
        to[n++] = (uint8_t)(value | 128);
    to[n++] = (uint8_t)value;
    return n;
}

static size_t varint_bytes(uint64_t value)
{
    uint8_t none[LONGEST];
    return varint(value, none);
}

/* Bytes of a field of that size with its tag and length; the numbers of all fields here are below 16. */
static size_t field_bytes(size_t size)
{
    return 1 + varint_bytes(size) + size;
}

static void put_bytes(struct tfrecord *t, const void *data, size_t size)
{
    memcpy(t->message + t->used, data, size);
    t->used += size;
}

static void put_tag(struct tfrecord *t, int field, size_t size)
{
    uint8_t head[1 + LONGEST];
    head[0] = (uint8_t)(field << 3 | 2);
    put_bytes(t, head, 1 + varint(size, head + 1));
}

struct feature {
    const char *key;
    const void *bytes; /* NULL: a number */
    size_t size;       /* or the number */
};

/* The sizes of the messages within one another: value, list, Feature, entry of the map. */
struct sizes {
    size_t value, list, feature, entry;
};

static struct sizes measure(const struct feature *f)
{
    struct sizes s;
    s.value = f->bytes ? f->size : varint_bytes(f->size);
    s.list = f->bytes ? field_bytes(s.value) : 1 + s.value;
    s.feature = field_bytes(s.list);
    s.entry = field_bytes(strlen(f->key)) + field_bytes(s.feature);
    return s;
}

/* Writes a feature up to its value; a number with its value. */
static void put_feature(struct tfrecord *t, const struct feature *f)
{
    struct sizes s = measure(f);
    uint8_t number[1 + LONGEST];
    put_tag(t, 1, s.entry);
    put_tag(t, 1, strlen(f->key));
    put_bytes(t, f->key, strlen(f->key));
    put_tag(t, 2, s.feature);
    put_tag(t, f->bytes ? 1 : 3, s.list);
    if (f->bytes) {
        put_tag(t, 1, s.value);
    } else {
        number[0] = 1 << 3;
        put_bytes(t, number, 1 + varint(f->size, number + 1));
    }
}

static int list_features(const struct tfrecord *t, const struct ls_write_sample *s, struct feature f[FEATURES])
{
    const struct ls_dataset_info *info = t->shards.plan.info;
    const char *format = strcmp(s->extension, "jpg") == 0   ? "JPEG"
                         : strcmp(s->extension, "png") == 0 ? "PNG"
                                                            : s->extension;
    const char *text = info->class_names ? info->class_names[s->label] : NULL;
    const char *synset = info->class_ids ? info->class_ids[s->label] : text;
    int n = 0;
    f[n++] = (struct feature){"image/height", NULL, (size_t)s->height};
    f[n++] = (struct feature){"image/width", NULL, (size_t)s->width};
    f[n++] = (struct feature){"image/colorspace", "RGB", 3};
    f[n++] = (struct feature){"image/channels", NULL, 3};
    f[n++] = (struct feature){"image/class/label", NULL, (size_t)s->label + 1};
    if (synset)
        f[n++] = (struct feature){"image/class/synset", synset, strlen(synset)};
    if (text)
        f[n++] = (struct feature){"image/class/text", text, strlen(text)};
    f[n++] = (struct feature){"image/format", format, strlen(format)};
    if (s->name)
        f[n++] = (struct feature){"image/filename", s->name, strlen(s->name)};
    f[n++] = (struct feature){"image/encoded", s->bytes, s->size};
    return n;
}

static enum ls_status compose(struct tfrecord *t, const struct ls_write_sample *s, size_t *whole)
{
    struct feature f[FEATURES];
    int n = list_features(t, s, f);
    size_t features = 0;
    for (int i = 0; i < n; i++)
        features += field_bytes(measure(&f[i]).entry);
    *whole = field_bytes(features);
    if (*whole + HEAD + TAIL > t->room) {
        ls_free(t->message);
        t->room = 2 * *whole + HEAD + TAIL;
        t->message = ls_alloc(t->room, 1);
        if (!t->message)
            return LS_FAILED;
    }
    t->used = HEAD;
    put_tag(t, 1, features);
    for (int i = 0; i < n; i++) {
        put_feature(t, &f[i]);
        if (f[i].bytes)
            put_bytes(t, f[i].bytes, f[i].size);
    }
    return LS_OK;
}

static void put_little(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static enum ls_status put(struct ls_writer *w, const struct ls_write_sample *s)
{
    struct tfrecord *t = (struct tfrecord *)w;
    size_t whole;
    LS_TRY(ls_shard_out_turn(&t->shards, s));
    LS_TRY(compose(t, s, &whole));
    put_little(t->message, whole, 8);
    put_little(t->message + 8, ls_crc32c_masked(t->message, 8), 4);
    put_little(t->message + HEAD + whole, ls_crc32c_masked(t->message + HEAD, whole), 4);
    return ls_out_put(&t->shards.out, t->message, HEAD + whole + TAIL);
}

/* The number of shards is part of their names, and known at the end. */
static enum ls_status finish(struct ls_writer *w)
{
    struct ls_shard_out *s = &((struct tfrecord *)w)->shards;
    int64_t shards;
    LS_TRY(ls_shard_out_finish(s, &shards));
    for (int64_t i = 0; i < shards; i++) {
        char *from = ls_format("%s/%s-%05" PRId64, s->plan.folder, s->name, i);
        char *to = ls_format("%s/%s-%05" PRId64 "-of-%05" PRId64, s->plan.folder, s->name, i, shards);
        enum ls_status st = from && to ? LS_OK : LS_FAILED;
        if (st == LS_OK && rename(from, to) != 0)
            st = ls_fail(LS_FAILED, "%s: cannot be renamed to %s: %s", from, to, strerror(errno));
        ls_free(from);
        ls_free(to);
        LS_TRY(st);
    }
    return LS_OK;
}

static void close_tfrecord(struct ls_writer *w)
{
    struct tfrecord *t = (struct tfrecord *)w;
    ls_out_release(&t->shards.out);
    ls_free(t->message);
    ls_free(t);
}

const struct ls_writer_ops ls_writer_tfrecord = {
    .name = "tfrecord",
    .is_sharded = true,
    .open = open_tfrecord,
    .put = put,
    .finish = finish,
    .close = close_tfrecord,
};
