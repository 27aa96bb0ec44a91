#define _GNU_SOURCE
#include "cmd/report/inputs/bench_file.h"
#include "base/files/file.h"
#include "base/log.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT = 256 << 20 };

static const char *text_of(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : otherwise;
}

static int64_t whole_of(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? (int64_t)json_number_value(value) : otherwise;
}

/* --- rows ------------------------------------------------------------------------------------------------------- */

/* "bf16, sync server, compress fp16": what differs from the usual. */
static const char *setting_of(struct ls_bench_file *v, const json_t *row)
{
    char text[256];
    const char *sync = text_of(row, "sync", ""), *compress = text_of(row, "compress", ""), *dtype, *backend;
    dtype = text_of(row, "dtype", "");
    backend = text_of(row, "backend", "");
    bool odd = *sync && strcmp(sync, "overlap") != 0, packed = *compress && strcmp(compress, "none") != 0;
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s", backend, *backend && *dtype ? " " : "", dtype, odd ? ", sync " : "",
             odd ? sync : "", packed ? ", compress " : "", packed ? compress : "");
    return ls_arena_strdup(&v->strings, text);
}

static void set_repetitions(struct ls_measured *r, const json_t *row)
{
    const json_t *list = json_object_get(row, "repetitions");
    if (!list)
        list = json_object_get(row, "samples_per_s_repeats");
    for (size_t i = 0; i < json_array_size(list) && r->n_repetitions < LS_BENCH_REPETITIONS; i++) {
        double speed = json_number_value(json_array_get(list, i));
        if (speed > 0 && isfinite(speed))
            r->repetitions[r->n_repetitions++] = speed;
    }
    double median = json_number_value(json_object_get(row, "median"));
    if (r->n_repetitions == 0 && median > 0)
        r->repetitions[r->n_repetitions++] = median;
}

/* Adds a result; `common` has what all results of the file share. A result without a speed is passed over. */
static enum ls_status add_row(struct ls_bench_file *v, const json_t *row, const json_t *common)
{
    if (v->n_rows == v->room_rows) {
        int room = v->room_rows ? 2 * v->room_rows : 16;
        struct ls_measured *larger = ls_realloc(v->rows, (size_t)v->room_rows, (size_t)room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        v->rows = larger;
        v->room_rows = room;
    }
    struct ls_measured r = {.speedup = NAN, .efficiency = NAN};
    r.model = ls_arena_strdup(&v->strings, text_of(row, "model", text_of(common, "model", "?")));
    r.setting = setting_of(v, row);
    r.batch = whole_of(row, "batch", whole_of(common, "batch", 0));
    r.threads = whole_of(row, "threads", whole_of(common, "threads", 0));
    r.workers = whole_of(row, "workers", 1);
    r.nodes = whole_of(row, "nodes", 1);
    set_repetitions(&r, row);
    if (!r.model || !r.setting)
        return LS_FAILED;
    if (r.n_repetitions == 0)
        return LS_OK;
    LS_TRY(ls_stats_of(r.repetitions, r.n_repetitions, &r.stats));
    v->rows[v->n_rows++] = r;
    return LS_OK;
}

static enum ls_status add_rows(struct ls_bench_file *v, const json_t *list, const json_t *common)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        LS_TRY(add_row(v, json_array_get(list, i), common));
    return LS_OK;
}

static enum ls_status add_node(struct ls_bench_file *v, const json_t *node)
{
    if (v->n_nodes == v->room_nodes) {
        int room = v->room_nodes ? 2 * v->room_nodes : 64;
        struct ls_bench_node *larger = ls_realloc(v->nodes, (size_t)v->room_nodes, (size_t)room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        v->nodes = larger;
        v->room_nodes = room;
    }
    struct ls_bench_node n = {.layer = ls_arena_strdup(&v->strings, text_of(node, "layer", "?")),
                              .op = ls_arena_strdup(&v->strings, text_of(node, "op", "?")),
                              .ms = json_number_value(json_object_get(node, "ms")),
                              .bytes = json_number_value(json_object_get(node, "bytes")),
                              .operations = json_number_value(json_object_get(node, "operations"))};
    if (!n.layer || !n.op)
        return LS_FAILED;
    v->nodes[v->n_nodes++] = n;
    return LS_OK;
}

static void add_peaks(struct ls_bench_file *v, const json_t *peaks)
{
    double bytes = json_number_value(json_object_get(peaks, "bytes_per_second"));
    double operations = json_number_value(json_object_get(peaks, "operations_per_second"));
    if (!(bytes > 0 && operations > 0))
        return;
    v->peak_bytes = bytes;
    v->peak_operations = operations;
}

static enum ls_status take(struct ls_bench_file *v, const json_t *value)
{
    const char *kind = text_of(value, "kind", "");
    const json_t *about = json_object_get(value, "bench"), *profile = json_object_get(value, "profile");
    if (json_is_object(about) && json_is_string(json_object_get(about, "machine")))
        v->machine = ls_arena_strdup(&v->strings, text_of(about, "machine", ""));
    for (size_t i = 0; i < json_array_size(profile); i++)
        LS_TRY(add_node(v, json_array_get(profile, i)));
    if (json_is_array(json_object_get(value, "results")))
        return add_rows(v, json_object_get(value, "results"), about);
    if (strcmp(kind, "scale") == 0)
        return add_rows(v, json_object_get(value, "entries"), value);
    if (strcmp(kind, "bench") == 0)
        return add_row(v, value, NULL);
    if (strcmp(kind, "peaks") == 0)
        add_peaks(v, value);
    return strcmp(kind, "node") == 0 ? add_node(v, value) : LS_OK;
}

/* --- labels and speed-ups --------------------------------------------------------------------------------------- */

static bool same_kind(const struct ls_measured *a, const struct ls_measured *b)
{
    return strcmp(a->model, b->model) == 0 && strcmp(a->setting, b->setting) == 0 && a->threads == b->threads;
}

/* Tests whether two rows differ in the batch alone: then the batch is no part of scaling and goes into the label. */
static bool has_batches(const struct ls_bench_file *v)
{
    for (int i = 0; i < v->n_rows; i++)
        for (int j = 0; j < i; j++)
            if (same_kind(&v->rows[i], &v->rows[j]) && v->rows[i].workers == v->rows[j].workers &&
                v->rows[i].nodes == v->rows[j].nodes && v->rows[i].batch != v->rows[j].batch)
                return true;
    return false;
}

static bool has_threads(const struct ls_bench_file *v)
{
    for (int i = 1; i < v->n_rows; i++)
        if (v->rows[i].threads != v->rows[0].threads)
            return true;
    return false;
}

static enum ls_status set_labels(struct ls_bench_file *v)
{
    bool batches = has_batches(v), threads = has_threads(v);
    for (int i = 0; i < v->n_rows; i++) {
        struct ls_measured *r = &v->rows[i];
        char batch[40] = "", of_threads[40] = "";
        if (batches)
            snprintf(batch, sizeof batch, ", batch %lld", (long long)r->batch);
        if (threads)
            snprintf(of_threads, sizeof of_threads, ", %lld threads", (long long)r->threads);
        r->label = ls_arena_format(&v->strings, "%s%s%s%s%s", r->model, *r->setting ? ", " : "", r->setting, batch,
                                   of_threads);
        if (!r->label)
            return LS_FAILED;
    }
    return LS_OK;
}

static void set_speedups(struct ls_bench_file *v)
{
    for (int i = 0; i < v->n_rows; i++) {
        struct ls_measured *r = &v->rows[i], *first = r;
        int same = 0;
        for (int j = 0; j < v->n_rows; j++) {
            struct ls_measured *other = &v->rows[j];
            if (strcmp(other->label, r->label) != 0)
                continue;
            same++;
            first = other->workers < first->workers ? other : first;
        }
        if (same < 2 || r->workers < 1 || first->workers < 1)
            continue;
        r->speedup = r->stats.median / first->stats.median;
        r->efficiency = r->speedup * (double)first->workers / (double)r->workers;
    }
}

/* --- the file --------------------------------------------------------------------------------------------------- */

static enum ls_status take_all(struct ls_bench_file *v, const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        json_error_t error;
        at += strspn(text + at, " \t\r\n");
        if (at >= size)
            break;
        json_t *value = json_loadb(text + at, size - at, JSON_DISABLE_EOF_CHECK, &error);
        if (!value)
            return ls_fail(LS_BAD_INPUT,
                           "%s: not a file of results: expected JSON as `lockstep bench --json` writes it, found: %s",
                           v->path, error.text);
        enum ls_status st = take(v, value);
        json_decref(value);
        LS_TRY(st);
        at += (size_t)error.position;
    }
    if (v->n_rows == 0 && v->n_nodes == 0)
        return ls_fail(LS_BAD_INPUT, "%s: holds no results of `lockstep bench --json`", v->path);
    return LS_OK;
}

enum ls_status ls_bench_file_load(struct ls_bench_file *v, const char *path)
{
    char *text;
    size_t size;
    *v = (struct ls_bench_file){0};
    v->path = ls_strdup(path);
    if (!v->path)
        return LS_FAILED;
    LS_TRY(ls_file_read(path, LIMIT, &text, &size));
    enum ls_status st = take_all(v, text, size);
    if (st == LS_OK)
        st = set_labels(v);
    if (st == LS_OK)
        set_speedups(v);
    ls_free(text);
    return st;
}

void ls_bench_file_release(struct ls_bench_file *v)
{
    ls_free(v->rows);
    ls_free(v->nodes);
    ls_arena_release(&v->strings);
    ls_free(v->path);
    *v = (struct ls_bench_file){0};
}
