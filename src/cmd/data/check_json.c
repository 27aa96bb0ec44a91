#include "cmd/data/check.h"
#include "cmd/json.h"

#include "base/log.h"

#include <jansson.h>

/* Returns null for text that is missing or not UTF-8. */
static json_t *json_text(const char *text)
{
    json_t *string = text ? json_string(text) : NULL;
    return string ? string : json_null();
}

static json_t *json_figures(const struct ls_tally *t, int channels, double (*figure)(const struct ls_tally *, int))
{
    json_t *list = json_array();
    for (int c = 0; c < channels; c++)
        json_array_append_new(list, json_real(figure(t, c)));
    return list;
}

/* The indices of the classes without samples. */
static json_t *json_empty(const struct ls_data_part *p, const struct ls_dataset_info *info)
{
    json_t *empty = json_array();
    for (int64_t c = 0; c < info->classes; c++)
        if (p->class_counts[c] == 0)
            json_array_append_new(empty, json_integer(c));
    return empty;
}

static json_t *json_part(const struct ls_data_part *p)
{
    const struct ls_dataset_info *info = ls_dataset_info(p->set);
    const struct ls_tally *t = &p->tally;
    json_t *counts = json_array(), *broken = json_array();
    for (int64_t c = 0; c < info->classes; c++)
        json_array_append_new(counts, json_integer(p->class_counts[c]));
    for (int64_t b = 0; b < p->n_broken; b++) {
        char where[512];
        ls_dataset_where(p->set, p->broken[b].sample, where, sizeof where);
        json_array_append_new(broken, json_pack("{sI so so}", "sample", (json_int_t)p->broken[b].sample, "where",
                                                json_text(where), "error", json_text(p->broken[b].why)));
    }
    return json_pack("{sI so sb sI sI so so so so so so si si si si so sI}", "count", (json_int_t)info->count, "folder",
                     json_text(info->folder), "same_as_train", p->same, "smallest_class",
                     (json_int_t)p->class_counts[p->smallest], "largest_class", (json_int_t)p->class_counts[p->largest],
                     "class_counts", counts, "empty_classes", json_empty(p, info), "mean",
                     json_figures(t, (int)info->channels, ls_tally_mean), "deviation",
                     json_figures(t, (int)info->channels, ls_tally_deviation), "pixel_mean",
                     json_figures(t, (int)info->channels, ls_tally_pixel_mean), "pixel_deviation",
                     json_figures(t, (int)info->channels, ls_tally_pixel_deviation), "min_height", t->min_height,
                     "max_height", t->max_height, "min_width", t->min_width, "max_width", t->max_width, "broken",
                     broken, "ignored", (json_int_t)info->ignored);
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

enum ls_status ls_data_print_json(const char *spec, const struct ls_data_part *parts, int n)
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
