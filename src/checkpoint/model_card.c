#include "checkpoint/model_card.h"
#include "base/log.h"
#include "base/text/utf8.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* One line for each key that ls_model_card_write adds. */
const struct ls_help_row ls_model_card_keys[] = {
    {"format", "pt: tensors as PyTorch lays them out"},
    {"lockstep.model", "the model, as given to --model; a file with its absolute path"},
    {"lockstep.input", "CxHxW, the images that the model reads"},
    {"lockstep.classes", "number of classes"},
    {"lockstep.stored", "HxW of the training images before augmentation; 0x0: of various sizes"},
    {"lockstep.mean", "list, per channel: subtracted from values in 0..1"},
    {"lockstep.deviation", "list, per channel: then divided by"},
    {"lockstep.eval_resize", "evaluation and predict scale the shorter side to this; none: no scaling"},
    {"lockstep.eval_crop",
     "then they cut the centre HxW and scale it to the input; none: the whole image, scaled to cover the input"},
    {"lockstep.model_yaml", "the text of the model file, if --model was a file"},
    {"lockstep.class_names", "list, in the order of the scores; only if the data has names"},
    {"lockstep.class_ids", "list: the class names in the data files, if they differ from class_names (wnids)"},
    {NULL, NULL},
};

/* Metadata values are strings; a list is a string of JSON. */
static const char *list_text(json_t *list, struct ls_arena *strings)
{
    char *text = list ? json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    const char *copy = text ? ls_arena_strdup(strings, text) : NULL;
    free(text);
    json_decref(list);
    return copy;
}

static json_t *numbers(const float *values, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_real((double)values[i]));
    return list;
}

/* JSON requires UTF-8: other bytes are escaped. */
static json_t *names(const char *const *values, int64_t n)
{
    char room[1024];
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(ls_utf8_escape(values[i], room, sizeof room)));
    return list;
}

static void add(struct ls_st_pair *pairs, int *n, const char *key, const char *value)
{
    pairs[(*n)++] = (struct ls_st_pair){key, value};
}

enum ls_status ls_model_card_write(const struct ls_model_card *card, struct ls_arena *strings, struct ls_st_pair *pairs,
                                   int *n)
{
    *n = 0;
    int64_t channels = card->channels < 4 ? card->channels : 4;
    add(pairs, n, "format", "pt");
    add(pairs, n, "lockstep.model", card->model);
    add(pairs, n, "lockstep.input",
        ls_arena_format(strings, "%lldx%lldx%lld", (long long)card->channels, (long long)card->height,
                        (long long)card->width));
    add(pairs, n, "lockstep.classes", ls_arena_format(strings, "%lld", (long long)card->classes));
    add(pairs, n, "lockstep.stored",
        ls_arena_format(strings, "%lldx%lld", (long long)card->stored_height, (long long)card->stored_width));
    add(pairs, n, "lockstep.mean", list_text(numbers(card->mean, channels), strings));
    add(pairs, n, "lockstep.deviation", list_text(numbers(card->deviation, channels), strings));
    if (card->yaml)
        add(pairs, n, "lockstep.model_yaml", card->yaml);
    if (*card->eval_crop) {
        add(pairs, n, "lockstep.eval_resize", card->eval_resize);
        add(pairs, n, "lockstep.eval_crop", card->eval_crop);
    }
    if (card->class_names)
        add(pairs, n, "lockstep.class_names", list_text(names(card->class_names, card->named), strings));
    if (card->class_ids)
        add(pairs, n, "lockstep.class_ids", list_text(names(card->class_ids, card->named), strings));
    for (int i = 0; i < *n; i++)
        if (!pairs[i].value)
            return LS_FAILED;
    return LS_OK;
}

/* --- reading ------------------------------------------------------------------------------------------ */

static json_t *list_of(const struct ls_safetensors *file, const char *key)
{
    const char *text = ls_safetensors_metadata(file, key);
    json_t *list = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (list && !json_is_array(list)) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* Rejects numbers beyond the range of float: they would become infinite, which JSON cannot express. */
static bool read_numbers(const struct ls_safetensors *file, const char *key, int64_t n, float *values)
{
    json_t *list = list_of(file, key);
    bool good = list && n <= 4 && (int64_t)json_array_size(list) == n;
    for (int64_t i = 0; good && i < n; i++) {
        double value = json_number_value(json_array_get(list, (size_t)i));
        good = json_is_number(json_array_get(list, (size_t)i)) && fabs(value) <= (double)FLT_MAX;
        values[i] = good ? (float)value : 0;
    }
    json_decref(list);
    return good;
}

/* There may be fewer names than classes: only the classes of the training data have names. */
static bool read_names(const struct ls_safetensors *file, const char *key, struct ls_arena *strings, int64_t most,
                       const char *const **list_of_names, int64_t *count)
{
    json_t *list = list_of(file, key);
    int64_t n = (int64_t)json_array_size(list);
    const char **read = n > 0 && n <= most ? ls_arena_take(strings, (size_t)n * sizeof *read) : NULL;
    bool good = read != NULL;
    for (int64_t i = 0; good && i < n; i++) {
        const char *name = json_string_value(json_array_get(list, (size_t)i));
        read[i] = name ? ls_arena_strdup(strings, name) : NULL;
        good = read[i] != NULL;
    }
    json_decref(list);
    if (good) {
        *list_of_names = read;
        *count = n;
    }
    return good;
}

static enum ls_status read_classes(const struct ls_safetensors *file, const char *path, struct ls_arena *strings,
                                   struct ls_model_card *card)
{
    int64_t ids = 0;
    if (!ls_safetensors_metadata(file, "lockstep.class_names"))
        return LS_OK;
    bool good = read_names(file, "lockstep.class_names", strings, card->classes, &card->class_names, &card->named);
    if (good && ls_safetensors_metadata(file, "lockstep.class_ids"))
        good =
            read_names(file, "lockstep.class_ids", strings, card->named, &card->class_ids, &ids) && ids == card->named;
    return good ? LS_OK
                : ls_fail(LS_BAD_INPUT,
                          "%s: the metadata lockstep.class_names or lockstep.class_ids are not names of %lld classes",
                          path, (long long)card->classes);
}

static bool read_count(const char **text, char end, int64_t least, int64_t *value)
{
    char *rest;
    if (!*text)
        return false;
    long long v = strtoll(*text, &rest, 10);
    if (rest == *text || *rest != end || v < least || v > 1000000000)
        return false;
    *text = rest + 1;
    *value = v;
    return true;
}

enum ls_status ls_model_card_read(const struct ls_safetensors *file, const char *path, struct ls_arena *strings,
                                  struct ls_model_card *card)
{
    const char *model = ls_safetensors_metadata(file, "lockstep.model");
    const char *input = ls_safetensors_metadata(file, "lockstep.input");
    const char *stored = ls_safetensors_metadata(file, "lockstep.stored");
    const char *classes = ls_safetensors_metadata(file, "lockstep.classes");
    *card = (struct ls_model_card){0};
    if (!model)
        return LS_OK;
    if (!read_count(&input, 'x', 1, &card->channels) || !read_count(&input, 'x', 1, &card->height) ||
        !read_count(&input, 0, 1, &card->width) || !read_count(&classes, 0, 1, &card->classes) ||
        !read_count(&stored, 'x', 0, &card->stored_height) || !read_count(&stored, 0, 0, &card->stored_width))
        return ls_fail(LS_BAD_INPUT,
                       "%s: the metadata name a model, but lockstep.input, .stored or .classes is missing or wrong",
                       path);
    const char *yaml = ls_safetensors_metadata(file, "lockstep.model_yaml");
    card->model = ls_arena_strdup(strings, model);
    card->yaml = yaml ? ls_arena_strdup(strings, yaml) : NULL;
    if (!card->model || (yaml && !card->yaml))
        return LS_FAILED;
    if (!read_numbers(file, "lockstep.mean", card->channels, card->mean) ||
        !read_numbers(file, "lockstep.deviation", card->channels, card->deviation))
        return ls_fail(LS_BAD_INPUT, "%s: the metadata lockstep.mean or lockstep.deviation are not %lld numbers", path,
                       (long long)card->channels);
    const char *resize = ls_safetensors_metadata(file, "lockstep.eval_resize");
    const char *crop = ls_safetensors_metadata(file, "lockstep.eval_crop");
    if (resize && crop && *resize && *crop) {
        snprintf(card->eval_resize, sizeof card->eval_resize, "%s", resize);
        snprintf(card->eval_crop, sizeof card->eval_crop, "%s", crop);
    }
    return read_classes(file, path, strings, card);
}

struct ls_classes ls_model_card_classes(const struct ls_model_card *card)
{
    return (struct ls_classes){.count = card->classes,
                               .named = card->class_names ? card->named : 0,
                               .names = card->class_names,
                               .ids = card->class_ids};
}
