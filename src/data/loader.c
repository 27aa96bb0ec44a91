/* Slots are numbered 0, 1, 2 ... in the order they are handed out; slot s lies at place s % ring.
 *
 *        released          taken                      opened
 *   given back |  held by the caller |  filled or being filled  |  not begun: its place is still in use
 *
 * Invariants, all under the lock:
 *   1. released <= taken <= opened <= released + ring, taken - released <= 1 + held.
 *   2. Samples are given to threads in order, a few at a time, from the slot opened last only.
 *   3. What a slot holds follows from its number and the options alone; which thread fills it changes
 *      nothing, nor does the number of threads at work, which the tuner may change between two slots.
 *   4. Threads with an index below `active` wait for work, the others for a larger `active`. */
#include "data/dataset.h"
#include "data/tuner.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Threads take about this many output values at a time: enough to make the lock cheap, few enough to share.
 */
#define CHUNK_VALUES 32768
#define CHUNK_SAMPLES 16
#define CHUNK_CROPS 256
/* Threads that wait for storage for much of their time need no core each: of those that wait for more than WAITS_MUCH of it
 * there may be SLEEPERS a core, but no more than SLEEPERS_MOST for that reason; until they wait for less than WAITS_LITTLE. */
#define WAITS_MUCH 0.5
#define WAITS_LITTLE 0.25
#define SLEEPERS 4
#define SLEEPERS_MOST 32
/* What threads did longer ago counts less. */
#define RECENT_SECONDS 8.0
/* Every thread's buffers begin with this, so that small images never make them grow. */
#define SCRATCH_BYTES ((size_t)1 << 20)

struct place {
    struct ls_slot slot;
    int64_t given, unfilled; /* samples given to threads; samples not done yet */
    enum ls_status status;
    int64_t bad_index, bad_sample; /* the first sample of the slot that failed */
    char why[sizeof((struct ls_image *)0)->why];
};

struct worker {
    struct ls_loader *loader; /* borrowed */
    pthread_t thread;
    int index;
    struct ls_image image, scratch;
};

struct ls_loader {
    struct ls_loader_options o;
    int *order; /* owned */
    struct ls_sampler sampler;
    int64_t chunk, values; /* samples a claim; values of an image */
    void *region;          /* owned; images, crops and labels of all slots */
    size_t region_bytes;
    struct place *places;  /* owned; ring of them */
    struct worker *worker; /* owned; n_worker of them */
    int n_worker, workers; /* workers: started */

    pthread_mutex_t lock;
    pthread_cond_t work, more, filled; /* a slot to fill; more threads wanted; a slot is filled */
    /* under lock */
    uint64_t released, taken, opened;
    uint64_t epoch; /* where the slot opened next begins */
    int64_t position, part;
    bool ended, stop;
    int active;             /* workers that fill slots */
    bool sleepy;            /* they wait for storage for much of their time */
    double prepared;        /* samples filled, */
    double prepare_seconds; /* the threads' time for that, all added up, */
    double read_seconds;    /* and how much of it was spent waiting for storage */
    /* the caller's thread only */
    enum ls_status failed;
    double waited;
    struct ls_tuner tuner;
    double last;         /* when the last slot was given, ls_now; 0: none yet */
    uint64_t last_epoch; /* its epoch */
    int64_t used;        /* samples given beyond the first ring of slots, */
    double use_seconds;  /* and the time in which the caller did not wait for them */
};

static struct place *place_of(struct ls_loader *l, uint64_t slot)
{
    return &l->places[slot % (uint64_t)l->o.ring];
}

/* --- which samples ------------------------------------------------------------------------------------ */

static int64_t step_samples(const struct ls_loader *l)
{
    int64_t full = l->o.step, left = l->o.epoch_samples - l->position;
    return left < full ? left : full;
}

/* Samples of slice k in a step of n, and how many stand before it. */
static int64_t slice(const struct ls_loader *l, int64_t n, int64_t k, int64_t *before)
{
    int64_t each = n / l->o.parts, extra = n % l->o.parts;
    *before = k * each + (k < extra ? k : extra);
    return each + (k < extra);
}

static void close_epoch(struct ls_loader *l)
{
    if (l->position >= l->o.epoch_samples) {
        l->position = 0;
        l->epoch++;
    }
    l->ended = l->o.epochs > 0 && l->epoch >= l->o.epochs;
}

/* Begin the next slot: what it will hold is decided here. */
static void open_slot(struct ls_loader *l)
{
    struct place *p = place_of(l, l->opened++);
    int64_t before, n = step_samples(l), k = l->order ? l->order[l->part] : l->part;
    p->slot.valid = slice(l, n, k, &before);
    p->slot.epoch = l->epoch;
    p->slot.position = l->position + before;
    p->given = 0;
    p->unfilled = l->o.batch;
    p->status = LS_OK;
    if (++l->part == l->o.own) {
        l->part = 0;
        l->position += n;
        close_epoch(l);
    }
}

/* --- filling ------------------------------------------------------------------------------------------ */

/* Padding: nothing, in the slot's form. */
static void fill_none(const struct ls_loader *l, const struct ls_slot *slot, int64_t i)
{
    slot->labels[i] = -1;
    if (slot->form == LS_FORM_PLANES)
        memset(slot->images + i * l->values, 0, (size_t)l->values * sizeof *slot->images);
    else
        slot->crops[i] = (struct ls_crop){.image = -1};
}

/* Turn the worker's image into what the slot holds of it. */
static enum ls_status fill_image(struct worker *w, const struct ls_slot *slot, int64_t i, uint64_t sample)
{
    const struct ls_loader *l = w->loader;
    if (slot->form == LS_FORM_PLANES)
        return ls_augment_apply(&l->o.augment, &w->image, l->o.seed, slot->epoch, sample, &w->scratch,
                                slot->images + i * l->values);
    slot->crops[i].image = i;
    return ls_augment_pixels(&l->o.augment, &w->image, l->o.seed, slot->epoch, sample, &w->scratch,
                             slot->pixels + i * l->values, &slot->crops[i]);
}

/* Make sample i of the slot; the number of the sample in *sample for messages. */
static enum ls_status fill_one(struct worker *w, const struct ls_slot *slot, int64_t i, int64_t *sample)
{
    struct ls_loader *l = w->loader;
    if (i >= slot->valid) {
        fill_none(l, slot, i);
        return LS_OK;
    }
    *sample = ls_sampler_at(&l->sampler, slot->epoch, slot->position + i);
    if (slot->form == LS_FORM_CROPS) {
        ls_augment_crop(&l->o.augment, ls_dataset_info(l->o.set), l->o.seed, slot->epoch, (uint64_t)*sample,
                        &slot->crops[i]);
        slot->labels[i] = ls_dataset_label(l->o.set, *sample);
        return LS_OK;
    }
    struct ls_view view = ls_augment_view(&l->o.augment, l->o.seed, slot->epoch, (uint64_t)*sample);
    LS_TRY(ls_dataset_try(l->o.set, *sample, &view, &w->image, &slot->labels[i]));
    enum ls_status st = fill_image(w, slot, i, (uint64_t)*sample);
    if (st != LS_OK)
        memcpy(w->image.why, w->scratch.why, sizeof w->image.why);
    return st;
}

static void note_failure(struct place *p, enum ls_status status, int64_t i, int64_t sample, const char *why)
{
    if (p->status != LS_OK && p->bad_index < i)
        return;
    p->status = status;
    p->bad_index = i;
    p->bad_sample = sample;
    memcpy(p->why, why, sizeof p->why);
}

static bool can_claim(struct ls_loader *l)
{
    if (l->opened > l->released && place_of(l, l->opened - 1)->given < l->o.batch)
        return true;
    return !l->ended && l->opened < l->released + (uint64_t)l->o.ring;
}

/* Under lock: what a thread has done. */
static void count_work(struct ls_loader *l, int64_t samples, double seconds, double reading)
{
    l->prepared += (double)samples;
    l->prepare_seconds += seconds;
    l->read_seconds += reading;
    if (l->prepare_seconds > RECENT_SECONDS) {
        l->prepared /= 2;
        l->prepare_seconds /= 2;
        l->read_seconds /= 2;
    }
}

/* Under lock on entry and exit. */
static void fill_some(struct worker *w)
{
    struct ls_loader *l = w->loader;
    if (l->opened == l->released || place_of(l, l->opened - 1)->given == l->o.batch)
        open_slot(l);
    struct place *p = place_of(l, l->opened - 1);
    int64_t first = p->given, end = first + l->chunk < l->o.batch ? first + l->chunk : l->o.batch;
    p->given = end;
    pthread_mutex_unlock(&l->lock);
    enum ls_status st = LS_OK;
    int64_t i, sample = 0;
    double start = ls_now(), reading = w->image.read_seconds;
    for (i = first; i < end && st == LS_OK; i++)
        st = fill_one(w, &p->slot, i, &sample);
    double seconds = ls_now() - start;
    pthread_mutex_lock(&l->lock);
    if (st != LS_OK)
        note_failure(p, st, i - 1, sample, w->image.why);
    count_work(l, first >= p->slot.valid ? 0 : (end < p->slot.valid ? end : p->slot.valid) - first, seconds,
               w->image.read_seconds - reading);
    p->unfilled -= end - first;
    if (p->unfilled == 0)
        pthread_cond_signal(&l->filled);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    struct ls_loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (w->index >= l->active)
            pthread_cond_wait(&l->more, &l->lock);
        else if (can_claim(l))
            fill_some(w);
        else
            pthread_cond_wait(&l->work, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* --- the caller's side -------------------------------------------------------------------------------- */

static enum ls_status deliver_failure(struct ls_loader *l, const struct place *p)
{
    char where[512];
    ls_dataset_where(l->o.set, p->bad_sample, where, sizeof where);
    l->failed = p->status;
    return ls_fail(p->status, "%s: %s (`lockstep data` lists every broken file)", where, p->why);
}

/* A place is free: wake no more threads than its slot has chunks for. To wake one can take as long as to crop a batch. */
static void wake(struct ls_loader *l)
{
    int64_t chunks = (l->o.batch + l->chunk - 1) / l->chunk;
    if (chunks >= l->active)
        pthread_cond_broadcast(&l->work);
    for (int64_t i = 0; i < chunks && chunks < l->active; i++)
        pthread_cond_signal(&l->work);
}

/* Under lock. Threads that are to rest may be among those that wait for work: all look again, so that none of them takes a
 * signal meant for another. */
static void set_active(struct ls_loader *l, int threads)
{
    l->active = threads < l->workers ? threads : l->workers;
    pthread_cond_broadcast(&l->more);
    pthread_cond_broadcast(&l->work);
}

/* Under lock: how many threads there may be, by what they do. */
static int most_threads(struct ls_loader *l)
{
    double waiting = l->prepare_seconds > 0 ? l->read_seconds / l->prepare_seconds : 0;
    l->sleepy = waiting > (l->sleepy ? WAITS_LITTLE : WAITS_MUCH);
    return l->sleepy || l->o.most == 0 || l->o.most > l->workers ? l->workers : l->o.most;
}

/* Under lock: a slot is taken. Between two epochs the caller does other things, which say nothing about its speed. */
static void measure(struct ls_loader *l, const struct ls_slot *slot, double waited)
{
    double now = ls_now(), seconds = now - l->last;
    if (l->last > 0 && slot->epoch == l->last_epoch) {
        if (l->taken > (uint64_t)l->o.ring) { /* the first ones come while the caller warms up */
            l->used += slot->valid;
            l->use_seconds += seconds - waited;
        }
        l->tuner.most = most_threads(l);
        if (ls_tuner_slot(&l->tuner, seconds, waited))
            set_active(l, l->tuner.threads);
    }
    l->last = now;
    l->last_epoch = slot->epoch;
}

enum ls_status ls_loader_next(struct ls_loader *l, const struct ls_slot **slot)
{
    double waited = 0;
    if (l->failed != LS_OK)
        return l->failed;
    pthread_mutex_lock(&l->lock);
    if (l->taken - l->released > (uint64_t)l->o.held) {
        l->released++;
        wake(l);
    }
    if (l->ended && l->taken == l->opened) {
        pthread_mutex_unlock(&l->lock);
        *slot = NULL;
        return LS_OK;
    }
    struct place *p = place_of(l, l->taken);
    if (l->taken == l->opened || p->unfilled > 0) {
        double start = ls_now();
        while (l->taken == l->opened || p->unfilled > 0)
            pthread_cond_wait(&l->filled, &l->lock);
        waited = ls_now() - start;
        l->waited += waited;
    }
    l->taken++;
    measure(l, &p->slot, waited);
    pthread_mutex_unlock(&l->lock);
    if (p->status != LS_OK)
        return deliver_failure(l, p);
    *slot = &p->slot;
    return LS_OK;
}

bool ls_loader_ready(struct ls_loader *l, int64_t slots)
{
    bool good = l->failed == LS_OK;
    double start = ls_now();
    pthread_mutex_lock(&l->lock);
    uint64_t end = l->taken + (uint64_t)slots, room = l->released + (uint64_t)l->o.ring;
    for (uint64_t i = l->taken; good && i < (end < room ? end : room); i++) {
        const struct place *p = place_of(l, i);
        while (i >= l->opened ? !l->ended : p->unfilled > 0)
            pthread_cond_wait(&l->filled, &l->lock);
        if (i >= l->opened)
            break; /* the data ends before */
        good = p->status == LS_OK;
    }
    pthread_mutex_unlock(&l->lock);
    l->waited += ls_now() - start;
    return good;
}

void *ls_loader_region(const struct ls_loader *l, size_t *bytes)
{
    *bytes = l->region_bytes;
    return l->region;
}

double ls_loader_waited(const struct ls_loader *l)
{
    return l->waited;
}

struct ls_loader_pace ls_loader_pace(struct ls_loader *l)
{
    struct ls_loader_pace pace = {.settled = l->tuner.settled && l->tuner.before == 0, .most = l->tuner.most};
    pthread_mutex_lock(&l->lock);
    pace.threads = l->active;
    if (l->prepare_seconds > 0) {
        pace.prepares = l->prepared / l->prepare_seconds;
        pace.reading = l->read_seconds / l->prepare_seconds;
    }
    pthread_mutex_unlock(&l->lock);
    if (l->use_seconds > 0)
        pace.uses = (double)l->used / l->use_seconds;
    return pace;
}

/* --- beginning and end -------------------------------------------------------------------------------- */

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
        return ls_fail(LS_USAGE, "these images are scaled, and cannot be cropped as they are stored");
    if (o->position < 0)
        return ls_fail(LS_USAGE, "an epoch cannot begin at sample %" PRId64, o->position);
    return LS_OK;
}

static size_t pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* One region for all slots, each slot's images, crops and labels beginning on a page of their own. */
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

/* Threads that are started; more than are at work at first. */
static int threads_to_start(const struct ls_loader_options *o)
{
    int sleepers = SLEEPERS * o->most < SLEEPERS_MOST ? SLEEPERS * o->most : SLEEPERS_MOST;
    int most = o->most > sleepers ? o->most : sleepers;
    return o->most > 0 && most > o->threads ? most : o->threads;
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
    }
    for (int i = 0; i < l->n_worker && st == LS_OK; i++) {
        int code = ls_thread_create(&l->worker[i].thread, work, &l->worker[i]);
        if (code == 0)
            l->workers++;
        else if (i == 0)
            st = ls_fail(LS_FAILED, "no loader thread can be started: %s", strerror(code));
        else
            break; /* fewer threads do the same work */
    }
    pthread_mutex_lock(&l->lock);
    set_active(l, l->o.threads);
    ls_tuner_begin(&l->tuner, l->active, most_threads(l), l->o.ring, (int)l->o.own);
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
    l->sampler = (struct ls_sampler){.count = count, .seed = l->o.seed, .shuffle = l->o.shuffle};
    l->epoch = l->o.epoch;
    l->position = l->o.position;
    close_epoch(l);
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
