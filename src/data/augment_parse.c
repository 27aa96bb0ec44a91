#include "data/data.h"
#include "base/log.h"
#include "base/nearest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SIZE 224
#define MAX_SIZE 16384

/* What the list said, beside the switches in the struct. */
struct list {
    const char *text;
    int size; /* of rrc:SIZE or center:SIZE, 0: none given */
};

static enum ls_status bad(const struct list *list, const char *word, const char *what)
{
    return ls_fail(LS_USAGE, "--augment %s: '%s': %s", list->text, word, what);
}

/* The number after the colon of word; without one `missing`, or an error where that is -1. */
static enum ls_status number(const struct list *list, const char *word, int least, int missing, int *value)
{
    const char *colon = strchr(word, ':');
    if (!colon && missing >= 0) {
        *value = missing;
        return LS_OK;
    }
    if (!colon)
        return bad(list, word, "a number is expected after it, as in crop:4 or resize:256");
    char *end;
    errno = 0;
    long v = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || *end || errno || v < least || v > MAX_SIZE)
        return ls_fail(LS_USAGE, "--augment %s: '%s': expected a number from %d to %d after the colon", list->text,
                       word, least, MAX_SIZE);
    *value = (int)v;
    return LS_OK;
}

static enum ls_status parse_word(struct list *list, const char *word, struct ls_augment *a)
{
    static const char *const known[] = {"crop", "flip", "rrc", "resize", "center", "none", "auto"};
    size_t length = strcspn(word, ":");
    char name[16] = "";
    if (length < sizeof name)
        memcpy(name, word, length);
    if (strcmp(word, "flip") == 0) {
        a->flip = true;
        return LS_OK;
    }
    if (strcmp(name, "crop") == 0)
        return number(list, word, 0, -1, &a->crop_pad);
    if (strcmp(name, "resize") == 0)
        return number(list, word, 1, -1, &a->resize);
    if (strcmp(name, "rrc") == 0) {
        a->random_resized = true;
        return number(list, word, 1, list->size, &list->size);
    }
    if (strcmp(name, "center") == 0) {
        a->center = true;
        return number(list, word, 1, list->size, &list->size);
    }
    const char *near = ls_nearest_word(name, known, 5);
    return ls_fail(LS_USAGE,
                   "--augment %s: '%s' is not known%s%s%s; there are crop:PAD flip rrc[:SIZE] resize:SIZE center",
                   list->text, word, near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum ls_status parse_list(struct list *list, struct ls_augment *a)
{
    for (const char *p = list->text; *p;) {
        char word[32] = "";
        size_t length = strcspn(p, ",");
        if (length == 0 || length >= sizeof word)
            return bad(list, p, "expected words with commas between them");
        memcpy(word, p, length);
        LS_TRY(parse_word(list, word, a));
        p += length;
        if (*p == ',' && !*++p)
            return bad(list, ",", "a word is expected after the last comma");
    }
    if (a->random_resized + (a->crop_pad >= 0) + a->center > 1)
        return bad(list, list->text, "only one of rrc, crop and center can choose the part that is seen");
    if (a->random_resized && a->resize > 0)
        return bad(list, list->text, "rrc chooses its own scale: leave out resize");
    return LS_OK;
}

static bool is_folder(const struct ls_dataset_info *info)
{
    return info->height == 0;
}

static void choose(bool training, const struct ls_dataset_info *info, struct ls_augment *a)
{
    bool photographs = info->channels == 3 && strcmp(info->format, "synthetic") != 0;
    if (!training || !photographs)
        return;
    a->flip = true;
    if (is_folder(info))
        a->random_resized = true;
    else
        a->crop_pad = (int)((a->height < a->width ? a->height : a->width) / 8);
}

/* Nothing random, and the part that training sees most. */
static void calm(const struct ls_dataset_info *info, bool automatic, struct ls_augment *a)
{
    bool same_size = info->height == a->height && info->width == a->width;
    if ((automatic && is_folder(info)) || (a->random_resized && !same_size)) {
        a->center = true;
        a->resize = (int)((a->height < a->width ? a->height : a->width) * 8 / 7);
    }
    if (a->crop_pad >= 0)
        a->center = true;
    a->crop_pad = -1;
    a->flip = a->random_resized = false;
}

static enum ls_status set_size(const struct list *list, const struct ls_dataset_info *info, int64_t channels,
                               int64_t height, int64_t width, struct ls_augment *a)
{
    a->channels = channels ? channels : info->channels;
    a->height = height ? height : list->size ? list->size : info->height ? info->height : DEFAULT_SIZE;
    a->width = width ? width : list->size ? list->size : info->width ? info->width : DEFAULT_SIZE;
    if (a->channels != 1 && a->channels != 3)
        return ls_fail(LS_USAGE, "--input %lldx%lldx%lld: images have 1 or 3 channels", (long long)a->channels,
                       (long long)a->height, (long long)a->width);
    if (a->height < 1 || a->width < 1 || a->height > MAX_SIZE || a->width > MAX_SIZE)
        return ls_fail(LS_USAGE, "--input %lldx%lldx%lld: sides of 1 to %d pixels can be made from images",
                       (long long)a->channels, (long long)a->height, (long long)a->width, MAX_SIZE);
    if (list->size && (a->height != list->size || a->width != list->size))
        return ls_fail(LS_USAGE, "--augment %s: size %d, but the model's input is %lldx%lld: give --input %lldx%dx%d",
                       list->text, list->size, (long long)a->height, (long long)a->width, (long long)a->channels,
                       list->size, list->size);
    return LS_OK;
}

static void set_table(const struct ls_dataset_info *info, struct ls_augment *a)
{
    static const float luma[3] = {0.299f, 0.587f, 0.114f};
    for (int c = 0; c < a->channels; c++) {
        int from = info->channels == a->channels ? c : 0;
        a->mean[c] = info->mean[from];
        a->deviation[c] = info->deviation[from];
    }
    if (info->channels == 3 && a->channels == 1) {
        a->mean[0] = a->deviation[0] = 0;
        for (int c = 0; c < 3; c++) {
            a->mean[0] += luma[c] * info->mean[c];
            a->deviation[0] += luma[c] * info->deviation[c];
        }
    }
    for (int c = 0; c < a->channels; c++)
        for (int v = 0; v < 256; v++)
            a->table[c][v] = ((float)v / 255.0f - a->mean[c]) / a->deviation[c];
}

enum ls_status ls_augment_parse(const char *text, bool training, const struct ls_dataset_info *info, int64_t channels,
                                int64_t height, int64_t width, struct ls_augment *a)
{
    struct ls_augment made = {.crop_pad = -1};
    struct list list = {.text = text};
    bool automatic = strcmp(text, "auto") == 0;
    if (!automatic && strcmp(text, "none") != 0)
        LS_TRY(parse_list(&list, &made));
    LS_TRY(set_size(&list, info, channels, height, width, &made));
    if (automatic)
        choose(training, info, &made);
    if (made.crop_pad >= made.height || made.crop_pad >= made.width)
        return ls_fail(LS_USAGE, "--augment %s: padding by %d needs images larger than that; they are %lldx%lld", text,
                       made.crop_pad, (long long)made.height, (long long)made.width);
    if (!training)
        calm(info, automatic, &made);
    set_table(info, &made);
    *a = made;
    return LS_OK;
}
