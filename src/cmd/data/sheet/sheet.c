#include "cmd/data/sheet/sheet.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/interrupt.h"
#include "report/console.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 16 };

static int64_t sample_bytes(const struct ls_sheet *s)
{
    return s->task.augment.height * s->task.augment.width * s->channels;
}

/* Copies the samples of a slot behind the `done` samples that are there. */
static void take_slot(struct ls_sheet *s, const struct ls_options *o, const struct ls_slot *slot, int64_t done)
{
    const struct ls_augment *a = &s->task.augment;
    struct ls_sampler order = {.count = ls_dataset_info(s->task.train)->count, .seed = o->seed, .shuffle = o->shuffle};
    for (int64_t i = 0; i < slot->valid && done + i < s->count; i++) {
        ls_augment_invert(a, slot->images + i * a->channels * a->height * a->width, s->channels,
                          s->pixels + (done + i) * sample_bytes(s));
        s->sample[done + i] = ls_sampler_at(&order, slot->epoch, slot->position + i);
        s->label[done + i] = slot->labels[i];
    }
}

/* The loader is that of training, so the samples are, too. */
static enum ls_status load(struct ls_sheet *s, const struct ls_options *o, struct ls_console *console)
{
    struct ls_loader_options options = {
        .set = s->task.train,
        .augment = s->task.augment,
        .form = LS_FORM_PLANES,
        .seed = o->seed,
        .shuffle = o->shuffle,
        .on_bad = strcmp(o->on_bad_sample, "skip") == 0 ? LS_BAD_REPLACED : LS_BAD_FAILS,
        .threads = o->loader_threads > 0 ? (int)o->loader_threads : omp_get_max_threads(),
        .ring = 2,
        .batch = BATCH,
        .parts = 1,
        .epochs = 1,
    };
    struct ls_loader *loader;
    enum ls_status st = ls_loader_new(&options, &loader);
    if (st != LS_OK)
        return st;
    for (int64_t done = 0; st == LS_OK && done < s->count;) {
        const struct ls_slot *slot;
        st = ls_loader_next(loader, &slot);
        if (st == LS_OK && ls_interrupted())
            st = ls_fail(LS_FAILED, "interrupted; nothing was written");
        if (st != LS_OK)
            break;
        take_slot(s, o, slot, done);
        done += slot->valid;
        ls_console_progress(console, "reading samples", done, s->count);
    }
    ls_loader_free(loader);
    return st;
}

enum ls_status ls_sheet_load(struct ls_sheet *s, const struct ls_options *o)
{
    struct ls_console console;
    enum ls_status st;
    *s = (struct ls_sheet){0};
    LS_TRY(ls_task_open(&s->task, o, true, false, NULL));
    int64_t all = ls_dataset_info(s->task.train)->count;
    s->count = o->samples < all ? o->samples : all;
    s->channels = s->task.augment.channels == 3 ? 3 : 1;
    s->pixels = ls_alloc((size_t)s->count, (size_t)sample_bytes(s));
    s->sample = ls_alloc((size_t)s->count, sizeof *s->sample);
    s->label = ls_alloc((size_t)s->count, sizeof *s->label);
    if (!s->pixels || !s->sample || !s->label) {
        ls_sheet_release(s);
        return LS_FAILED;
    }
    ls_console_begin(&console, o, 0);
    st = load(s, o, &console);
    ls_console_end(&console);
    if (st != LS_OK)
        ls_sheet_release(s);
    return st;
}

void ls_sheet_release(struct ls_sheet *s)
{
    ls_free(s->pixels);
    ls_free(s->sample);
    ls_free(s->label);
    ls_task_close(&s->task);
    *s = (struct ls_sheet){0};
}

const uint8_t *ls_sheet_pixels(const struct ls_sheet *s, int64_t i)
{
    return s->pixels + i * sample_bytes(s);
}

const char *ls_sheet_class(const struct ls_sheet *s, int64_t i, char room[32])
{
    const struct ls_dataset_info *info = ls_dataset_info(s->task.train);
    if (info->class_names)
        return info->class_names[s->label[i]];
    snprintf(room, 32, "class %d", (int)s->label[i]);
    return room;
}

void ls_sheet_title(const struct ls_sheet *s, const struct ls_options *o, char text[512])
{
    const struct ls_augment *a = &s->task.augment;
    char list[LS_AUGMENT_TEXT];
    snprintf(text, 512,
             "%" PRId64 " of %" PRId64 " samples, %" PRId64 "x%" PRId64 "x%" PRId64 ", augment %s, seed %" PRIu64
             ", epoch 1",
             s->count, ls_dataset_info(s->task.train)->count, a->channels, a->height, a->width,
             ls_augment_text(a, list), o->seed);
}
