#include "cmd/bench/results/view.h"
#include "base/log.h"
#include "base/text/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 8 /* repetitions that are shown where the width is not known */, FIGURES = 6, BEHIND = FIGURES + 1 };

static const char *const figures[FIGURES] = {"median", "mean", "sd", "CV", "speed-up", "efficiency"};

static size_t row_count(const struct ls_bench_table *t)
{
    return json_array_size(t->rows);
}

static const json_t *row_at(const struct ls_bench_table *t, size_t i)
{
    return json_array_get(t->rows, i);
}

static bool differs(const struct ls_bench_table *t, const char *key)
{
    const json_t *first = json_object_get(row_at(t, 0), key);
    for (size_t i = 1; i < row_count(t); i++) {
        const json_t *other = json_object_get(row_at(t, i), key);
        if ((first || other) && !json_equal(first, other))
            return true;
    }
    return false;
}

/* The default of --replicas is the number of workers. */
static bool replicas_follow_workers(const struct ls_bench_table *t)
{
    for (size_t i = 0; i < row_count(t); i++)
        if (!json_equal(json_object_get(row_at(t, i), "replicas"), json_object_get(row_at(t, i), "workers")))
            return false;
    return true;
}

static bool has_column(const struct ls_bench_table *t, const char *key)
{
    if (strcmp(key, "replicas") == 0 && replicas_follow_workers(t))
        return t->o->verbose;
    return t->o->verbose || differs(t, key);
}

static bool several_nodes(const struct ls_bench_table *t)
{
    for (size_t i = 0; i < row_count(t); i++)
        if (json_integer_value(json_object_get(row_at(t, i), "nodes")) > 1)
            return true;
    return false;
}

/* Whether some row has the key. */
static bool is_there(const struct ls_bench_table *t, const char *key)
{
    for (size_t i = 0; i < row_count(t); i++)
        if (json_object_get(row_at(t, i), key))
            return true;
    return false;
}

/* --- columns -------------------------------------------------------------------------------------------- */

static void add_heading(struct ls_bench_view *v, char align, const char *heading)
{
    if (v->columns == LS_TABLE_COLUMNS || !heading)
        return;
    v->align[v->columns] = align;
    v->headings[v->columns++] = heading;
}

static char align_of(const struct ls_option *option)
{
    return option->type == LS_OPTION_WHOLE || option->type == LS_OPTION_REAL ? 'r' : 'l';
}

/* The keys of the columns ahead of the repetitions. Returns their number. */
static int choose_keys(struct ls_bench_view *v, const struct ls_bench_table *t, const char **keys)
{
    bool nodes = t->o->verbose || several_nodes(t);
    char key[64];
    int n = 0;
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!option->axis || !has_column(t, ls_bench_key(option, key)))
            continue;
        keys[n++] = ls_arena_strdup(&v->strings, key);
        add_heading(v, align_of(option), option->name);
    }
    if (nodes) {
        keys[n++] = "nodes";
        add_heading(v, 'r', "nodes");
        keys[n++] = "workers_per_node";
        add_heading(v, 'r', "per node");
    }
    if (differs(t, "scaling")) {
        keys[n++] = "scaling";
        add_heading(v, 'l', "scaling");
    }
    if (differs(t, "machine")) {
        keys[n++] = "machine";
        add_heading(v, 'l', "machine");
    }
    if (is_there(t, "per_core")) {
        keys[n++] = "per_core";
        add_heading(v, 'r', "of one core");
    }
    if (is_there(t, "input_wait")) {
        keys[n++] = "input_wait";
        add_heading(v, 'r', "input wait");
    }
    return n;
}

/* --- cells ---------------------------------------------------------------------------------------------- */

struct filler {
    struct ls_bench_view *v;
    int at;
    bool failed;
};

static void put(struct filler *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct filler *f, const char *format, ...)
{
    char text[1024], shown[LS_PRINTABLE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *cell = ls_arena_strdup(&f->v->strings, ls_utf8_printable(text, shown, sizeof shown));
    f->failed |= !cell;
    f->v->cells[f->at++] = cell ? cell : "";
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* `of` decides on the digits. */
static void put_speed(struct filler *f, double speed, double of)
{
    put(f, "%.*f", of < 10 ? 3 : 1, speed);
}

/* Another machine's host name is enough to tell it apart; the head of the table describes it. */
static void put_key(struct filler *f, const json_t *row, const char *key)
{
    char room[64];
    const char *text = ls_bench_text(json_object_get(row, key), room);
    if (strcmp(key, "machine") == 0)
        put(f, "%.*s", (int)strcspn(text, ","), text);
    else if (strcmp(key, "per_core") == 0 && json_object_get(row, key))
        put_speed(f, number(row, key), number(row, key));
    else if (strcmp(key, "input_wait") == 0 && json_object_get(row, key))
        put(f, "%.1f%%", 100 * number(row, key));
    else
        put(f, "%s", text);
}

/* More threads than cores take turns; the figures say little of how this scales. */
static bool is_crowded(const json_t *row)
{
    double cores = number(row, "cores");
    return cores > 0 && number(row, "workers_per_node") * number(row, "threads") > cores;
}

static void put_note(struct filler *f, const json_t *row)
{
    const char *error = json_string_value(json_object_get(row, "error")), *notes[3];
    int n = 0;
    if (error) {
        put(f, "failed: %s", error);
        return;
    }
    if (json_is_true(json_object_get(row, "best")))
        notes[n++] = "best";
    if (json_is_true(json_object_get(row, "largest")))
        notes[n++] = "max";
    if (is_crowded(row))
        notes[n++] = "more threads than cores";
    put(f, "%s%s%s%s%s", n > 0 ? notes[0] : "", n > 1 ? ", " : "", n > 1 ? notes[1] : "", n > 2 ? ", " : "",
        n > 2 ? notes[2] : "");
}

static void put_row(struct filler *f, const json_t *row, const char *const *keys, int n_keys, int shown)
{
    const json_t *speeds = json_object_get(row, "repetitions");
    size_t n = json_array_size(speeds);
    for (int i = 0; i < n_keys; i++)
        put_key(f, row, keys[i]);
    for (int i = 0; i < shown; i++)
        if ((size_t)i < n)
            put_speed(f, json_number_value(json_array_get(speeds, (size_t)i)), number(row, "mean"));
        else
            put(f, "%s", "");
    for (int i = 0; i < FIGURES && n == 0; i++)
        put(f, "%s", i == 0 ? "-" : "");
    if (n > 0) {
        put_speed(f, number(row, "median"), number(row, "mean"));
        put_speed(f, number(row, "mean"), number(row, "mean"));
        put_speed(f, number(row, "deviation"), number(row, "mean"));
        put(f, "%.1f%%", 100 * number(row, "variation"));
        put(f, "%.2f", number(row, "speedup"));
        put(f, "%.0f%%", 100 * number(row, "efficiency"));
    }
    put_note(f, row);
}

/* --- what the rows have in common ----------------------------------------------------------------------- */

/* Options that the head of the table leaves out while they have their defaults. */
static bool is_worth_saying(const struct ls_option *option, const struct ls_bench_table *t, const char *value)
{
    if (strcmp(value, "-") == 0)
        return false;
    if (strcmp(option->name, "replicas") == 0)
        return !replicas_follow_workers(t);
    if (strcmp(option->name, "sync") == 0 || strcmp(option->name, "compress") == 0)
        return differs(t, "workers") || number(row_at(t, 0), "workers") > 1;
    bool minor = strcmp(option->name, "accumulate") == 0 || strcmp(option->name, "optimizer") == 0 ||
                 strcmp(option->name, "bucket-mb") == 0 || strcmp(option->name, "loader-threads") == 0;
    return !minor || !option->missing || strcmp(value, option->missing) != 0;
}

static void print_machines(const struct ls_bench_table *t, FILE *out)
{
    char shown[LS_PRINTABLE_SIZE];
    json_t *said = json_object();
    for (size_t i = 0; i < row_count(t); i++) {
        const char *machine = json_string_value(json_object_get(row_at(t, i), "machine"));
        if (!machine || json_object_get(said, machine))
            continue;
        fprintf(out, "machine %s\n", ls_utf8_printable(machine, shown, sizeof shown));
        json_object_set_new(said, machine, json_true());
    }
    json_decref(said);
}

static void print_common(const struct ls_bench_view *v, const struct ls_bench_table *t, FILE *out)
{
    static const char *const input[] = {"data", "augment"}; /* of the loader alone */
    const char *between = "";
    char key[64], room[64], shown[LS_PRINTABLE_SIZE];
    for (int i = 0; i < 2; i++)
        if (is_there(t, input[i])) {
            const char *value = ls_bench_text(json_object_get(row_at(t, 0), input[i]), room);
            fprintf(out, "%s%s %s", between, input[i], ls_utf8_printable(value, shown, sizeof shown));
            between = ", ";
        }
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (!option->axis || has_column(t, ls_bench_key(option, key)))
            continue;
        const char *value = ls_bench_text(json_object_get(row_at(t, 0), key), room);
        if (!is_worth_saying(option, t, value))
            continue;
        fprintf(out, "%s%s %s", between, option->name, ls_utf8_printable(value, shown, sizeof shown));
        between = ", ";
    }
    fprintf(out, "%s%d repetition%s, samples/s", between, v->repetitions, v->repetitions == 1 ? "" : "s");
    if (differs(t, "workers") && !differs(t, "scaling"))
        fprintf(out, ", %s scaling", ls_bench_text(json_object_get(row_at(t, 0), "scaling"), room));
    putc('\n', out);
    print_machines(t, out);
    if (v->left_out > 0 && t->o->verbose)
        fprintf(out, "%d repetitions are in the formats csv and json only\n", v->left_out);
}

static enum ls_status describe(struct ls_bench_view *v, const struct ls_bench_table *t)
{
    size_t size;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return ls_fail(LS_FAILED, "out of memory");
    print_common(v, t, out);
    fclose(out);
    v->about = text;
    return LS_OK;
}

/* --- all -------------------------------------------------------------------------------------------------- */

static int most_repetitions(const struct ls_bench_table *t)
{
    size_t most = 0;
    for (size_t i = 0; i < row_count(t); i++) {
        size_t n = json_array_size(json_object_get(row_at(t, i), "repetitions"));
        most = n > most ? n : most;
    }
    return (int)most;
}

static enum ls_status make(struct ls_bench_view *v, const struct ls_bench_table *t, int shown)
{
    const char *keys[LS_TABLE_COLUMNS];
    *v = (struct ls_bench_view){.rows = (int)row_count(t), .repetitions = most_repetitions(t)};
    int n_keys = choose_keys(v, t, keys), room = LS_TABLE_COLUMNS - n_keys - BEHIND;
    shown = shown > room ? room : shown;
    v->left_out = v->repetitions - shown;
    for (int i = 0; i < shown; i++)
        add_heading(v, 'r', ls_arena_format(&v->strings, "#%d", i + 1));
    for (int i = 0; i < FIGURES; i++)
        add_heading(v, 'r', figures[i]);
    add_heading(v, 'l', "note");
    v->cells = ls_alloc((size_t)v->rows * (size_t)v->columns + 1, sizeof *v->cells);
    if (!v->cells)
        return LS_FAILED;
    struct filler f = {.v = v};
    for (size_t i = 0; i < row_count(t); i++)
        put_row(&f, row_at(t, i), keys, n_keys, shown);
    return f.failed ? LS_FAILED : describe(v, t);
}

/* Without the notes, which may wrap. */
static int width_of(const struct ls_bench_view *v)
{
    int sum = 0;
    for (int c = 0; c < v->columns - 1; c++) {
        int widest = ls_utf8_length(v->headings[c]);
        for (int r = 0; r < v->rows; r++) {
            int n = ls_utf8_length(v->cells[r * v->columns + c]);
            widest = n > widest ? n : widest;
        }
        sum += widest + 2;
    }
    return sum + 4;
}

enum ls_status ls_bench_view_make(struct ls_bench_view *v, const struct ls_bench_table *t, int width)
{
    int n = most_repetitions(t);
    bool all = t->o->verbose || width > 0 || n <= FEW;
    enum ls_status st = make(v, t, all ? n : 0);
    if (st == LS_OK && width > 0 && !t->o->verbose && (v->left_out > 0 || width_of(v) > width)) {
        ls_bench_view_release(v);
        st = make(v, t, 0);
    }
    if (st != LS_OK)
        ls_bench_view_release(v);
    return st;
}

void ls_bench_view_release(struct ls_bench_view *v)
{
    ls_arena_release(&v->strings);
    ls_free(v->cells);
    free(v->about);
    *v = (struct ls_bench_view){0};
}
