/* Statistics of rows, and comparisons between them. */
#include "base/memory.h"
#include "cmd/bench/results.h"
#include "report/stats.h"

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

/* Whether all axes are equal, apart from those that follow the workers if `apart`. */
static bool equal_axes(const json_t *a, const json_t *b, bool apart)
{
    char key[64];
    for (int i = 0; i < ls_option_count; i++) {
        if (!ls_option_table[i].axis)
            continue;
        ls_bench_key(&ls_option_table[i], key);
        if (!(apart && follows_workers(key)) && !equal(a, b, key))
            return false;
    }
    return equal(a, b, "scaling");
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

bool ls_bench_row_same(const json_t *a, const json_t *b)
{
    return equal_axes(a, b, false) && equal(a, b, "nodes") && equal(a, b, "machine");
}

bool ls_bench_row_related(const json_t *a, const json_t *b)
{
    if (!equal_axes(a, b, true))
        return false;
    if (is_weak(a))
        return number(a, "batch") * number(b, "workers") == number(b, "batch") * number(a, "workers");
    return equal(a, b, "batch");
}

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

static const json_t *base_of(const json_t *rows, const json_t *row)
{
    const json_t *base = row;
    bool found = false;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *other = json_array_get(rows, i);
        if (!is_measured(other) || !ls_bench_row_related(other, row))
            continue;
        if (!found || is_better_base(other, base, row))
            base = other;
        found = true;
    }
    return base;
}

static bool is_best(const json_t *rows, const json_t *row)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *other = json_array_get(rows, i);
        if (is_measured(other) && equal(other, row, "model") && equal(other, row, "input") &&
            number(other, "median") > number(row, "median"))
            return false;
    }
    return true;
}

enum ls_status ls_bench_rows_compare(json_t *rows)
{
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (is_measured(json_array_get(rows, i)))
            LS_TRY(add_statistics(json_array_get(rows, i)));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        if (!is_measured(row))
            continue;
        const json_t *base = base_of(rows, row);
        double speedup = number(row, "median") / number(base, "median");
        json_object_set_new(row, "speedup", json_real(speedup));
        json_object_set_new(row, "efficiency", json_real(speedup * number(base, "workers") / number(row, "workers")));
        json_object_set_new(row, "best", json_boolean(is_best(rows, row)));
    }
    return LS_OK;
}
