/* Comma-separated values as RFC 4180 has them: lines end with CRLF, and a field with a comma, a quote or the end of a line is
 * quoted. Every row has all columns; repetitions are the last ones. */
#include "cmd/bench/results/view.h"
#include "report/formats/csv.h"

#include <string.h>

static const char *const behind[] = {"nodes", "workers_per_node", "machine",   "scaling", "median",
                                     "mean",  "deviation",        "variation", "speedup", "efficiency"};
enum { BEHIND = sizeof behind / sizeof *behind };
/* Columns that are there only if a row has a value. */
static const char *const rare[] = {"data", "augment", "per_core", "input_wait"};
enum { RARE = sizeof rare / sizeof *rare };

static bool is_there(const json_t *rows, const char *key)
{
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (json_object_get(json_array_get(rows, i), key))
            return true;
    return false;
}

/* A missing value is an empty field. */
static void put_value(const json_t *value, FILE *out)
{
    char room[64];
    if (value && !json_is_null(value))
        ls_csv_put(ls_bench_text(value, room), out);
}

static size_t most_repetitions(const json_t *rows)
{
    size_t most = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        size_t n = json_array_size(json_object_get(json_array_get(rows, i), "repetitions"));
        most = n > most ? n : most;
    }
    return most;
}

static void put_headings(const json_t *rows, size_t repetitions, FILE *out)
{
    char key[64];
    for (int i = 0; i < ls_option_count; i++)
        if (ls_option_table[i].axis)
            fprintf(out, "%s,", ls_bench_key(&ls_option_table[i], key));
    for (int i = 0; i < BEHIND; i++)
        fprintf(out, "%s,", behind[i]);
    for (int i = 0; i < RARE; i++)
        if (is_there(rows, rare[i]))
            fprintf(out, "%s,", rare[i]);
    fputs("best,error", out);
    for (size_t i = 0; i < repetitions; i++)
        fprintf(out, ",repetition_%zu", i + 1);
    fputs("\r\n", out);
}

static void put_row(const json_t *rows, const json_t *row, size_t repetitions, FILE *out)
{
    char key[64];
    const json_t *list = json_object_get(row, "repetitions");
    for (int i = 0; i < ls_option_count; i++) {
        if (!ls_option_table[i].axis)
            continue;
        put_value(json_object_get(row, ls_bench_key(&ls_option_table[i], key)), out);
        putc(',', out);
    }
    for (int i = 0; i < BEHIND; i++) {
        put_value(json_object_get(row, behind[i]), out);
        putc(',', out);
    }
    for (int i = 0; i < RARE; i++)
        if (is_there(rows, rare[i])) {
            put_value(json_object_get(row, rare[i]), out);
            putc(',', out);
        }
    fputs(json_is_true(json_object_get(row, "best")) ? "true," : "false,", out);
    put_value(json_object_get(row, "error"), out);
    for (size_t i = 0; i < repetitions; i++) {
        putc(',', out);
        put_value(json_array_get(list, i), out);
    }
    fputs("\r\n", out);
}

enum ls_status ls_bench_write_csv(const struct ls_bench_table *t, FILE *out)
{
    size_t repetitions = most_repetitions(t->rows);
    put_headings(t->rows, repetitions, out);
    for (size_t i = 0; i < json_array_size(t->rows); i++)
        put_row(t->rows, json_array_get(t->rows, i), repetitions, out);
    return LS_OK;
}
