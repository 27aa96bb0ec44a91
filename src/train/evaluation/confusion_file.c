#include "report/formats/csv.h"
#include "base/text/base64.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/utf8.h"
#include "base/memory.h"
#include "report/formats/png.h"
#include "train/evaluation/confusion.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256, PICTURE_SIDE = 96 };

/* --- CSV ------------------------------------------------------------------------------------------------------------ */

static void put_csv(const struct ls_confusion *c, const struct ls_class_names *names, FILE *out)
{
    char name[NAME];
    fputs("label", out);
    for (int64_t i = 0; i < c->classes; i++) {
        fputc(',', out);
        ls_csv_put(ls_class_name(names, i, name, sizeof name), out);
    }
    fputc('\n', out);
    for (int64_t row = 0; row < c->classes; row++) {
        ls_csv_put(ls_class_name(names, row, name, sizeof name), out);
        for (int64_t i = 0; i < c->classes; i++)
            fprintf(out, ",%lld", (long long)c->counts[row * c->classes + i]);
        fputc('\n', out);
    }
}

/* --- text ------------------------------------------------------------------------------------------------------------ */

static int digits_of(int64_t number)
{
    int digits = 1;
    for (; number > 9; number /= 10)
        digits++;
    return digits;
}

/* The digits of the largest count and of the largest class number. */
static int widest(const struct ls_confusion *c)
{
    int64_t most = c->classes - 1;
    for (int64_t i = 0; i < c->classes * c->classes; i++)
        most = c->counts[i] > most ? c->counts[i] : most;
    return digits_of(most);
}

void ls_confusion_print(const struct ls_confusion *c, const struct ls_class_names *names, FILE *out)
{
    char name[NAME];
    int width = widest(c), number = digits_of(c->classes - 1), longest = (int)strlen("label");
    for (int64_t i = 0; i < c->classes; i++) {
        int length = ls_utf8_length(ls_class_name(names, i, name, sizeof name));
        longest = length > longest ? length : longest;
    }
    fprintf(out, "%*s  %-*s", number, "", longest, "label");
    for (int64_t i = 0; i < c->classes; i++)
        fprintf(out, "  %*lld", width, (long long)i);
    for (int64_t row = 0; row < c->classes; row++) {
        ls_class_name(names, row, name, sizeof name);
        fprintf(out, "\n%*lld  %s%*s", number, (long long)row, name, longest - ls_utf8_length(name), "");
        for (int64_t i = 0; i < c->classes; i++)
            fprintf(out, "  %*lld", width, (long long)c->counts[row * c->classes + i]);
    }
    fputc('\n', out);
}

/* --- files ----------------------------------------------------------------------------------------------------------- */

static enum ls_status write_text(const struct ls_confusion *c, const struct ls_class_names *names, const char *path,
                                 void (*put)(const struct ls_confusion *, const struct ls_class_names *, FILE *))
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return ls_fail(LS_FAILED, "out of memory");
    put(c, names, out);
    enum ls_status st = fclose(out) == 0 ? ls_file_write(path, text, size) : ls_fail(LS_FAILED, "out of memory");
    free(text);
    return st;
}

enum ls_status ls_confusion_write_csv(const struct ls_confusion *c, const struct ls_class_names *names,
                                      const char *path)
{
    return write_text(c, names, path, put_csv);
}

enum ls_status ls_confusion_write_text(const struct ls_confusion *c, const struct ls_class_names *names,
                                       const char *path)
{
    return write_text(c, names, path, ls_confusion_print);
}

/* --- pictures --------------------------------------------------------------------------------------------------------- */

/* Shrinks an image by a whole factor, by means, until its longer side is at most PICTURE_SIDE. */
static void shrink(struct ls_image *image)
{
    int longer = image->height > image->width ? image->height : image->width;
    int by = (longer + PICTURE_SIDE - 1) / PICTURE_SIDE, channels = image->channels;
    int height = image->height / by, width = image->width / by;
    if (by <= 1 || height == 0 || width == 0)
        return;
    uint8_t *to = image->pixels; /* never ahead of what is read */
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int k = 0; k < channels; k++) {
                int sum = 0;
                for (int i = 0; i < by * by; i++)
                    sum += image->pixels[((y * by + i / by) * image->width + x * by + i % by) * channels + k];
                *to++ = (uint8_t)(sum / (by * by));
            }
    image->height = height;
    image->width = width;
}

/* The picture of a sample as the network sees it, in Base64; NULL if it cannot be made, which is no failure. */
static char *picture(const struct ls_task *task, int64_t sample)
{
    struct ls_image image = {0}, scratch = {0}, seen = {0};
    const struct ls_augment *a = &task->test_augment;
    struct ls_view view = ls_augment_view(a, 0, 0, (uint64_t)sample);
    struct ls_crop crop;
    int32_t label;
    uint8_t *bytes = NULL;
    size_t size;
    char *text = NULL;
    bool muted = ls_log_mute(true);
    if ((a->channels == 1 || a->channels == 3) && ls_dataset_try(task->test, sample, &view, &image, &label) == LS_OK &&
        ls_image_reserve(&seen, (int)a->channels, (int)a->height, (int)a->width) == LS_OK &&
        ls_augment_pixels(a, &image, 0, 0, (uint64_t)sample, &scratch, seen.pixels, &crop) == LS_OK) {
        shrink(&seen);
        if (ls_png_encode(seen.pixels, seen.channels, seen.height, seen.width, &bytes, &size) == LS_OK)
            text = ls_base64(bytes, size);
    }
    ls_log_mute(muted);
    ls_free(bytes);
    ls_image_release(&image);
    ls_image_release(&scratch);
    ls_image_release(&seen);
    return text;
}

/* --- JSON --------------------------------------------------------------------------------------------------------------- */

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *class_json(const struct ls_confusion *c, const struct ls_class_names *names, int64_t class)
{
    char name[NAME];
    struct ls_class_result r = ls_confusion_class(c, class);
    return json_pack("{s:s, s:I, s:o, s:o}", "name", ls_class_name(names, class, name, sizeof name), "samples",
                     (json_int_t)r.samples, "precision", real_or_null(r.precision), "recall", real_or_null(r.recall));
}

static json_t *mistake_json(const struct ls_task *task, const struct ls_mistake *m)
{
    char where[4096] = "", spelled[4096];
    ls_dataset_where(task->test, m->sample, where, sizeof where);
    char *png = picture(task, m->sample);
    json_t *out =
        json_pack("{s:I, s:s, s:i, s:i, s:o, s:o}", "sample", (json_int_t)m->sample, "name",
                  ls_utf8_escape(where, spelled, sizeof spelled), "label", (int)m->label, "predicted",
                  (int)m->predicted, "loss", real_or_null(m->loss), "probability", real_or_null(m->probability));
    if (png)
        json_object_set_new(out, "png", json_string(png));
    ls_free(png);
    return out;
}

enum ls_status ls_confusion_write_json(const struct ls_confusion *c, const struct ls_class_names *names,
                                       const struct ls_task *task, int64_t step, const char *path)
{
    json_t *classes = json_array(), *counts = json_array(), *mistakes = json_array();
    for (int64_t i = 0; i < c->classes; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < c->classes; k++)
            json_array_append_new(row, json_integer(c->counts[i * c->classes + k]));
        json_array_append_new(classes, class_json(c, names, i));
        json_array_append_new(counts, row);
    }
    for (int i = 0; i < c->n_mistakes; i++)
        json_array_append_new(mistakes, mistake_json(task, &c->mistakes[i]));
    json_t *all = json_pack("{s:I, s:o, s:o, s:o}", "step", (json_int_t)step, "classes", classes, "counts", counts,
                            "mistakes", mistakes);
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    enum ls_status st = text ? ls_file_write(path, text, strlen(text)) : ls_fail(LS_FAILED, "out of memory");
    free(text);
    json_decref(all);
    return st;
}
