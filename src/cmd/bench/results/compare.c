/* Statistics of rows, and comparisons between them. */
#include "base/memory.h"
#include "cmd/bench/results/results.h"
#include "report/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The values that depend on the number of workers. */
static bool follows_workers(const char *key)
{
    return strcmp(key, "workers") == 0 || strcmp(key, "replicas") == 0 || strcmp(key, "batch") == 0;
}

static bool equal(const json_t *a, const json_t *b, const char *key)
{
    const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);
    return (!x && !y) || json_equal(x, y);
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static bool is_weak(const json_t *row)
{
    const char *scaling = json_string_value(json_object_get(row, "scaling"));
    return scaling && strcmp(scaling, "weak") == 0;
}

/* --- keys ----------------------------------------------------------------------------------------------- */

static void add_value(json_t *list, const json_t *row, const char *key)
{
    json_t *value = json_object_get(row, key);
    json_array_append_new(list, value ? json_incref(value) : json_null());
}

/* The values of all axes, apart from those that follow the workers if `apart`. */
static json_t *axis_values(const json_t *row, bool apart)
{
    char key[64];
    json_t *list = json_array();
    for (int i = 0; i < ls_option_count; i++)
        if (ls_option_table[i].axis && !(apart && follows_workers(ls_bench_key(&ls_option_table[i], key))))
            add_value(list, row, ls_bench_key(&ls_option_table[i], key));
    add_value(list, row, "scaling");
    return list;
}

static char *text_of(json_t *list)
{
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

char *ls_bench_row_key(const json_t *row)
{
    json_t *list = axis_values(row, false);
    add_value(list, row, "nodes");
    add_value(list, row, "machine");
    return text_of(list);
}

static char *group_key(const json_t *row)
{
    json_t *list = axis_values(row, true);
    if (is_weak(row))
        json_array_append_new(list, json_real(number(row, "batch") / number(row, "workers")));
    else
        add_value(list, row, "batch");
    return text_of(list);
}

/* Appends the row to the array of that key. */
static void put_into(json_t *groups, const char *key, json_t *row)
{
    json_t *group = key ? json_object_get(groups, key) : NULL;
    if (!group && key) {
        group = json_array();
        json_object_set_new(groups, key, group);
    }
    json_array_append(group, row);
}

json_t *ls_bench_groups(json_t *rows)
{
    json_t *groups = json_object();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char *key = group_key(json_array_get(rows, i));
        put_into(groups, key, json_array_get(rows, i));
        free(key);
    }
    return groups;
}

/* --- figures -------------------------------------------------------------------------------------------- */

static bool is_measured(const json_t *row)
{
    return json_array_size(json_object_get(row, "repetitions")) > 0;
}

static enum ls_status add_statistics(json_t *row)
{
    const json_t *list = json_object_get(row, "repetitions");
    int n = (int)json_array_size(list);
    struct ls_stats s;
    double *speed = ls_alloc((size_t)n, sizeof *speed);
    if (!speed)
        return LS_FAILED;
    for (int i = 0; i < n; i++)
        speed[i] = json_number_value(json_array_get(list, (size_t)i));
    enum ls_status st = ls_stats_of(speed, n, &s);
    ls_free(speed);
    if (st != LS_OK)
        return st;
    json_object_set_new(row, "median", json_real(s.median));
    json_object_set_new(row, "mean", json_real(s.mean));
    json_object_set_new(row, "deviation", json_real(s.deviation));
    json_object_set_new(row, "variation", json_real(s.variation));
    return LS_OK;
}

/* Whether a is the better base for the speed-up of `row`. */
static bool is_better_base(const json_t *a, const json_t *b, const json_t *row)
{
    if (number(a, "workers") != number(b, "workers"))
        return number(a, "workers") < number(b, "workers");
    int of_a = 2 * equal(a, row, "machine") + equal(a, row, "replicas");
    int of_b = 2 * equal(b, row, "machine") + equal(b, row, "replicas");
    return of_a > of_b;
}

/* Returns the row of the group that the speed-up of `row` is relative to. */
static const json_t *base_of(const json_t *group, const json_t *row)
{
    const json_t *base = NULL;
    for (size_t i = 0; i < json_array_size(group); i++) {
        const json_t *other = json_array_get(group, i);
        if (is_measured(other) && (!base || is_better_base(other, base, row)))
            base = other;
    }
    return base;
}

static void compare_group(const json_t *group)
{
    for (size_t i = 0; i < json_array_size(group); i++) {
        json_t *row = json_array_get(group, i);
        if (!is_measured(row))
            continue;
        const json_t *base = base_of(group, row);
        double speedup = number(row, "median") / number(base, "median");
        json_object_set_new(row, "speedup", json_real(speedup));
        json_object_set_new(row, "efficiency", json_real(speedup * number(base, "workers") / number(row, "workers")));
    }
}

/* Marks the fastest rows of each model and input. */
static void mark_best(json_t *rows)
{
    json_t *models = json_object(), *group;
    const char *key;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i), *list = json_array();
        add_value(list, row, "model");
        add_value(list, row, "input");
        char *text = text_of(list);
        if (is_measured(row))
            put_into(models, text, row);
        free(text);
    }
    json_object_foreach(models, key, group)
    {
        double most = 0;
        for (size_t i = 0; i < json_array_size(group); i++)
            most = fmax(most, number(json_array_get(group, i), "median"));
        for (size_t i = 0; i < json_array_size(group); i++)
            json_object_set_new(json_array_get(group, i), "best",
                                json_boolean(number(json_array_get(group, i), "median") == most));
    }
    json_decref(models);
}

enum ls_status ls_bench_rows_compare(json_t *rows)
{
    const char *key;
    json_t *group;
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (is_measured(json_array_get(rows, i)))
            LS_TRY(add_statistics(json_array_get(rows, i)));
    json_t *groups = ls_bench_groups(rows);
    json_object_foreach(groups, key, group) compare_group(group);
    json_decref(groups);
    mark_best(rows);
    return LS_OK;
}
