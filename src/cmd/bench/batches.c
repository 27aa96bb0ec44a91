/* The batches of bench. They stay in memory, so that only the step is measured. */
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "cmd/bench/session.h"

#include <string.h>

#define SLOTS 2 /* for each pass of a step */

enum ls_status ls_bench_next_batch(void *context, const struct ls_slot **slot)
{
    struct ls_bench_session *b = context;
    *slot = &b->slots[b->at];
    b->at = (b->at + 1) % b->n_slots;
    return LS_OK;
}

static int64_t image_values(const struct ls_model_size *s)
{
    return s->channels * s->height * s->width;
}

static size_t pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* Returns the bytes of the images of a slot, in the form that the program takes. */
static size_t image_bytes(const struct ls_bench_session *b)
{
    size_t values = (size_t)(b->task.size.batch * image_values(&b->task.size));
    enum ls_form form = b->stepper.train.form;
    return form == LS_FORM_PLANES ? values * sizeof(float) : form == LS_FORM_PIXELS ? values : 0;
}

static size_t crop_bytes(const struct ls_bench_session *b)
{
    return b->stepper.train.form == LS_FORM_PLANES ? 0 : (size_t)b->task.size.batch * sizeof(struct ls_crop);
}

static size_t label_bytes(const struct ls_bench_session *b)
{
    return (size_t)b->task.size.batch * sizeof(int32_t);
}

static enum ls_status make_slots(struct ls_bench_session *b)
{
    size_t images = pages(image_bytes(b)), crops = pages(crop_bytes(b)), labels = pages(label_bytes(b));
    enum ls_form form = b->stepper.train.form;
    b->n_slots = SLOTS * b->stepper.replicas.n_slices;
    b->slots = ls_alloc((size_t)b->n_slots, sizeof *b->slots);
    if (!b->slots)
        return LS_FAILED;
    b->region_bytes = (size_t)b->n_slots * (images + crops + labels);
    LS_TRY(ls_region_map(b->region_bytes, &b->region));
    b->engine.backend->queue->pin(b->region, b->region_bytes);
    char *at = b->region;
    for (int i = 0; i < b->n_slots; i++, at += images + crops + labels) {
        struct ls_slot *slot = &b->slots[i];
        int64_t slices = b->engine.tree->replicas * b->engine.passes;
        int slice = b->stepper.replicas.order[i % b->stepper.replicas.n_slices];
        slot->valid = b->o->batch / slices + (slice < b->o->batch % slices);
        slot->form = form;
        slot->images = form == LS_FORM_PLANES ? (float *)(void *)at : NULL;
        slot->pixels = form == LS_FORM_PIXELS ? (uint8_t *)at : NULL;
        slot->crops = form == LS_FORM_PLANES ? NULL : (struct ls_crop *)(void *)(at + images);
        slot->labels = (int32_t *)(void *)(at + images + crops);
    }
    return LS_OK;
}

/* A table that maps bytes to about -2 to 2. */
static enum ls_status open_synthetic(struct ls_bench_session *b)
{
    const struct ls_model_size *size = &b->task.size;
    struct ls_pixels pixels = {.from_channels = (int32_t)size->channels,
                               .from_height = (int32_t)size->height,
                               .from_width = (int32_t)size->width,
                               .channels = (int32_t)size->channels,
                               .height = (int32_t)size->height,
                               .width = (int32_t)size->width};
    for (int c = 0; c < 4; c++)
        for (int v = 0; v < 256; v++)
            pixels.table[c][v] = ((float)v - 127.5f) / 64;
    return ls_device_dataset_open_bytes(&b->stepper.train, &b->engine, &b->engine.train, &pixels);
}

static void fill_bytes(struct ls_bench_session *b, struct ls_slot *slot, uint64_t stream)
{
    int64_t bytes = b->task.size.batch * image_values(&b->task.size);
    for (int64_t i = 0; i < bytes; i += 16) {
        uint32_t r[4];
        ls_philox(b->o->seed, stream, (uint64_t)i / 16, r);
        memcpy(slot->pixels + i, r, bytes - i < 16 ? (size_t)(bytes - i) : 16);
    }
    for (int64_t k = 0; k < b->task.size.batch; k++)
        slot->crops[k] = (struct ls_crop){.image = k, .flip = (int32_t)(k & 1)};
}

static void fill_synthetic(struct ls_bench_session *b)
{
    const struct ls_model_size *size = &b->task.size;
    for (int i = 0; i < b->n_slots; i++) {
        struct ls_slot *slot = &b->slots[i];
        uint64_t stream = ls_random_stream(LS_RANDOM_SYNTHETIC, (uint64_t)i, 0, 0);
        uint64_t classes = ls_random_stream(LS_RANDOM_SYNTHETIC, (uint64_t)i, 1, 0);
        if (slot->form == LS_FORM_PLANES)
            ls_random_fill_normal(b->o->seed, stream, 1.0f, size->batch * image_values(size), slot->images);
        else
            fill_bytes(b, slot, stream);
        for (int64_t k = 0; k < size->batch; k++)
            slot->labels[k] = (int32_t)ls_random_below(b->o->seed, classes, (uint64_t)k, (uint64_t)size->classes);
    }
}

static void copy_slot(const struct ls_bench_session *b, const struct ls_slot *from, struct ls_slot *to)
{
    if (from->images)
        memcpy(to->images, from->images, image_bytes(b));
    if (from->pixels)
        memcpy(to->pixels, from->pixels, image_bytes(b));
    if (from->crops)
        memcpy(to->crops, from->crops, crop_bytes(b));
    memcpy(to->labels, from->labels, label_bytes(b));
}

static enum ls_status fill_from_data(struct ls_bench_session *b)
{
    const struct ls_model_size *size = &b->task.size;
    int most;
    struct ls_loader_options options = {
        .set = b->task.train,
        .augment = b->task.augment,
        .form = b->stepper.train.form,
        .seed = b->o->seed,
        .shuffle = b->o->shuffle,
        .threads = ls_task_loader_threads(b->o, &b->engine, &most),
        .ring = 2,
        .batch = size->batch,
        .parts = 1,
    };
    struct ls_loader *loader = NULL;
    long long count = ls_dataset_info(b->task.train)->count;
    enum ls_status st = ls_loader_new(&options, &loader);
    for (int i = 0; st == LS_OK && i < b->n_slots;) {
        const struct ls_slot *slot;
        st = ls_loader_next(loader, &slot);
        if (st == LS_OK && (!slot || count < size->batch))
            st = ls_fail(LS_USAGE, "--batch %lld: %s has only %lld samples", (long long)b->o->batch, b->o->data, count);
        if (st == LS_OK && slot->valid == size->batch) /* the last batch of an epoch may be smaller */
            copy_slot(b, slot, &b->slots[i++]);
    }
    ls_loader_free(loader);
    return st;
}

enum ls_status ls_bench_make_batches(struct ls_bench_session *b, bool from_data)
{
    LS_TRY(from_data ? ls_device_dataset_open(&b->stepper.train, &b->engine, &b->engine.train, b->task.train,
                                              &b->task.augment)
                     : open_synthetic(b));
    LS_TRY(make_slots(b));
    if (from_data)
        return fill_from_data(b);
    fill_synthetic(b);
    return LS_OK;
}

void ls_bench_free_batches(struct ls_bench_session *b)
{
    if (b->region)
        b->engine.backend->queue->unpin(b->region);
    ls_region_unmap(b->region, b->region_bytes);
    ls_free(b->slots);
}
