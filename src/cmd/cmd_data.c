/* lockstep data [DATA]: prints what a data set holds and checks that every file of it can be read. */
#include "cmd/cmd.h"
#include "cmd/json.h"

#include "base/log.h"
#include "base/memory.h"
#include "data/data.h"
#include "report/console.h"
#include "report/formats/table.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Data sets with more classes than this are not listed class by class. */
#define LISTED_CLASSES 20

struct broken {
    int64_t sample;
    char why[200];
};

/* The mean over the pixels of an image is an integer in units of 1/SHARES grey levels. */
#define SHARES ((int64_t)1 << 20)

/* Sums over all pixels, and sums over all images of the mean of each image. They are integers, so that the result
 * does not depend on how threads share the work. */
struct tally {
    int64_t pixels, sum[3], squares[3];
    int64_t images, image_sum[3], image_squares[3];
    int min_height, max_height, min_width, max_width;
};

struct part {
    const char *name;
    struct ls_dataset *set;    /* owned; NULL when it could not be opened */
    int64_t *class_counts;     /* owned */
    int64_t smallest, largest; /* the classes with the fewest and the most samples */
    struct tally tally;
    struct broken *broken; /* owned; sorted by sample */
    int64_t n_broken, room;
    bool same; /* the images are those of the previous part */
};

/* --- checking every sample ---------------------------------------------------------------------------- */

static void tally_image(struct tally *t, const struct ls_image *image)
{
    int64_t pixels = (int64_t)image->height * image->width;
    for (int c = 0; c < image->channels; c++) {
        int64_t sum = 0, squares = 0;
        const uint8_t *p = image->pixels + c;
        for (int64_t i = 0; i < pixels; i++, p += image->channels) {
            sum += *p;
            squares += *p * *p;
        }
        t->sum[c] += sum;
        t->squares[c] += squares;
        t->image_sum[c] += (int64_t)((double)sum / (double)pixels * SHARES + 0.5);
        t->image_squares[c] += (int64_t)((double)squares / (double)pixels * SHARES + 0.5);
    }
    t->images++;
    if (t->pixels == 0 || image->height < t->min_height)
        t->min_height = image->height;
    if (t->pixels == 0 || image->width < t->min_width)
        t->min_width = image->width;
    t->max_height = image->height > t->max_height ? image->height : t->max_height;
    t->max_width = image->width > t->max_width ? image->width : t->max_width;
    t->pixels += pixels;
}

static void tally_add(struct tally *all, const struct tally *t)
{
    if (t->pixels == 0)
        return;
    if (all->pixels == 0 || t->min_height < all->min_height)
        all->min_height = t->min_height;
    if (all->pixels == 0 || t->min_width < all->min_width)
        all->min_width = t->min_width;
    all->max_height = t->max_height > all->max_height ? t->max_height : all->max_height;
    all->max_width = t->max_width > all->max_width ? t->max_width : all->max_width;
    all->pixels += t->pixels;
    for (int c = 0; c < 3; c++) {
        all->sum[c] += t->sum[c];
        all->squares[c] += t->squares[c];
        all->image_sum[c] += t->image_sum[c];
        all->image_squares[c] += t->image_squares[c];
    }
    all->images += t->images;
}

static enum ls_status add_broken(struct part *p, int64_t sample, const char *why)
{
    if (p->n_broken == p->room) {
        int64_t room = p->room ? 2 * p->room : 64;
        struct broken *larger = ls_realloc(p->broken, (size_t)p->room, (size_t)room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        p->broken = larger;
        p->room = room;
    }
    p->broken[p->n_broken].sample = sample;
    snprintf(p->broken[p->n_broken++].why, sizeof p->broken->why, "%s", why);
    return LS_OK;
}

static int by_sample(const void *a, const void *b)
{
    int64_t x = ((const struct broken *)a)->sample, y = ((const struct broken *)b)->sample;
    return (x > y) - (x < y);
}

static enum ls_status check_samples(struct part *p, struct ls_console *console, int threads)
{
    int64_t count = ls_dataset_info(p->set)->count, done = 0;
    enum ls_status st = LS_OK;
    char what[64];
    snprintf(what, sizeof what, "checking %s", p->name);
#pragma omp parallel num_threads(threads)
    {
        struct ls_image image = {0};
        struct tally mine = {0};
#pragma omp for schedule(dynamic, 16)
        for (int64_t i = 0; i < count; i++) {
            int32_t label;
            int64_t now;
            if (ls_dataset_try(p->set, i, NULL, &image, &label) == LS_OK)
                tally_image(&mine, &image);
            else
#pragma omp critical(broken)
                if (add_broken(p, i, image.why) != LS_OK)
                st = LS_FAILED;
#pragma omp atomic capture
            now = ++done;
            if (omp_get_thread_num() == 0)
                ls_console_progress(console, what, now, count);
        }
#pragma omp critical(tally)
        tally_add(&p->tally, &mine);
        ls_image_release(&image);
    }
    if (p->n_broken > 1)
        qsort(p->broken, (size_t)p->n_broken, sizeof *p->broken, by_sample);
    return st;
}

static enum ls_status count_classes(struct part *p)
{
    const struct ls_dataset_info *info = ls_dataset_info(p->set);
    p->class_counts = ls_alloc((size_t)info->classes, sizeof *p->class_counts);
    if (!p->class_counts)
        return LS_FAILED;
    for (int64_t i = 0; i < info->count; i++)
        p->class_counts[ls_dataset_label(p->set, i)]++;
    for (int64_t c = 1; c < info->classes; c++) {
        p->smallest = p->class_counts[c] < p->class_counts[p->smallest] ? c : p->smallest;
        p->largest = p->class_counts[c] > p->class_counts[p->largest] ? c : p->largest;
    }
    return LS_OK;
}

/* True when both parts read the same folder, because it has no train and test parts. Its images are then checked
 * once. */
static bool same_images(const struct part *p, const struct part *before)
{
    const char *folder = ls_dataset_info(p->set)->folder;
    const char *other = before && before->set ? ls_dataset_info(before->set)->folder : NULL;
    return folder && other && strcmp(folder, other) == 0 &&
           ls_dataset_info(p->set)->count == ls_dataset_info(before->set)->count;
}

static enum ls_status examine(struct part *p, const struct part *before, const char *spec, const char *decode,
                              struct ls_console *console, int threads)
{
    LS_TRY(ls_dataset_open(spec, p->name, &p->set));
    if (!before)
        ls_dataset_warn_inner(p->set, spec);
    enum ls_status st = ls_dataset_decode_by(p->set, decode);
    p->same = same_images(p, before);
    if (st == LS_OK)
        st = count_classes(p);
    if (st == LS_OK && p->same)
        p->tally = before->tally;
    else if (st == LS_OK)
        st = check_samples(p, console, threads);
    if (st != LS_OK) {
        ls_dataset_close(p->set);
        p->set = NULL;
    }
    return st;
}

static double pixel_mean(const struct tally *t, int c)
{
    return t->pixels ? (double)t->sum[c] / (double)t->pixels / 255 : 0;
}

static double deviation_about(double mean, double squares)
{
    return squares > mean * mean ? sqrt(squares - mean * mean) : 0;
}

static double pixel_deviation(const struct tally *t, int c)
{
    return deviation_about(pixel_mean(t, c), t->pixels ? (double)t->squares[c] / (double)t->pixels / (255.0 * 255) : 0);
}

/* Every image has the same weight, whatever its size, because all images have one size in training. */
static double mean_of(const struct tally *t, int c)
{
    return t->images ? (double)t->image_sum[c] / SHARES / (double)t->images / 255 : 0;
}

static double deviation_of(const struct tally *t, int c)
{
    return deviation_about(mean_of(t, c),
                           t->images ? (double)t->image_squares[c] / SHARES / (double)t->images / (255.0 * 255) : 0);
}

/* --- JSON --------------------------------------------------------------------------------------------- */

/* Returns null for text that is missing or not UTF-8. */
static json_t *json_text(const char *text)
{
    json_t *string = text ? json_string(text) : NULL;
    return string ? string : json_null();
}

static json_t *json_figures(const struct tally *t, int channels, double (*figure)(const struct tally *, int))
{
    json_t *list = json_array();
    for (int c = 0; c < channels; c++)
        json_array_append_new(list, json_real(figure(t, c)));
    return list;
}

/* The indices of the classes without samples. */
static json_t *json_empty(const struct part *p, const struct ls_dataset_info *info)
{
    json_t *empty = json_array();
    for (int64_t c = 0; c < info->classes; c++)
        if (p->class_counts[c] == 0)
            json_array_append_new(empty, json_integer(c));
    return empty;
}

static json_t *json_part(const struct part *p)
{
    const struct ls_dataset_info *info = ls_dataset_info(p->set);
    const struct tally *t = &p->tally;
    json_t *counts = json_array(), *broken = json_array();
    for (int64_t c = 0; c < info->classes; c++)
        json_array_append_new(counts, json_integer(p->class_counts[c]));
    for (int64_t b = 0; b < p->n_broken; b++) {
        char where[512];
        ls_dataset_where(p->set, p->broken[b].sample, where, sizeof where);
        json_array_append_new(broken, json_pack("{sI so so}", "sample", (json_int_t)p->broken[b].sample, "where",
                                                json_text(where), "error", json_text(p->broken[b].why)));
    }
    return json_pack(
        "{sI so sb sI sI so so so so so so si si si si so sI}", "count", (json_int_t)info->count, "folder",
        json_text(info->folder), "same_as_train", p->same, "smallest_class", (json_int_t)p->class_counts[p->smallest],
        "largest_class", (json_int_t)p->class_counts[p->largest], "class_counts", counts, "empty_classes",
        json_empty(p, info), "mean", json_figures(t, (int)info->channels, mean_of), "deviation",
        json_figures(t, (int)info->channels, deviation_of), "pixel_mean",
        json_figures(t, (int)info->channels, pixel_mean), "pixel_deviation",
        json_figures(t, (int)info->channels, pixel_deviation), "min_height", t->min_height, "max_height", t->max_height,
        "min_width", t->min_width, "max_width", t->max_width, "broken", broken, "ignored", (json_int_t)info->ignored);
}

static json_t *json_names(const struct ls_dataset_info *info)
{
    if (!info->class_names)
        return json_null();
    json_t *names = json_array();
    for (int64_t c = 0; c < info->classes; c++)
        json_array_append_new(names, json_text(info->class_names[c]));
    return names;
}

static json_t *json_floats(const float *values, int n)
{
    json_t *list = json_array();
    for (int c = 0; c < n; c++)
        json_array_append_new(list, json_real((double)values[c]));
    return list;
}

static enum ls_status print_json(const char *spec, const struct part *parts, int n)
{
    json_t *root = NULL;
    for (int p = 0; p < n; p++) {
        if (!parts[p].set)
            continue;
        const struct ls_dataset_info *info = ls_dataset_info(parts[p].set);
        if (!root)
            root = json_pack("{so ss sI sI sI sI so so so}", "data", json_text(spec), "format", info->format,
                             "channels", (json_int_t)info->channels, "height", (json_int_t)info->height, "width",
                             (json_int_t)info->width, "classes", (json_int_t)info->classes, "class_names",
                             json_names(info), "normalised_by_mean", json_floats(info->mean, (int)info->channels),
                             "normalised_by_deviation", json_floats(info->deviation, (int)info->channels));
        json_object_set_new(root, parts[p].name, json_part(&parts[p]));
    }
    if (!root || ls_json_print(root, JSON_INDENT(2)) != 0 || fputc('\n', stdout) == EOF) {
        json_decref(root);
        return ls_fail(LS_FAILED, "the JSON could not be written");
    }
    json_decref(root);
    return LS_OK;
}

/* --- text output -------------------------------------------------------------------------------------- */

static const char *size_text(const struct tally *t, char text[64])
{
    if (t->min_height == t->max_height && t->min_width == t->max_width)
        snprintf(text, 64, "%dx%d", t->max_width, t->max_height);
    else
        snprintf(text, 64, "%dx%d to %dx%d", t->min_width, t->min_height, t->max_width, t->max_height);
    return text;
}

static const char *figures_text(const struct tally *t, int channels, double (*figure)(const struct tally *, int),
                                char text[64])
{
    int used = 0;
    text[0] = 0;
    for (int c = 0; c < channels; c++)
        used += snprintf(text + used, 64 - (size_t)used, "%s%.4f", c ? " " : "", figure(t, c));
    return text;
}

static enum ls_status print_parts(const struct part *parts, int n)
{
    static const char *const headings[] = {"part", "samples", "a class", "size", "mean", "deviation", "broken"};
    struct ls_table t;
    ls_table_init(&t, "lrrlllr", headings);
    for (int p = 0; p < n; p++) {
        if (!parts[p].set || parts[p].same)
            continue;
        const struct ls_dataset_info *info = ls_dataset_info(parts[p].set);
        int64_t fewest = parts[p].class_counts[parts[p].smallest], most = parts[p].class_counts[parts[p].largest];
        char text[64];
        ls_table_row(&t);
        ls_table_cell(&t, "%s", p + 1 < n && parts[p + 1].same ? "both" : parts[p].name);
        ls_table_cell(&t, "%" PRId64, info->count);
        if (fewest == most)
            ls_table_cell(&t, "%" PRId64, most);
        else
            ls_table_cell(&t, "%" PRId64 " to %" PRId64, fewest, most);
        ls_table_cell(&t, "%s", size_text(&parts[p].tally, text));
        ls_table_cell(&t, "%s", figures_text(&parts[p].tally, (int)info->channels, mean_of, text));
        ls_table_cell(&t, "%s", figures_text(&parts[p].tally, (int)info->channels, deviation_of, text));
        ls_table_cell(&t, "%" PRId64, parts[p].n_broken);
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static enum ls_status print_classes(const struct ls_dataset_info *info, const struct part *parts)
{
    static const char *const named[] = {"class", "name", "train", "test"}, *const bare[] = {"class", "train", "test"};
    struct ls_table t;
    ls_table_init(&t, info->class_names ? "rlrr" : "rrr", info->class_names ? named : bare);
    for (int64_t c = 0; c < info->classes; c++) {
        ls_table_row(&t);
        ls_table_cell(&t, "%" PRId64, c);
        if (info->class_names)
            ls_table_cell(&t, "%s", info->class_names[c]);
        for (int p = 0; p < 2; p++)
            if (parts[p].set)
                ls_table_cell(&t, "%" PRId64, parts[p].class_counts[c]);
            else
                ls_table_cell(&t, "-");
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static void print_normalisation(const struct ls_dataset_info *info)
{
    char mean[64] = "", deviation[64] = "";
    for (int c = 0; c < info->channels && c < 4; c++) {
        size_t a = strlen(mean), b = strlen(deviation);
        snprintf(mean + a, sizeof mean - a, "%s%.4f", c ? " " : "", (double)info->mean[c]);
        snprintf(deviation + b, sizeof deviation - b, "%s%.4f", c ? " " : "", (double)info->deviation[c]);
    }
    ls_print(
        "mean and deviation are of values from 0 to 1, and each image counts the same; training normalises with mean "
        "%s, deviation %s",
        mean, deviation);
}

static enum ls_status print_text(const char *spec, const struct part *parts)
{
    const struct part *train = &parts[0];
    const struct ls_dataset_info *info = ls_dataset_info(train->set);
    ls_print("%s: %s, %" PRId64 " classes, %s", spec, info->format, info->classes,
             info->channels == 1 ? "grey" : "colour");
    for (int p = 0; p < 2; p++)
        if (parts[p].set && !parts[p].same && ls_dataset_info(parts[p].set)->folder)
            ls_print("%s: %s", p == 0 && parts[1].same ? "both" : parts[p].name, ls_dataset_info(parts[p].set)->folder);
    for (int p = 0; p < 2; p++)
        if (parts[p].set && !parts[p].same && ls_dataset_info(parts[p].set)->ignored > 0)
            ls_print("%s: %" PRId64 " ignored, without the extension of an image (the first: %s)", parts[p].name,
                     ls_dataset_info(parts[p].set)->ignored, ls_dataset_info(parts[p].set)->ignored_name);
    LS_TRY(print_parts(parts, 2));
    print_normalisation(info);
    if (info->classes <= LISTED_CLASSES) {
        ls_print("%s", "");
        LS_TRY(print_classes(info, parts));
    } else if (info->class_names && train->class_counts[train->smallest] < train->class_counts[train->largest]) {
        ls_print("fewest: %s (%" PRId64 "), most: %s (%" PRId64 ")", info->class_names[train->smallest],
                 train->class_counts[train->smallest], info->class_names[train->largest],
                 train->class_counts[train->largest]);
    }
    return LS_OK;
}

static void name_broken(const struct part *p)
{
    for (int64_t b = 0; b < p->n_broken; b++) {
        char where[512];
        ls_dataset_where(p->set, p->broken[b].sample, where, sizeof where);
        ls_fail(LS_BAD_INPUT, "%s: %s", where, p->broken[b].why);
    }
}

enum ls_status ls_cmd_data(struct ls_options *o)
{
    struct part parts[2] = {{.name = "train"}, {.name = "test"}};
    const char *spec = o->n_args > 0 ? o->args[0] : o->data;
    struct ls_console console;
    enum ls_status st = LS_OK;
    if (o->n_args > 1)
        return ls_fail(LS_USAGE, "one data set at a time: '%s' is one too many", o->args[1]);
    int threads = o->loader_threads > 0 ? (int)o->loader_threads : omp_get_max_threads();
    ls_console_begin(&console, o, 0);
    for (int p = 0; p < 2 && st == LS_OK; p++)
        st = examine(&parts[p], p > 0 ? &parts[p - 1] : NULL, spec, o->decode, &console, threads);
    ls_console_end(&console);
    if (parts[0].set) {
        enum ls_status printed = o->json ? print_json(spec, parts, 2) : print_text(spec, parts);
        st = st == LS_OK ? printed : st;
    }
    for (int p = 0; p < 2; p++) {
        if (parts[p].set)
            name_broken(&parts[p]);
        if (parts[p].n_broken && st == LS_OK)
            st = LS_BAD_INPUT;
        ls_dataset_close(parts[p].set);
        ls_free(parts[p].class_counts);
        ls_free(parts[p].broken);
    }
    return st;
}
