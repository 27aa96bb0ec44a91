/* Writes TFRecord files with the features of ImageNet's: train-00000-of-00128, validation-00000-of-00128. The class is
 * image/class/synset (its id, or else its name), image/class/text (its name) and image/class/label, which begins at 1 as
 * ImageNet's do. */
#include "base/files/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/protobuf.h"
#include "data/write/shards.h"
#include "data/write/writers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEAD = 12, TAIL = 4 };

struct tfrecord {
    struct ls_writer base;
    struct ls_shard_out shards;
    struct ls_pb message; /* of the current record */
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

/* Opens a feature up to its list of values (field `kind` of Feature: 1 bytes, 3 whole numbers). */
struct feature {
    size_t entry, feature, list;
};

static struct feature begin_feature(struct ls_pb *pb, const char *key, int kind)
{
    struct feature f;
    f.entry = ls_pb_open(pb, 1);
    ls_pb_bytes(pb, 1, key, strlen(key));
    f.feature = ls_pb_open(pb, 2);
    f.list = ls_pb_open(pb, kind);
    return f;
}

static void end_feature(struct ls_pb *pb, const struct feature *f)
{
    ls_pb_close(pb, f->list);
    ls_pb_close(pb, f->feature);
    ls_pb_close(pb, f->entry);
}

static void put_number(struct ls_pb *pb, const char *key, int64_t value)
{
    struct feature f = begin_feature(pb, key, 3);
    ls_pb_whole(pb, 1, value);
    end_feature(pb, &f);
}

static void put_bytes(struct ls_pb *pb, const char *key, const void *bytes, size_t size)
{
    struct feature f = begin_feature(pb, key, 1);
    ls_pb_bytes(pb, 1, bytes, size);
    end_feature(pb, &f);
}

/* NULL: the sample has no such feature. */
static void put_text(struct ls_pb *pb, const char *key, const char *text)
{
    if (text)
        put_bytes(pb, key, text, strlen(text));
}

static void compose(struct ls_pb *pb, const struct ls_dataset_info *info, const struct ls_write_sample *s)
{
    const char *format = strcmp(s->extension, "jpg") == 0   ? "JPEG"
                         : strcmp(s->extension, "png") == 0 ? "PNG"
                                                            : s->extension;
    const char *text = info->class_names ? info->class_names[s->label] : NULL;
    ls_pb_clear(pb);
    size_t features = ls_pb_open(pb, 1);
    put_number(pb, "image/height", s->height);
    put_number(pb, "image/width", s->width);
    put_text(pb, "image/colorspace", "RGB");
    put_number(pb, "image/channels", 3);
    put_number(pb, "image/class/label", (int64_t)s->label + 1);
    put_text(pb, "image/class/synset", info->class_ids ? info->class_ids[s->label] : text);
    put_text(pb, "image/class/text", text);
    put_text(pb, "image/format", format);
    put_text(pb, "image/filename", s->name);
    put_bytes(pb, "image/encoded", s->bytes, s->size);
    ls_pb_close(pb, features);
}

static void put_little(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static enum ls_status put(struct ls_writer *w, const struct ls_write_sample *s)
{
    struct tfrecord *t = (struct tfrecord *)w;
    uint8_t head[HEAD], tail[TAIL];
    LS_TRY(ls_shard_out_turn(&t->shards, s));
    compose(&t->message, t->shards.plan.info, s);
    if (t->message.failed)
        return LS_FAILED;
    put_little(head, t->message.size, 8);
    put_little(head + 8, ls_crc32c_masked(head, 8), 4);
    put_little(tail, ls_crc32c_masked(t->message.bytes, t->message.size), 4);
    LS_TRY(ls_out_put(&t->shards.out, head, HEAD));
    LS_TRY(ls_out_put(&t->shards.out, t->message.bytes, t->message.size));
    return ls_out_put(&t->shards.out, tail, TAIL);
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
    ls_pb_release(&t->message);
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
