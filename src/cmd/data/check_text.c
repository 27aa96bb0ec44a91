#include "cmd/data/check.h"

#include "base/log.h"
#include "report/formats/table.h"

#include <inttypes.h>
#include <string.h>

/* Data sets with more classes than this are not listed class by class. */
#define LISTED_CLASSES 20

static const char *size_text(const struct ls_tally *t, char text[64])
{
    if (t->min_height == t->max_height && t->min_width == t->max_width)
        snprintf(text, 64, "%dx%d", t->max_width, t->max_height);
    else
        snprintf(text, 64, "%dx%d to %dx%d", t->min_width, t->min_height, t->max_width, t->max_height);
    return text;
}

static const char *figures_text(const struct ls_tally *t, int channels, double (*figure)(const struct ls_tally *, int),
                                char text[64])
{
    int used = 0;
    text[0] = 0;
    for (int c = 0; c < channels; c++)
        used += snprintf(text + used, 64 - (size_t)used, "%s%.4f", c ? " " : "", figure(t, c));
    return text;
}

static enum ls_status print_parts(const struct ls_data_part *parts, int n)
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
        ls_table_cell(&t, "%s", figures_text(&parts[p].tally, (int)info->channels, ls_tally_mean, text));
        ls_table_cell(&t, "%s", figures_text(&parts[p].tally, (int)info->channels, ls_tally_deviation, text));
        ls_table_cell(&t, "%" PRId64, parts[p].n_broken);
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static enum ls_status print_classes(const struct ls_dataset_info *info, const struct ls_data_part *parts)
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

enum ls_status ls_data_print_text(const char *spec, const struct ls_data_part parts[2])
{
    const struct ls_data_part *train = &parts[0];
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
