/* What the observers of a run get besides its reports: facts, images of the first batch, values of parameters. */
#include "base/system/clock.h"
#include "base/memory.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

enum { IMAGES = 8 };

static void label_text(const struct ls_dataset_info *info, int32_t label, char *text, size_t room)
{
    if (info->class_names && label >= 0 && label < info->classes)
        snprintf(text, room, "%s", info->class_names[label]);
    else
        snprintf(text, room, "%d", (int)label);
}

/* Shows sample number `number` of the first batch. One that cannot be read is left out: the loader reports it. */
static enum ls_status show_sample(struct ls_trainer *t, int number, struct ls_image image[2], float *planes,
                                  uint8_t *pixels)
{
    const struct ls_augment *a = &t->task.augment;
    const struct ls_dataset_info *info = ls_dataset_info(t->task.train);
    struct ls_sampler sampler = {.count = info->count, .seed = t->o->seed, .shuffle = t->o->shuffle};
    uint64_t sample = (uint64_t)ls_sampler_at(&sampler, 0, number);
    struct ls_view view = ls_augment_view(a, t->o->seed, 0, sample);
    int channels = a->channels == 3 ? 3 : 1;
    char label[64];
    int32_t class;
    if (ls_dataset_try(t->task.train, (int64_t)sample, &view, &image[0], &class) != LS_OK ||
        ls_augment_apply(a, &image[0], t->o->seed, 0, sample, &image[1], planes) != LS_OK)
        return LS_OK;
    ls_augment_invert(a, planes, channels, pixels);
    label_text(info, class, label, sizeof label);
    struct ls_observed_image shown = {.pixels = pixels,
                                      .height = (int)a->height,
                                      .width = (int)a->width,
                                      .channels = channels,
                                      .number = number,
                                      .label = label};
    return ls_observers_image(&t->observers, &shown);
}

/* The samples are computed again: augmentation depends on seed, epoch and sample alone, and a device may prepare the batch
 * where the host cannot read it. */
static enum ls_status show_images(struct ls_trainer *t)
{
    const struct ls_augment *a = &t->task.augment;
    size_t values = (size_t)(a->channels * a->height * a->width);
    struct ls_image image[2] = {{0}, {0}};
    float *planes = ls_alloc(values, sizeof *planes);
    uint8_t *pixels = ls_alloc(values, 1);
    enum ls_status st = planes && pixels ? LS_OK : LS_FAILED;
    for (int i = 0; i < IMAGES && i < t->o->batch && i < t->epoch_samples && st == LS_OK; i++)
        st = show_sample(t, i, image, planes, pixels);
    ls_image_release(&image[0]);
    ls_image_release(&image[1]);
    ls_free(planes);
    ls_free(pixels);
    return st;
}

enum ls_status ls_trainer_observe(struct ls_trainer *t)
{
    char identity[512];
    struct ls_run_facts facts = {.o = t->o,
                                 .run = t->run,
                                 .identity = identity,
                                 .resumed = t->resumed,
                                 .step = (int64_t)t->state.step,
                                 .epochs_begun = (int64_t)t->state.epoch + (t->state.position > 0),
                                 .train_samples = t->epoch_samples,
                                 .eval_samples = t->task.test ? ls_dataset_info(t->task.test)->count : 0,
                                 .lr = t->schedule.global,
                                 .ranks = t->comm ? ls_comm_size(t->comm) : 1,
                                 .opening = ls_now() - t->opened};
    ls_identity_words(t->state.identity, identity, sizeof identity);
    LS_TRY(ls_observers_open(&t->observers, &facts));
    return ls_observers_want_images(&t->observers) && !t->resumed ? show_images(t) : LS_OK;
}

static enum ls_status show_values(struct ls_trainer *t)
{
    const struct ls_graph *g = ls_engine_whole(&t->engine);
    int64_t largest = 0;
    if (!ls_observers_want_values(&t->observers))
        return LS_OK;
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].role == LS_ROLE_PARAM && ls_shape_count(&g->tensors[i].shape) > largest)
            largest = ls_shape_count(&g->tensors[i].shape);
    float *values = ls_alloc((size_t)largest, sizeof *values);
    enum ls_status st = values ? LS_OK : LS_FAILED;
    for (int i = 0; i < g->n_tensors && st == LS_OK; i++) {
        const struct ls_tensor *tensor = &g->tensors[i];
        if (tensor->role != LS_ROLE_PARAM)
            continue;
        st = ls_engine_read(&t->engine, i, values);
        if (st == LS_OK)
            st = ls_observers_values(&t->observers, (int64_t)t->state.step, tensor->name, values,
                                     ls_shape_count(&tensor->shape));
    }
    ls_free(values);
    return st;
}

enum ls_status ls_trainer_observe_values(struct ls_trainer *t)
{
    return t->root ? ls_engine_served(&t->engine, show_values(t)) : ls_engine_serve(&t->engine);
}
