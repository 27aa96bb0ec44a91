#include "cmd/data/convert.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/system/interrupt.h"
#include "data/image/encode.h"

#include <inttypes.h>
#include <omp.h>

/* Samples between two looks at the state of the whole. */
enum { BLOCK = 256 };

/* One thread's sample and the memory for it. */
struct work {
    struct ls_image image, other; /* other: resized, or scratch */
    uint8_t *encoded;             /* owned, or NULL */
    struct ls_write_sample sample;
};

static void release(struct work *w)
{
    ls_image_release(&w->image);
    ls_image_release(&w->other);
    ls_free(w->encoded);
}

/* --- one sample ------------------------------------------------------------------------------------------------------- */

/* The size that an image of this size gets. */
static void new_size(const struct ls_conversion *c, int64_t *height, int64_t *width)
{
    int64_t shorter = *height < *width ? *height : *width;
    if (c->height > 0) {
        *height = c->height;
        *width = c->width;
    } else if (c->shorter > 0) {
        *height = *height * c->shorter / shorter;
        *width = *width * c->shorter / shorter;
    }
}

/* Copies the stored file. *done is false if there is none. */
static enum ls_status copy_file(struct ls_dataset *set, int64_t i, struct work *w, bool *done)
{
    struct ls_write_sample *s = &w->sample;
    LS_TRY(ls_dataset_encoded(set, i, &w->image, &s->bytes, &s->size));
    *done = s->bytes != NULL;
    if (!*done)
        return LS_OK;
    enum ls_status st = ls_image_measure(s->bytes, s->size, &w->other, &s->height, &s->width);
    if (st != LS_OK)
        ls_image_refuse(&w->image, "%s", w->other.why);
    s->extension = ls_image_extension(s->bytes, s->size);
    s->channels = 3;
    return st;
}

static enum ls_status resize(const struct ls_conversion *c, struct work *w, struct ls_image **made)
{
    int64_t height = w->image.height, width = w->image.width;
    *made = &w->image;
    new_size(c, &height, &width);
    if (height == w->image.height && width == w->image.width)
        return LS_OK;
    LS_TRY(ls_image_check_size(&w->image, height, width));
    struct ls_box whole = {0, 0, w->image.height, w->image.width}, all = {0, 0, (int)height, (int)width};
    *made = &w->other;
    return ls_image_resize(&w->image, &whole, all.height, all.width, &all, &w->other);
}

static enum ls_status make_image(const struct ls_conversion *c, struct ls_dataset *set, int64_t i, struct work *w)
{
    struct ls_write_sample *s = &w->sample;
    struct ls_image *made;
    int32_t label;
    LS_TRY(ls_dataset_try(set, i, NULL, &w->image, &label));
    LS_TRY(resize(c, w, &made));
    s->channels = made->channels;
    s->height = made->height;
    s->width = made->width;
    if (c->pixels || (c->writer->takes_pixels && c->quality == 0 && !c->files)) {
        s->bytes = made->pixels;
        s->size = (size_t)made->channels * (size_t)made->height * (size_t)made->width;
        return LS_OK;
    }
    ls_free(w->encoded);
    w->encoded = NULL;
    s->extension = c->quality > 0 ? "jpg" : "png";
    enum ls_status st = c->quality > 0 ? ls_jpeg_encode(made, c->quality, &w->encoded, &s->size)
                                       : ls_png_store(made, &w->encoded, &s->size);
    if (st != LS_OK && made != &w->image)
        ls_image_refuse(&w->image, "%s", made->why);
    s->bytes = w->encoded;
    return st;
}

static enum ls_status prepare(const struct ls_conversion *c, const struct ls_conversion_part *p, int64_t i,
                              struct work *w)
{
    struct ls_identity id;
    bool done = false;
    int32_t label = ls_dataset_label(p->set, i);
    w->sample = (struct ls_write_sample){.label = p->class ? p->class[label] : label};
    if (ls_dataset_identify(p->set, i, &id) && id.name) {
        w->sample.folder = id.folder;
        w->sample.name = id.name;
    }
    if (c->quality == 0 && !c->pixels)
        LS_TRY(copy_file(p->set, i, w, &done));
    return done ? LS_OK : make_image(c, p->set, i, w);
}

/* --- one part --------------------------------------------------------------------------------------------------------- */

static enum ls_status put(const struct ls_conversion *c, struct ls_conversion_part *p, struct ls_writer *writer,
                          int64_t i, enum ls_status st, struct work *w)
{
    char where[512];
    if (st == LS_OK) {
        w->sample.number = p->written++;
        p->bytes += w->sample.size;
        return c->writer->put(writer, &w->sample);
    }
    ls_dataset_where(p->set, i, where, sizeof where);
    if (st == LS_BAD_INPUT && !c->skips_bad)
        return ls_fail(st, "%s: %s (--on-bad-sample skip leaves such files out)", where, w->image.why);
    if (st != LS_BAD_INPUT)
        return ls_fail(st, "%s: %s", where, w->image.why);
    ls_warn("%s: %s; left out", where, w->image.why);
    p->left_out++;
    return LS_OK;
}

/* Threads prepare the samples first .. end-1, and put them in their order. */
static enum ls_status put_some(const struct ls_conversion *c, struct ls_conversion_part *p, struct ls_writer *writer,
                               int64_t first, int64_t end, struct work *work)
{
    enum ls_status st = LS_OK;
#pragma omp parallel for ordered schedule(dynamic, 1) num_threads(c->threads)
    for (int64_t i = first; i < end; i++) {
        struct work *w = &work[omp_get_thread_num()];
        enum ls_status mine = ls_interrupted() ? LS_INTERRUPTED : prepare(c, p, i, w);
#pragma omp ordered
        if (st == LS_OK)
            st = mine == LS_INTERRUPTED ? mine : put(c, p, writer, i, mine, w);
    }
    return st;
}

static enum ls_status put_all(const struct ls_conversion *c, struct ls_conversion_part *p, struct ls_writer *writer,
                              struct ls_console *console)
{
    int64_t count = ls_dataset_info(p->set)->count;
    struct work *work = ls_alloc((size_t)c->threads, sizeof *work);
    enum ls_status st = work ? LS_OK : LS_FAILED;
    for (int64_t first = 0; first < count && st == LS_OK; first += BLOCK) {
        st = put_some(c, p, writer, first, first + BLOCK < count ? first + BLOCK : count, work);
        ls_console_progress(console, p->said, first, count);
    }
    for (int t = 0; work && t < c->threads; t++)
        release(&work[t]);
    ls_free(work);
    return st;
}

/* Describes the part as it is written. */
static struct ls_dataset_info describe(const struct ls_conversion *c, const struct ls_conversion_part *p)
{
    struct ls_dataset_info info = *ls_dataset_info(p->set);
    info.classes = p->classes->classes;
    info.class_names = p->classes->class_names;
    info.class_ids = p->classes->class_ids;
    if (info.height > 0)
        new_size(c, &info.height, &info.width);
    return info;
}

enum ls_status ls_convert_part(const struct ls_conversion *c, const char *folder, struct ls_conversion_part *p,
                               struct ls_console *console)
{
    struct ls_dataset_info info = describe(c, p);
    struct ls_write_plan plan = {
        .folder = folder, .part = p->name, .info = &info, .shards = c->shards, .shard_bytes = c->shard_bytes};
    struct ls_writer *writer = NULL;
    if (plan.shards > info.count)
        plan.shards = info.count;
    enum ls_status st = c->writer->open(&plan, &writer);
    if (st == LS_OK)
        st = put_all(c, p, writer, console);
    if (st == LS_OK && p->written == 0)
        st = ls_fail(LS_BAD_INPUT, "none of the %" PRId64 " samples can be read", info.count);
    if (st == LS_OK)
        st = c->writer->finish(writer);
    if (writer)
        c->writer->close(writer);
    return st;
}
