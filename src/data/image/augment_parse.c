#include "data/data.h"
#include "base/log.h"
#include "base/text/nearest.h"
#include "data/image/effects/effect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SIZE 224
#define MAX_SIZE 16384

/* Parser state that is not in struct ls_augment. */
struct list {
    const char *text;
    int size; /* of rrc:SIZE or center:SIZE; 0: not given */
};

static enum ls_status bad(const struct list *list, const char *word, const char *what)
{
    return ls_fail(LS_USAGE, "--augment %s: '%s': %s", list->text, word, what);
}

/* Parses the number after the colon of word. Without a number, *value is `missing`; -1 makes that an error. */
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

static void set_resize(struct ls_augment *a, int side)
{
    a->resize = side;
}

static void set_rrc(struct ls_augment *a, int size)
{
    (void)size;
    a->random_resized = true;
}

static void set_crop(struct ls_augment *a, int pad)
{
    a->crop_pad = pad;
}

static void set_reflect(struct ls_augment *a, int pad)
{
    a->crop_pad = pad;
    a->reflect = true;
}

static void set_center(struct ls_augment *a, int size)
{
    (void)size;
    a->center = true;
}

static void set_flip(struct ls_augment *a, int none)
{
    (void)none;
    a->flip = true;
}

static void set_altflip(struct ls_augment *a, int none)
{
    (void)none;
    a->flip = a->alternate = true;
}

const struct ls_augment_word ls_augment_words[] = {
    {"resize", ":SIDE", "scale the image so that its shorter side has SIDE pixels", 1, false, set_resize},
    {"rrc", "[:SIZE]",
     "random resized crop: a random part of 8% to 100% of the area and 3:4 to 4:3 in shape, scaled to the input's size",
     1, true, set_rrc},
    {"crop", ":PAD", "random crop of the input's size, after PAD black pixels were added on each side", 0, false,
     set_crop},
    {"reflect", ":PAD",
     "the same, after PAD pixels of the image itself, mirrored at its border, were added on each side", 0, false,
     set_reflect},
    {"center", "[:SIZE]", "crop of the input's size from the middle", 1, true, set_center},
    {"flip", "", "mirror left and right with a probability of one half", 0, false, set_flip},
    {"altflip", "",
     "mirror left and right in every second epoch: half of the samples in odd ones, the others in even ones", 0, false,
     set_altflip},
    {NULL, NULL, NULL, 0, false, NULL},
};

static const struct ls_augment_word *find_word(const char *word)
{
    size_t length = strcspn(word, ":");
    for (const struct ls_augment_word *w = ls_augment_words; w->name; w++)
        if (strlen(w->name) == length && strncmp(w->name, word, length) == 0)
            return w;
    return NULL;
}

void ls_effect_word(int i, const char **name, const char **argument, const char **help)
{
    *name = ls_effects[i]->name;
    *argument = ls_effects[i]->argument;
    *help = ls_effects[i]->help;
}

/* The number of the word's effect, or LS_EFFECTS. */
static int find_effect(const char *word)
{
    size_t length = strcspn(word, ":");
    int i = 0;
    while (i < LS_EFFECTS && (strlen(ls_effects[i]->name) != length || strncmp(ls_effects[i]->name, word, length) != 0))
        i++;
    return i;
}

/* Parses the numbers of an effect: "jitter:0.4:0.4:0.4:0.1". */
static enum ls_status parse_effect(const struct list *list, const char *word, int id, struct ls_augment *a)
{
    const struct ls_effect *effect = ls_effects[id];
    float *values = a->effects[id].values;
    const char *at = word + strlen(effect->name);
    int n = 0;
    for (; *at == ':' && n < effect->most; n++) {
        char *end;
        double v = strtod(at + 1, &end);
        if (end == at + 1 || (*end && *end != ':') || !(v >= 0 && v <= (double)effect->high[n]))
            return ls_fail(LS_USAGE, "--augment %s: '%s': expected number %d to be from 0 to %g", list->text, word,
                           n + 1, (double)effect->high[n]);
        values[n] = (float)v;
        at = end;
    }
    if (*at || n < effect->least)
        return ls_fail(LS_USAGE, "--augment %s: '%s': expected %s%s", list->text, word, effect->name, effect->argument);
    for (; n < effect->most; n++)
        values[n] = effect->missing[n] < 0 ? values[0] : effect->missing[n];
    a->effects[id].on = a->has_effects = true;
    return LS_OK;
}

static enum ls_status unknown_word(const struct list *list, const char *word)
{
    const char *known[16 + LS_EFFECTS], *near;
    char name[32], all[256] = "";
    size_t used = 0;
    int n = 0;
    for (const struct ls_augment_word *w = ls_augment_words; w->name && n < 16; w++) {
        known[n++] = w->name;
        used += (size_t)snprintf(all + used, sizeof all - used, " %s%s", w->name, w->argument);
    }
    for (int i = 0; i < LS_EFFECTS; i++) {
        known[n++] = ls_effects[i]->name;
        used += (size_t)snprintf(all + used, sizeof all - used, " %s%s", ls_effects[i]->name, ls_effects[i]->argument);
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, ":"), word);
    near = ls_nearest_word(name, known, n);
    if (strcmp(word, "auto") == 0 || strcmp(word, "none") == 0)
        return bad(list, word, "stands alone, without other words");
    return ls_fail(
        LS_USAGE,
        "--augment %s: '%s' is not known%s%s%s there are auto, none or a list of%s; see `lockstep help augment`",
        list->text, word, near ? ", did you mean '" : "", near ? near : "", near ? "'?" : ";", all);
}

static enum ls_status parse_word(struct list *list, const char *word, struct ls_augment *a)
{
    const struct ls_augment_word *known = find_word(word);
    int value = 0, effect = find_effect(word);
    if (effect < LS_EFFECTS)
        return parse_effect(list, word, effect, a);
    if (!known)
        return unknown_word(list, word);
    if (!*known->argument && strchr(word, ':'))
        return bad(list, word, "takes no number");
    if (*known->argument)
        LS_TRY(number(list, word, known->least, *known->argument == '[' ? list->size : -1, &value));
    if (known->size)
        list->size = value;
    known->set(a, value);
    return LS_OK;
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

/* No random operations; the region that training uses most often. */
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
    a->reflect = a->alternate = false;
    a->flip = a->random_resized = a->has_effects = false;
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

enum ls_status ls_augment_check(const char *text)
{
    struct ls_augment made = {.crop_pad = -1};
    struct list list = {.text = text};
    return strcmp(text, "auto") == 0 || strcmp(text, "none") == 0 ? LS_OK : parse_list(&list, &made);
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

const char *ls_effects_text(const struct ls_augment *a, char text[LS_AUGMENT_TEXT])
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; a->has_effects && i < LS_EFFECTS && used < LS_AUGMENT_TEXT; i++) {
        if (!a->effects[i].on)
            continue;
        used += (size_t)snprintf(text + used, LS_AUGMENT_TEXT - used, ",%s", ls_effects[i]->name);
        for (int v = 0; v < ls_effects[i]->most && used < LS_AUGMENT_TEXT; v++)
            used += (size_t)snprintf(text + used, LS_AUGMENT_TEXT - used, ":%g", (double)a->effects[i].values[v]);
    }
    return text;
}

const char *ls_augment_text(const struct ls_augment *a, char text[LS_AUGMENT_TEXT])
{
    char effects[LS_AUGMENT_TEXT];
    size_t used = 0;
    text[0] = 0;
    if (a->resize > 0)
        used += (size_t)snprintf(text + used, LS_AUGMENT_TEXT - used, ",resize:%d", a->resize);
    if (a->random_resized)
        used += (size_t)snprintf(text + used, LS_AUGMENT_TEXT - used, ",rrc");
    if (a->crop_pad >= 0)
        used += (size_t)snprintf(text + used, LS_AUGMENT_TEXT - used, ",%s:%d", a->reflect ? "reflect" : "crop",
                                 a->crop_pad);
    if (a->center)
        used += (size_t)snprintf(text + used, LS_AUGMENT_TEXT - used, ",center");
    if (a->flip)
        used += (size_t)snprintf(text + used, LS_AUGMENT_TEXT - used, ",%s", a->alternate ? "altflip" : "flip");
    snprintf(text + used, LS_AUGMENT_TEXT - used, "%s", ls_effects_text(a, effects));
    if (!*text)
        snprintf(text, LS_AUGMENT_TEXT, ",none");
    memmove(text, text + 1, strlen(text));
    return text;
}
