/* The preprocessing of images for evaluation: one transform for train, eval and predict. */
#include "data/data.h"
#include "base/log.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZE 16384

/* Parses a number of pixels and moves behind it; 0 if there is none. */
static int take_size(const char **text)
{
    char *end;
    long n = isdigit((unsigned char)**text) ? strtol(*text, &end, 10) : 0;
    if (n < 1 || n > MAX_SIZE)
        return 0;
    *text = end;
    return (int)n;
}

static enum ls_status set_resize(struct ls_augment *a, const char *text)
{
    const char *rest = text;
    if (strcmp(text, "none") == 0) {
        a->resize = 0;
        return LS_OK;
    }
    int size = take_size(&rest);
    if (size == 0 || *rest)
        return ls_fail(LS_USAGE, "--eval-resize %s: expected auto, none, or 1 to %d pixels", text, MAX_SIZE);
    a->resize = size;
    a->center = true;
    return LS_OK;
}

static enum ls_status set_crop(struct ls_augment *a, const char *text)
{
    const char *rest = text;
    if (strcmp(text, "none") == 0) {
        a->center = false;
        a->resize = a->crop_height = a->crop_width = 0;
        return LS_OK;
    }
    int height = take_size(&rest), width = height;
    if (height > 0 && *rest == 'x' && rest++)
        width = take_size(&rest);
    if (height == 0 || width == 0 || *rest)
        return ls_fail(LS_USAGE, "--eval-crop %s: expected auto, none, N or HxW of 1 to %d pixels", text, MAX_SIZE);
    bool fits = height == a->height && width == a->width;
    a->center = true;
    a->crop_height = fits ? 0 : height;
    a->crop_width = fits ? 0 : width;
    return LS_OK;
}

enum ls_status ls_augment_frame(struct ls_augment *a, const char *resize, const char *crop)
{
    bool whole = strcmp(crop, "none") == 0, sized = strcmp(resize, "auto") != 0 && strcmp(resize, "none") != 0;
    if (strcmp(resize, "auto") != 0)
        LS_TRY(set_resize(a, resize));
    if (whole && sized)
        return ls_fail(LS_USAGE,
                       "--eval-resize %s with --eval-crop none: the whole image is scaled to the model's input; "
                       "leave one of them out",
                       resize);
    return strcmp(crop, "auto") == 0 ? LS_OK : set_crop(a, crop);
}

void ls_augment_frame_text(const struct ls_augment *a, char resize[16], char crop[32])
{
    long long height = a->crop_height > 0 ? a->crop_height : a->height;
    long long width = a->crop_width > 0 ? a->crop_width : a->width;
    snprintf(resize, 16, "none");
    snprintf(crop, 32, "none");
    if (a->resize > 0)
        snprintf(resize, 16, "%d", a->resize);
    if (a->center)
        snprintf(crop, 32, "%lldx%lld", height, width);
}

void ls_augment_describe(const struct ls_augment *a, char text[256])
{
    char resize[16], crop[32];
    int used;
    ls_augment_frame_text(a, resize, crop);
    if (!a->center)
        used = snprintf(text, 256, "scaled to cover %lldx%lld, its centre", (long long)a->height, (long long)a->width);
    else if (a->resize > 0)
        used = snprintf(text, 256, "shorter side to %s, centre %s", resize, crop);
    else
        used = snprintf(text, 256, "centre %s", crop);
    if (a->center && a->crop_height > 0)
        used += snprintf(text + used, 256 - (size_t)used, " scaled to %lldx%lld", (long long)a->height,
                         (long long)a->width);
    used += snprintf(text + used, 256 - (size_t)used, "; mean");
    for (int c = 0; c < a->channels; c++)
        used += snprintf(text + used, 256 - (size_t)used, " %.4g", (double)a->mean[c]);
    used += snprintf(text + used, 256 - (size_t)used, ", deviation");
    for (int c = 0; c < a->channels; c++)
        used += snprintf(text + used, 256 - (size_t)used, " %.4g", (double)a->deviation[c]);
}
