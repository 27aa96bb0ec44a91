#include "cmd/bench/results/old_results.h"

#include <stdio.h>
#include <string.h>

static void copy(json_t *row, const char *key, const json_t *from, const char *old)
{
    json_t *value = json_object_get(from, old);
    if (value)
        json_object_set(row, key, value);
}

/* [3, 32, 32] -> "3x32x32" */
static void copy_input(json_t *row, const json_t *all)
{
    const json_t *input = json_object_get(all, "input");
    char text[96];
    if (json_array_size(input) != 3)
        return;
    snprintf(text, sizeof text, "%lldx%lldx%lld", (long long)json_integer_value(json_array_get(input, 0)),
             (long long)json_integer_value(json_array_get(input, 1)),
             (long long)json_integer_value(json_array_get(input, 2)));
    json_object_set_new(row, "input", json_string(text));
}

static json_t *row_of(const json_t *all, const json_t *entry)
{
    static const char *const keys[] = {"model", "threads", "dtype", "backend", "accumulate"};
    json_t *row = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        copy(row, keys[i], all, keys[i]);
    copy_input(row, all);
    copy(row, "replicas", entry, "replicas");
    copy(row, "batch", entry, "batch");
    copy(row, "workers", entry, "workers");
    copy(row, "repetitions", entry, "samples_per_s_repeats");
    copy(row, "step_ms", entry, "step_ms_median");
    json_object_set_new(row, "scaling", json_string("strong"));
    copy(row, "scaling", all, "scaling");
    return row;
}

json_t *ls_bench_old_results(const json_t *all)
{
    const char *kind = json_string_value(json_object_get(all, "kind"));
    const json_t *entries = json_object_get(all, "entries");
    if (!kind || json_object_get(all, "results"))
        return NULL;
    json_t *rows = json_array();
    if (strcmp(kind, "bench") == 0)
        json_array_append_new(rows, row_of(all, all));
    for (size_t i = 0; strcmp(kind, "scale") == 0 && i < json_array_size(entries); i++)
        json_array_append_new(rows, row_of(all, json_array_get(entries, i)));
    if (json_array_size(rows) > 0)
        return rows;
    json_decref(rows);
    return NULL;
}
