/* bench --merge: one table of results that were measured apart. */
#define _GNU_SOURCE
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/results/old_results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT ((size_t)1 << 28)

struct merge {
    const struct ls_options *o;
    json_t *rows, *sources; /* owned */
    json_t *known;          /* owned; the rows by ls_bench_row_key */
    size_t joined;          /* results of the file whose row is there already */
    const char *file;       /* that is read */
};

/* --- checking ------------------------------------------------------------------------------------------- */

static const char *kind_of(const json_t *value)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string", [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a number",    [JSON_TRUE] = "true",      [JSON_FALSE] = "false",     [JSON_NULL] = "null"};
    return value ? kinds[json_typeof(value)] : "nothing";
}

static enum ls_status refuse(const struct merge *m, size_t at, const char *key, const char *expected,
                             const json_t *found)
{
    return ls_fail(LS_BAD_INPUT, "%s: results[%zu]%s%s: expected %s, found %s", m->file, at, *key ? "." : "", key,
                   expected, kind_of(found));
}

static bool is_count(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 1;
}

static enum ls_status check_axes(const struct merge *m, size_t at, const json_t *row)
{
    char key[64];
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!option->axis)
            continue;
        bool number = option->type == LS_OPTION_WHOLE || option->type == LS_OPTION_REAL;
        const json_t *value = json_object_get(row, ls_bench_key(option, key));
        /* the batch of a row that failed may be the word `max` */
        bool word = option->word && json_is_string(value) && strcmp(json_string_value(value), option->word) == 0;
        if (value && !json_is_null(value) && !word && !(number ? json_is_number(value) : json_is_string(value)))
            return refuse(m, at, key, number ? "a number" : "a string", value);
    }
    if (!is_count(json_object_get(row, "workers")))
        return refuse(m, at, "workers", "a number of 1 or more", json_object_get(row, "workers"));
    if (json_object_get(row, "nodes") && !is_count(json_object_get(row, "nodes")))
        return refuse(m, at, "nodes", "a number of 1 or more", json_object_get(row, "nodes"));
    if (!json_is_string(json_object_get(row, "model")))
        return refuse(m, at, "model", "a string", json_object_get(row, "model"));
    if (json_object_get(row, "machine") && !json_is_string(json_object_get(row, "machine")))
        return refuse(m, at, "machine", "a string", json_object_get(row, "machine"));
    return LS_OK;
}

static enum ls_status check_row(const struct merge *m, size_t at, const json_t *row)
{
    const json_t *speeds = json_object_get(row, "repetitions");
    if (!json_is_object(row))
        return refuse(m, at, "", "an object", row);
    LS_TRY(check_axes(m, at, row));
    if (!json_is_array(speeds))
        return refuse(m, at, "repetitions", "an array of samples/s", speeds);
    if (json_array_size(speeds) == 0 && !json_is_string(json_object_get(row, "error")))
        return refuse(m, at, "repetitions", "at least one number, or an error", speeds);
    for (size_t i = 0; i < json_array_size(speeds); i++) {
        const json_t *speed = json_array_get(speeds, i);
        char key[64];
        snprintf(key, sizeof key, "repetitions[%zu]", i);
        if (!json_is_number(speed) || !(json_number_value(speed) > 0))
            return refuse(m, at, key, "a number above 0", speed);
    }
    return LS_OK;
}

/* --- reading -------------------------------------------------------------------------------------------- */

/* Adds a row, or its repetitions to the row of the same configuration and machine. */
static enum ls_status add_row(struct merge *m, json_t *row)
{
    if (!json_object_get(row, "machine"))
        json_object_set_new(row, "machine", json_string("unknown machine"));
    char *key = ls_bench_row_key(row);
    json_t *there = key ? json_object_get(m->known, key) : NULL;
    if (there) {
        json_t *speeds = json_object_get(there, "repetitions");
        json_array_extend(speeds, json_object_get(row, "repetitions"));
        if (json_array_size(speeds) > 0)
            json_object_del(there, "error");
        m->joined++;
    } else if (key) {
        json_array_append(m->rows, row);
        json_object_set(m->known, key, row);
    }
    enum ls_status st = key ? LS_OK : ls_fail(LS_FAILED, "out of memory");
    free(key);
    return st;
}

static enum ls_status read_results(struct merge *m, json_t *all)
{
    json_t *old = ls_bench_old_results(all), *results = old ? old : json_object_get(all, "results");
    enum ls_status st = LS_OK;
    if (!json_is_array(results) || json_array_size(results) == 0)
        st = ls_fail(LS_BAD_INPUT,
                     "%s: expected the JSON output of `lockstep bench`, an object with a list of results; found %s%s",
                     m->file, kind_of(all), json_is_object(all) ? " without one" : "");
    for (size_t i = 0; st == LS_OK && i < json_array_size(results); i++)
        st = check_row(m, i, json_array_get(results, i));
    m->joined = 0;
    for (size_t i = 0; st == LS_OK && i < json_array_size(results); i++)
        st = add_row(m, json_array_get(results, i));
    if (m->joined > 0 && !m->o->quiet)
        ls_progress(
            "%s: %zu of %zu results are of a configuration and machine that came before; their repetitions are added",
            m->file, m->joined, json_array_size(results));
    json_decref(old);
    return st;
}

static enum ls_status read_file(struct merge *m)
{
    char *text;
    size_t size;
    json_error_t error;
    LS_TRY(ls_file_read(m->file, LIMIT, &text, &size));
    json_t *all = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    ls_free(text);
    if (!all)
        return ls_fail(LS_BAD_INPUT, "%s:%d: expected the JSON output of `lockstep bench`: %s", m->file, error.line,
                       error.text);
    enum ls_status st = read_results(m, all);
    json_t *about = json_object_get(all, "bench");
    json_array_append_new(m->sources, json_pack("{s:s*, s:O*}", "file", m->file, "bench", about));
    json_decref(all);
    return st;
}

/* --- the table ------------------------------------------------------------------------------------------ */

static json_int_t workers_of(const json_t *row)
{
    return json_integer_value(json_object_get(row, "workers"));
}

/* Returns the place of the first row with the fewest workers. */
static size_t fewest_workers(const json_t *rows)
{
    size_t found = 0;
    for (size_t i = 1; i < json_array_size(rows); i++)
        if (workers_of(json_array_get(rows, i)) < workers_of(json_array_get(rows, found)))
            found = i;
    return found;
}

/* Rows that speed-up compares stand together, ordered by workers. Groups keep the order in which they came. */
static json_t *sort_rows(json_t *rows)
{
    json_t *sorted = json_array(), *groups = ls_bench_groups(rows), *group;
    const char *key;
    json_object_foreach(groups, key, group)
    {
        while (json_array_size(group) > 0) {
            size_t i = fewest_workers(group);
            json_array_append(sorted, json_array_get(group, i));
            json_array_remove(group, i);
        }
    }
    json_decref(groups);
    return sorted;
}

enum ls_status ls_bench_merge(const struct ls_options *o)
{
    struct merge m = {.o = o, .rows = json_array(), .known = json_object(), .sources = json_array()};
    struct ls_bench_table t = {.o = o};
    enum ls_status st = ls_bench_check_output(o);
    for (int i = 0; st == LS_OK && i < o->n_args; i++) {
        m.file = o->args[i];
        st = read_file(&m);
    }
    t.rows = sort_rows(m.rows);
    if (st == LS_OK)
        st = ls_bench_rows_compare(t.rows);
    if (st == LS_OK) {
        char machine[512];
        ls_bench_machine("", machine, sizeof machine);
        t.about = ls_bench_about(o, machine);
        json_object_set(t.about, "sources", m.sources);
        st = ls_bench_write(&t);
    }
    ls_bench_table_release(&t);
    json_decref(m.rows);
    json_decref(m.known);
    json_decref(m.sources);
    return st;
}
