/* The threads of a loader: they claim samples of a slot and fill them. */
#include "data/loader.h"
#include "base/system/clock.h"

#include <string.h>

/* Statistics over about this time; older work counts less. */
#define RECENT_SECONDS 8.0
/* A sample that is read faster, such as one of MNIST, is not decoded, and gets no slice of its own in a trace. */
#define WORTH_A_SLICE 10e-6
/* So many broken samples in a row are no accident: the data is not what it should be. */
#define MAX_BROKEN 1000

/* --- which samples ------------------------------------------------------------------------------------ */

static int64_t step_samples(const struct ls_loader *l)
{
    int64_t full = l->o.step, left = l->o.epoch_samples - l->position;
    return left < full ? left : full;
}

/* Returns the number of samples of slice k in a step of n; *before is the number of samples before it. */
static int64_t slice(const struct ls_loader *l, int64_t n, int64_t k, int64_t *before)
{
    int64_t each = n / l->o.parts, extra = n % l->o.parts;
    *before = k * each + (k < extra ? k : extra);
    return each + (k < extra);
}

void ls_loader_close_epoch(struct ls_loader *l)
{
    if (l->position >= l->o.epoch_samples) {
        l->position = 0;
        l->epoch++;
    }
    l->ended = l->o.epochs > 0 && l->epoch >= l->o.epochs;
}

/* Opens the next slot and determines its samples. */
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
    p->slot.broken = 0;
    if (++l->part == l->o.own) {
        l->part = 0;
        l->position += n;
        ls_loader_close_epoch(l);
    }
}

/* --- filling ------------------------------------------------------------------------------------------ */

/* The number of sample i of the slot. *round: how many times the data set was gone through before it, which the order and
 * the augmentation depend on; with whole epochs that is the epoch. */
static int64_t sample_of(const struct ls_loader *l, const struct ls_slot *slot, int64_t i, uint64_t *round)
{
    int64_t position = slot->position + i, count = l->sampler.count;
    *round = slot->epoch;
    if (l->o.goes_on) {
        uint64_t all = slot->epoch * (uint64_t)l->o.epoch_samples + (uint64_t)position;
        *round = all / (uint64_t)count;
        position = (int64_t)(all % (uint64_t)count);
    }
    return ls_sampler_at(&l->sampler, *round, position);
}

/* Fills a padding sample. */
static void fill_none(const struct ls_loader *l, const struct ls_slot *slot, int64_t i)
{
    slot->labels[i] = -1;
    if (slot->form == LS_FORM_PLANES)
        memset(slot->images + i * l->values, 0, (size_t)l->values * sizeof *slot->images);
    else
        slot->crops[i] = (struct ls_crop){.image = -1};
}

/* Augments the worker's image into the slot. */
static enum ls_status fill_image(struct worker *w, const struct ls_slot *slot, int64_t i, uint64_t round,
                                 uint64_t sample)
{
    const struct ls_loader *l = w->loader;
    if (slot->form == LS_FORM_PLANES)
        return ls_augment_apply(&l->o.augment, &w->image, l->o.seed, round, sample, &w->scratch,
                                slot->images + i * l->values);
    slot->crops[i].image = i;
    return ls_augment_pixels(&l->o.augment, &w->image, l->o.seed, round, sample, &w->scratch,
                             slot->pixels + i * l->values, &slot->crops[i]);
}

/* Reads sample i of the slot, or what o.on_bad puts in its place. *left_out: nothing. */
static enum ls_status read_one(struct worker *w, const struct ls_slot *slot, int64_t i, uint64_t round, int64_t sample,
                               bool *left_out)
{
    const struct ls_loader_options *o = &w->loader->o;
    struct ls_view view = ls_augment_view(&o->augment, o->seed, round, (uint64_t)sample);
    int64_t count = ls_dataset_info(o->set)->count, most = count < MAX_BROKEN ? count : MAX_BROKEN;
    enum ls_status st = LS_OK;
    for (int64_t tried = 0; tried < most; tried++) {
        int64_t next = (sample + tried) % count;
        st = ls_dataset_try(o->set, next, &view, &w->image, &slot->labels[i]);
        if (st != LS_BAD_INPUT || o->on_bad == LS_BAD_FAILS)
            return st;
        ls_dataset_note_bad(o->set, next);
        w->broken += tried == 0;
        *left_out = o->on_bad == LS_BAD_LEFT_OUT;
        if (*left_out)
            return LS_OK;
    }
    char why[sizeof w->image.why];
    memcpy(why, w->image.why, sizeof why);
    ls_image_refuse(&w->image, "%lld samples in a row, from this one on, cannot be read; the last: %.100s",
                    (long long)most, why);
    return st;
}

/* Fills sample i of the slot. *sample gets the number of the sample, for messages. */
static enum ls_status fill_one(struct worker *w, const struct ls_slot *slot, int64_t i, int64_t *sample)
{
    struct ls_loader *l = w->loader;
    uint64_t round;
    if (i >= slot->valid) {
        fill_none(l, slot, i);
        return LS_OK;
    }
    *sample = sample_of(l, slot, i, &round);
    if (slot->form == LS_FORM_CROPS) {
        ls_augment_crop(&l->o.augment, ls_dataset_info(l->o.set), l->o.seed, round, (uint64_t)*sample, &slot->crops[i]);
        slot->labels[i] = ls_dataset_label(l->o.set, *sample);
        return LS_OK;
    }
    double begin = ls_trace_begin(w->track);
    bool left_out = false;
    LS_TRY(read_one(w, slot, i, round, *sample, &left_out));
    if (left_out) {
        fill_none(l, slot, i);
        return LS_OK;
    }
    if (begin > 0 && ls_now() - begin > WORTH_A_SLICE)
        ls_trace_end(w->track, begin, &(struct ls_slice){.kind = LS_SLICE_DECODE, .name = "decode", .number = *sample});
    enum ls_status st = fill_image(w, slot, i, round, (uint64_t)*sample);
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

/* Adds the work of a thread to the statistics. The caller holds the lock. */
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

/* Claims and fills one chunk. The lock is held on entry and exit. */
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
    w->broken = 0;
    for (i = first; i < end && st == LS_OK; i++)
        st = fill_one(w, &p->slot, i, &sample);
    double seconds = ls_now() - start;
    if (ls_trace_on(w->track))
        ls_trace_add_since(w->track, start,
                           &(struct ls_slice){.kind = LS_SLICE_FILL, .name = "fill", .number = end - first});
    pthread_mutex_lock(&l->lock);
    if (st != LS_OK)
        note_failure(p, st, i - 1, sample, w->image.why);
    count_work(l, first >= p->slot.valid ? 0 : (end < p->slot.valid ? end : p->slot.valid) - first, seconds,
               w->image.read_seconds - reading);
    p->slot.broken += w->broken;
    p->unfilled -= end - first;
    if (p->unfilled == 0)
        pthread_cond_signal(&l->filled);
}

void *ls_loader_work(void *argument)
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
