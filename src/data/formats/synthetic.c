/* synthetic:CxHxW:CLASSES[:COUNT] — generated images, for benchmarks and tests without files. A class is a coarse
 * pattern; a sample is that pattern with noise. A linear model can learn it. */
#include "data/dataset.h"
#include "data/formats/formats.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "synthetic:"
#define DEFAULT_COUNT 10000
#define GRID 4 /* the pattern has GRID x GRID cells per channel */
#define MAX_CLASSES 1000000
/* The weight of the pattern in eighths; the rest is noise. */
#define PATTERN_SHARE 3

struct synthetic {
    struct ls_dataset base;
    uint64_t stream;
    uint8_t *pattern; /* owned; classes x channels x GRID x GRID */
};

static bool recognise(const char *spec)
{
    return strncmp(spec, PREFIX, strlen(PREFIX)) == 0;
}

/* Parses a number in low .. high; *text moves behind it. */
static bool take_number(const char **text, int64_t low, int64_t high, int64_t *value)
{
    char *end;
    errno = 0;
    if (**text < '0' || **text > '9')
        return false;
    *value = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0 && *value >= low && *value <= high;
}

static bool take(const char **text, char expected)
{
    return **text == expected && (*text)++;
}

static enum ls_status parse(const char *spec, struct ls_dataset_info *info)
{
    const char *p = spec + strlen(PREFIX);
    info->count = DEFAULT_COUNT;
    bool good = take_number(&p, 1, 3, &info->channels) && take(&p, 'x') &&
                take_number(&p, 1, LS_IMAGE_MAX_SIDE, &info->height) && take(&p, 'x') &&
                take_number(&p, 1, LS_IMAGE_MAX_SIDE, &info->width) && take(&p, ':') &&
                take_number(&p, 1, MAX_CLASSES, &info->classes) &&
                (!*p || (take(&p, ':') && take_number(&p, 1, INT64_MAX / 8, &info->count)));
    if (!good || *p || info->channels == 2 || info->height * info->width > LS_IMAGE_MAX_PIXELS)
        return ls_fail(LS_USAGE,
                       "--data %s: expected synthetic:CxHxW:CLASSES[:COUNT] with C 1 or 3, "
                       "as in synthetic:3x32x32:10",
                       spec);
    return LS_OK;
}

static enum ls_status open_set(const char *spec, const char *part, struct ls_dataset **set)
{
    struct ls_dataset_info info = {0};
    bool test = strcmp(part, "test") == 0;
    LS_TRY(parse(spec, &info));
    if (test)
        info.count = (info.count + 4) / 5;
    for (int c = 0; c < info.channels; c++) {
        info.mean[c] = 0.4961f;
        info.deviation[c] = 0.2105f;
    }
    struct synthetic *s = ls_alloc(1, sizeof *s);
    size_t fields = (size_t)(info.classes * info.channels * GRID * GRID);
    uint8_t *pattern = ls_alloc(fields, 1);
    if (!s || !pattern) {
        ls_free(pattern);
        ls_free(s);
        return LS_FAILED;
    }
    for (size_t f = 0; f < fields; f++)
        pattern[f] = (uint8_t)ls_random_below(0, ls_random_stream(LS_RANDOM_SYNTHETIC, 0, 0, 0), f, 256);
    s->pattern = pattern;
    s->stream = ls_random_stream(LS_RANDOM_SYNTHETIC, test ? 2 : 1, 0, 0);
    s->base.info = info;
    *set = &s->base;
    return LS_OK;
}

static int32_t label_of(const struct ls_dataset *set, int64_t i)
{
    return (int32_t)(i % set->info.classes);
}

static enum ls_status read_sample(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                                  int32_t *label)
{
    const struct synthetic *s = (const struct synthetic *)set;
    int channels = (int)set->info.channels, height = (int)set->info.height, width = (int)set->info.width;
    (void)view;
    LS_TRY(ls_image_reserve(image, channels, height, width));
    *label = label_of(set, i);
    const uint8_t *pattern = s->pattern + (size_t)*label * (size_t)channels * GRID * GRID;
    uint8_t *out = image->pixels;
    uint32_t noise[4] = {0};
    uint64_t index = 0;
    for (int y = 0; y < height; y++) {
        const uint8_t *row = pattern + (int64_t)y * GRID / height * GRID;
        for (int x = 0; x < width; x++) {
            const uint8_t *field = row + (int64_t)x * GRID / width;
            for (int c = 0; c < channels; c++, index++) {
                if (index % 16 == 0)
                    ls_philox((uint64_t)i, s->stream, index / 16, noise);
                uint32_t byte = noise[index / 4 % 4] >> (8 * (index % 4)) & 255;
                *out++ = (uint8_t)((PATTERN_SHARE * field[c * GRID * GRID] + (8 - PATTERN_SHARE) * byte) / 8);
            }
        }
    }
    return LS_OK;
}

static void where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    (void)set;
    snprintf(text, room, "synthetic sample %" PRId64, i);
}

static void close_set(struct ls_dataset *set)
{
    ls_free(((struct synthetic *)set)->pattern);
    ls_free(set);
}

const struct ls_dataset_ops ls_format_synthetic = {
    .format = "synthetic",
    .word = "synthetic:",
    .recognise = recognise,
    .open = open_set,
    .close = close_set,
    .read = read_sample,
    .label = label_of,
    .where = where,
};
