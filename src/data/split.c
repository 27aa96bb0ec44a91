/* A part of a data set of any format, for --val-split. A sample belongs to the validation part if the hash of its identity is
 * below a bound: of its path within the data set, else of its bytes, else of its number. So a sample stays in its part when
 * others are added or removed. */
#include "data/split.h"
#include "data/dataset.h"
#include "base/files/checksum.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct split {
    struct ls_dataset base;
    struct ls_dataset *whole; /* owned */
    int64_t *sample;          /* owned; sample of the part -> sample of the whole */
};

static const struct split *split_of(const struct ls_dataset *set)
{
    return (const struct split *)set;
}

static void close_split(struct ls_dataset *set)
{
    struct split *s = (struct split *)set;
    ls_dataset_close(s->whole);
    ls_free(s->sample);
    ls_free(s);
}

static enum ls_status read_sample(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                                  int32_t *label)
{
    const struct split *s = split_of(set);
    return s->whole->ops->read(s->whole, s->sample[i], view, image, label);
}

static int32_t label_of(const struct ls_dataset *set, int64_t i)
{
    const struct split *s = split_of(set);
    return s->whole->ops->label(s->whole, s->sample[i]);
}

static void where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    const struct split *s = split_of(set);
    s->whole->ops->where(s->whole, s->sample[i], text, room);
}

static void identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id)
{
    const struct split *s = split_of(set);
    s->whole->ops->identify(s->whole, s->sample[i], id);
}

static const struct ls_dataset_ops split_ops = {
    .format = "split",
    .close = close_split,
    .read = read_sample,
    .label = label_of,
    .where = where,
    .identify = identify,
};

/* Of formats whose samples have no identity. */
static const struct ls_dataset_ops split_ops_plain = {
    .format = "split",
    .close = close_split,
    .read = read_sample,
    .label = label_of,
    .where = where,
};

static uint64_t hash_of(const struct ls_dataset *set, int64_t i)
{
    struct ls_identity id;
    struct ls_checksum sum;
    ls_checksum_init(&sum);
    if (!ls_dataset_identify(set, i, &id) || (!id.name && !id.bytes)) {
        ls_checksum_add(&sum, &i, sizeof i);
    } else if (id.name) {
        ls_checksum_add(&sum, id.folder, strlen(id.folder));
        ls_checksum_add(&sum, "/", 1);
        ls_checksum_add(&sum, id.name, strlen(id.name));
    } else {
        ls_checksum_add(&sum, id.bytes, id.size);
    }
    return ls_checksum_value(&sum);
}

/* Lists the samples of the part. */
static void choose(struct split *s, double share, bool validation)
{
    uint64_t bound = (uint64_t)ldexp(share, 64);
    int64_t count = 0, all = s->whole->info.count;
    for (int64_t i = 0; i < all; i++)
        if ((hash_of(s->whole, i) < bound) == validation)
            s->sample[count++] = i;
    s->base.info.count = count;
}

enum ls_status ls_dataset_split(struct ls_dataset *whole, const char *spec, double share, bool validation,
                                struct ls_dataset **part)
{
    struct split *s = ls_alloc(1, sizeof *s);
    int64_t *sample = ls_alloc((size_t)whole->info.count, sizeof *sample);
    if (!s || !sample) {
        ls_free(s);
        ls_free(sample);
        ls_dataset_close(whole);
        return LS_FAILED;
    }
    s->whole = whole;
    s->sample = sample;
    s->base.ops = whole->ops->identify ? &split_ops : &split_ops_plain;
    s->base.info = whole->info;
    s->base.info.whole = false;
    s->base.inner = whole->inner;
    whole->inner = NULL;
    pthread_mutex_init(&s->base.bad.lock, NULL);
    choose(s, share, validation);
    if (s->base.info.count == 0) {
        enum ls_status st = ls_fail(
            LS_USAGE, "--val-split %g: none of the %" PRId64 " samples of %s is left for %s; give a %s share", share,
            whole->info.count, spec, validation ? "validation" : "training", validation ? "larger" : "smaller");
        ls_dataset_close(&s->base);
        return st;
    }
    *part = &s->base;
    return LS_OK;
}

bool ls_dataset_has_validation(const char *spec)
{
    struct ls_dataset *test;
    bool before = ls_log_mute(true), has = ls_dataset_open(spec, "test", &test) == LS_OK;
    if (has) {
        has = !test->info.whole;
        ls_dataset_close(test);
    }
    ls_log_mute(before);
    return has;
}
