#include "train/task.h"
#include "base/log.h"
#include "base/trace.h"
#include "data/classes.h"
#include "data/split.h"
#include "model/model.h"

#include <string.h>

static const struct ls_dataset *any_set(const struct ls_task *t)
{
    return t->train ? t->train : t->test;
}

/* Takes image size and classes from options, data or model, in that order. */
static enum ls_status decide_size(struct ls_task *t, const struct ls_options *o, const struct ls_dataset_info *info,
                                  const struct ls_model_card *card)
{
    struct ls_model_size own, *size = &t->size;
    *size = (struct ls_model_size){.batch = o->batch, .classes = o->classes};
    if (o->input)
        LS_TRY(ls_parse_input("--input", o->input, &size->channels, &size->height, &size->width));
    if (info && !o->input && info->height > 0) {
        size->channels = info->channels;
        size->height = info->height;
        size->width = info->width;
    }
    if (info && size->classes == 0)
        size->classes = info->classes;
    /* With a model card, ls_classes_match names the classes of the data that the model does not have. */
    if (info && size->classes < info->classes && !(card && card->model))
        return ls_fail(LS_USAGE, "--classes %lld: the data has %lld classes; give at least as many, or none",
                       (long long)size->classes, (long long)info->classes);
    if (size->channels > 0 && size->classes > 0)
        return LS_OK;
    LS_TRY(ls_model_default_size(o->model, o->model_yaml, &own));
    if (size->channels == 0) {
        size->channels = own.channels;
        size->height = own.height;
        size->width = own.width;
    }
    if (size->classes == 0)
        size->classes = own.classes;
    if (size->channels <= 0 || size->height <= 0 || size->width <= 0 || size->classes <= 0)
        return ls_fail(LS_USAGE,
                       "%s: neither the model nor the data says the input size and number of classes; give "
                       "--input CxHxW and --classes N",
                       o->model);
    return LS_OK;
}

enum ls_status ls_task_transform(const struct ls_options *o, const struct ls_model_card *card,
                                 const struct ls_dataset_info *info, const struct ls_model_size *size,
                                 struct ls_augment *a)
{
    struct ls_dataset_info seen = {.format = "folder"};
    bool known = card && card->model, kept = known && *card->eval_crop;
    ls_dataset_photographs(&seen);
    if (info)
        seen = *info;
    if (known) {
        seen.channels = card->channels;
        seen.height = card->stored_height;
        seen.width = card->stored_width;
        memcpy(seen.mean, card->mean, sizeof seen.mean);
        memcpy(seen.deviation, card->deviation, sizeof seen.deviation);
    }
    LS_TRY(ls_augment_parse(kept ? "none" : o->augment, false, &seen, size->channels, size->height, size->width, a));
    if (kept)
        LS_TRY(ls_augment_frame(a, card->eval_resize, card->eval_crop));
    return ls_augment_frame(a, o->eval_resize, o->eval_crop);
}

static enum ls_status decide_augment(struct ls_task *t, const struct ls_options *o, const struct ls_model_card *card)
{
    const struct ls_model_size *s = &t->size;
    if (t->train)
        LS_TRY(ls_augment_parse(o->augment, true, ls_dataset_info(t->train), s->channels, s->height, s->width,
                                &t->augment));
    return ls_task_transform(o, card, ls_dataset_info(any_set(t)), s, &t->test_augment);
}

/* Gives test samples the labels of their classes in the model. */
static enum ls_status match_classes(struct ls_task *t, const struct ls_options *o, const struct ls_model_card *card)
{
    struct ls_classes model = {.count = t->size.classes, .foreign = true};
    char note[1024];
    if (!t->test)
        return LS_OK;
    if (card && card->model)
        model = ls_model_card_classes(card);
    else if (t->train)
        model = ls_classes_of(ls_dataset_info(t->train), t->size.classes);
    LS_TRY(ls_classes_match(&model, t->test, o->eval_data ? o->eval_data : o->data, note, sizeof note));
    if (*note && !o->quiet && !o->json)
        ls_print("%s.", note);
    else if (*note)
        ls_note("%s.", note);
    return LS_OK;
}

static enum ls_status open_set(const struct ls_options *o, const char *spec, const char *part, struct ls_dataset **set)
{
    LS_TRY(ls_dataset_open(spec, part, set));
    return ls_dataset_decode_by(*set, o->decode);
}

/* Opens a part of --data that --val-split makes. */
static enum ls_status open_split(const struct ls_options *o, bool validation, struct ls_dataset **set)
{
    struct ls_dataset *whole;
    LS_TRY(ls_dataset_open(o->data, "train", &whole));
    LS_TRY(ls_dataset_split(whole, o->data, o->val_split, validation, set));
    return ls_dataset_decode_by(*set, o->decode);
}

/* Decides whether --val-split applies. Evaluation of another data set by a run that has it uses that set's own part. */
static enum ls_status decide_split(const struct ls_options *o, bool train, bool *split)
{
    *split = false;
    if (o->val_split <= 0)
        return LS_OK;
    if (train && o->eval_data)
        return ls_fail(LS_USAGE, "--val-split and --eval-data: give one of them");
    bool has = !o->eval_data && ls_dataset_has_validation(o->data);
    if (train && has)
        return ls_fail(LS_USAGE, "--val-split %g: %s has a validation part of its own; leave the option out",
                       o->val_split, o->data);
    *split = !o->eval_data && !has;
    return LS_OK;
}

static enum ls_status open_sets(struct ls_task *t, const struct ls_options *o, bool train, bool test)
{
    bool split;
    LS_TRY(decide_split(o, train, &split));
    if (train)
        LS_TRY(split ? open_split(o, false, &t->train) : open_set(o, o->data, "train", &t->train));
    if (test && split)
        return open_split(o, true, &t->test);
    return test ? open_set(o, o->eval_data ? o->eval_data : o->data, "test", &t->test) : LS_OK;
}

enum ls_status ls_task_open(struct ls_task *t, const struct ls_options *o, bool train, bool test,
                            const struct ls_model_card *card)
{
    enum ls_status st = LS_OK;
    *t = (struct ls_task){0};
    LS_TRY_GOTO(failed, open_sets(t, o, train, test));
    ls_dataset_warn_inner(any_set(t), train || !o->eval_data ? o->data : o->eval_data);
    if (train && test && o->eval_data)
        ls_dataset_warn_inner(t->test, o->eval_data);
    if (train && test && !o->eval_data && ls_dataset_info(t->test)->whole)
        ls_warn(
            "%s: there is no validation part, so the samples of training are evaluated; --eval-data names others, and "
            "--val-split 0.1 keeps a tenth for evaluation",
            o->data);
    LS_TRY_GOTO(failed, decide_size(t, o, ls_dataset_info(any_set(t)), card));
    LS_TRY_GOTO(failed, decide_augment(t, o, card));
    LS_TRY_GOTO(failed, match_classes(t, o, card));
    return LS_OK;
failed:
    ls_task_close(t);
    return st;
}

enum ls_status ls_task_size(struct ls_task *t, const struct ls_options *o)
{
    *t = (struct ls_task){0};
    LS_TRY(ls_augment_check(o->augment));
    return decide_size(t, o, NULL, NULL);
}

void ls_task_close(struct ls_task *t)
{
    ls_dataset_close(t->train);
    ls_dataset_close(t->test);
    *t = (struct ls_task){0};
}

int ls_task_cores(const struct ls_engine *e)
{
    int cores = ls_engine_cores();
    int share = e->comm ? cores / ls_comm_local_size(e->comm) : cores;
    int computing = e->threads < cores ? e->threads : cores;
    return e->comm && share < computing ? computing : share < 1 ? 1 : share;
}

int ls_task_loader_threads(const struct ls_options *o, const struct ls_engine *e, int *most)
{
    *most = 0;
    if (o->loader_threads > 0)
        return (int)o->loader_threads;
    int cores = *most = ls_task_cores(e), spared = e->backend->queue->delay ? 1 : cores - cores / 2;
    return cores > spared ? cores - spared : 1;
}

enum ls_status ls_task_test_loader(const struct ls_task *t, const struct ls_options *o, const struct ls_engine *e,
                                   enum ls_form form, const struct ls_samples *some, struct ls_loader **loader)
{
    int rank, readers = ls_engine_readers(e, &rank), most, threads = ls_task_loader_threads(o, e, &most);
    struct ls_loader_options options = {
        .set = t->test,
        .samples = some ? some->list : NULL,
        .epoch_samples = some ? some->count : 0,
        .augment = t->test_augment,
        .form = form,
        .seed = o->seed,
        .on_bad = strcmp(o->on_bad_sample, "skip") == 0 ? LS_BAD_LEFT_OUT : LS_BAD_FAILS,
        .threads = t->loader_threads > 0 ? t->loader_threads : threads,
        .max_threads = most,
        .ring = 3 + e->backend->queue->delay,
        .held = e->backend->queue->delay,
        .batch = t->size.batch,
        .parts = readers,
        .order = &rank,
        .own = 1,
        .epochs = 1,
        .trace = t->trace,
        .first_track = LS_TRACK_EVALUATION_LOADER,
    };
    return ls_loader_new(&options, loader);
}
