/* Creation and release of a loader. */
#include "data/loader.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Threads claim about CHUNK_VALUES output values at a time: enough to make the lock cheap, few enough to share the work. */
#define CHUNK_VALUES 32768
#define CHUNK_SAMPLES 16
#define CHUNK_CROPS 256
/* Threads that are started for data that waits for storage: SLEEPERS per core, at most SLEEPERS_MAX. */
#define SLEEPERS 4
#define SLEEPERS_MAX 32
/* Initial size of each buffer of a thread, so that small images never make it grow. */
#define SCRATCH_BYTES ((size_t)1 << 20)

static enum ls_status check(const struct ls_loader_options *o)
{
    int64_t count = ls_dataset_info(o->set)->count;
    if (o->batch < 1 || o->parts < 1 || o->threads < 1 || o->held < 0 || o->ring < 2 + o->held)
        return ls_fail(LS_USAGE,
                       "a loader needs batch, parts, threads >= 1 and a ring >= 2 + %d, not %" PRId64 ", %" PRId64
                       ", %d, %d",
                       o->held, o->batch, o->parts, o->threads, o->ring);
    if (o->epoch_samples < 0 || o->epoch_samples > count)
        return ls_fail(LS_USAGE, "an epoch of %" PRId64 " samples, but the data set has %" PRId64, o->epoch_samples,
                       count);
    if (o->batch > INT64_MAX / o->parts)
        return ls_fail(LS_USAGE, "%" PRId64 " slices of %" PRId64 " samples are too many", o->parts, o->batch);
    if (o->step > o->batch * o->parts)
        return ls_fail(LS_USAGE, "a step of %" PRId64 " samples does not fit %" PRId64 " slices of %" PRId64, o->step,
                       o->parts, o->batch);
    if (o->form == LS_FORM_CROPS && !ls_augment_only_crops(&o->augment, ls_dataset_info(o->set)))
        return ls_fail(LS_USAGE, "this augmentation scales images, so batches of crops are not possible");
    if (o->position < 0)
        return ls_fail(LS_USAGE, "an epoch cannot begin at sample %" PRId64, o->position);
    return LS_OK;
}

static size_t pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* Maps one region for all slots. Images, crops and labels of each slot start on a page boundary. */
static enum ls_status place_slots(struct ls_loader *l)
{
    static const size_t value_bytes[] = {[LS_FORM_PLANES] = sizeof(float), [LS_FORM_PIXELS] = 1, [LS_FORM_CROPS] = 0};
    size_t bytes, ring = (size_t)l->o.ring, batch = (size_t)l->o.batch;
    const struct ls_augment *a = &l->o.augment;
    enum ls_form form = l->o.form;
    l->values = a->channels * a->height * a->width;
    if (__builtin_mul_overflow((size_t)l->values * sizeof(float), batch, &bytes) || bytes > SIZE_MAX / ring / 4)
        return ls_fail(LS_USAGE, "batches of %" PRId64 " images of %" PRId64 " values are too large", l->o.batch,
                       l->values);
    bytes = pages((size_t)l->values * value_bytes[form] * batch);
    size_t crop_bytes = form == LS_FORM_PLANES ? 0 : pages(batch * sizeof(struct ls_crop));
    size_t slot_bytes = bytes + crop_bytes + pages(batch * sizeof(int32_t));
    l->places = ls_alloc(ring, sizeof *l->places);
    if (!l->places)
        return LS_FAILED;
    LS_TRY(ls_region_map(slot_bytes * ring, &l->region));
    l->region_bytes = slot_bytes * ring;
    for (size_t s = 0; s < ring; s++) {
        struct ls_slot *slot = &l->places[s].slot;
        char *at = (char *)l->region + s * slot_bytes;
        slot->form = form;
        slot->images = form == LS_FORM_PLANES ? (float *)(void *)at : NULL;
        slot->pixels = form == LS_FORM_PIXELS ? (uint8_t *)at : NULL;
        slot->crops = form == LS_FORM_PLANES ? NULL : (struct ls_crop *)(void *)(at + bytes);
        slot->labels = (int32_t *)(void *)(at + bytes + crop_bytes);
    }
    int64_t chunk = CHUNK_VALUES / l->values;
    l->chunk = chunk < 1 ? 1 : chunk > CHUNK_SAMPLES ? CHUNK_SAMPLES : chunk;
    if (form == LS_FORM_CROPS)
        l->chunk = CHUNK_CROPS;
    return LS_OK;
}

static enum ls_status reserve_scratch(struct ls_image *image)
{
    LS_TRY(ls_image_reserve(image, 1, 1, (int)SCRATCH_BYTES));
    return ls_image_reserve_side(image, SCRATCH_BYTES);
}

/* Returns the number of threads to start; not all of them fill slots at first. */
static int threads_to_start(const struct ls_loader_options *o)
{
    int sleepers = SLEEPERS * o->max_threads < SLEEPERS_MAX ? SLEEPERS * o->max_threads : SLEEPERS_MAX;
    int most = o->max_threads > sleepers ? o->max_threads : sleepers;
    return o->max_threads > 0 && most > o->threads ? most : o->threads;
}

/* One thread may fill and decode all samples of a step. */
static enum ls_status add_track(const struct ls_loader *l, struct worker *w)
{
    char name[32];
    size_t chunks = (size_t)((l->o.batch + l->chunk - 1) / l->chunk);
    if (!l->o.trace || w->index >= LS_TRACK_LOADERS)
        return LS_OK;
    snprintf(name, sizeof name, "%sloader %d", l->o.first_track == LS_TRACK_LOADER ? "" : "evaluation ", w->index);
    return ls_trace_track(l->o.trace, l->o.first_track + w->index, name,
                          (size_t)l->o.own * (chunks + (size_t)l->o.batch), &w->track);
}

static enum ls_status start_workers(struct ls_loader *l)
{
    enum ls_status st = LS_OK;
    l->n_worker = threads_to_start(&l->o);
    l->worker = ls_alloc((size_t)l->n_worker, sizeof *l->worker);
    if (!l->worker)
        return LS_FAILED;
    for (int i = 0; i < l->n_worker; i++) {
        l->worker[i].loader = l;
        l->worker[i].index = i;
        LS_TRY(reserve_scratch(&l->worker[i].image));
        LS_TRY(reserve_scratch(&l->worker[i].scratch));
        LS_TRY(add_track(l, &l->worker[i]));
    }
    for (int i = 0; i < l->n_worker && st == LS_OK; i++) {
        int code = ls_thread_create(&l->worker[i].thread, ls_loader_work, &l->worker[i]);
        if (code == 0)
            l->workers++;
        else if (i == 0)
            st = ls_fail(LS_FAILED, "no loader thread can be started: %s", strerror(code));
        else
            break; /* continue with fewer threads */
    }
    pthread_mutex_lock(&l->lock);
    ls_loader_set_active(l, l->o.threads);
    ls_tuner_begin(&l->tuner, l->active, ls_loader_max_threads(l), l->o.ring, (int)l->o.own);
    pthread_mutex_unlock(&l->lock);
    return st;
}

enum ls_status ls_loader_new(const struct ls_loader_options *options, struct ls_loader **loader)
{
    enum ls_status st;
    LS_TRY(check(options));
    struct ls_loader *l = ls_alloc(1, sizeof *l);
    if (!l)
        return LS_FAILED;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->more, NULL);
    pthread_cond_init(&l->filled, NULL);
    l->o = *options;
    l->o.order = NULL;
    if (l->o.step == 0)
        l->o.step = l->o.batch * l->o.parts;
    l->o.own = options->order ? options->own : options->parts;
    int64_t count = ls_dataset_info(l->o.set)->count;
    if (l->o.epoch_samples == 0)
        l->o.epoch_samples = count;
    l->sampler =
        (struct ls_sampler){.count = count, .seed = l->o.seed, .shuffle = l->o.shuffle, .samples = l->o.samples};
    l->epoch = l->o.epoch;
    l->position = l->o.position;
    ls_loader_close_epoch(l);
    if (options->order) {
        l->order = ls_alloc((size_t)l->o.own, sizeof *l->order);
        if (!l->order) {
            st = LS_FAILED;
            goto free_loader;
        }
        memcpy(l->order, options->order, (size_t)l->o.own * sizeof *l->order);
    }
    LS_TRY_GOTO(free_loader, place_slots(l));
    LS_TRY_GOTO(free_loader, start_workers(l));
    *loader = l;
    return LS_OK;
free_loader:
    ls_loader_free(l);
    return st;
}

void ls_loader_free(struct ls_loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_cond_broadcast(&l->more);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->workers; i++)
        pthread_join(l->worker[i].thread, NULL);
    for (int i = 0; l->worker && i < l->n_worker; i++) {
        ls_image_release(&l->worker[i].image);
        ls_image_release(&l->worker[i].scratch);
    }
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->more);
    pthread_cond_destroy(&l->filled);
    ls_region_unmap(l->region, l->region_bytes);
    ls_free(l->worker);
    ls_free(l->places);
    ls_free(l->order);
    ls_free(l);
}
