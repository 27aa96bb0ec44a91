/* --scale: its list, and its output beside the general table. */
#include "base/log.h"
#include "base/memory.h"
#include "base/text/utf8.h"
#include "cmd/bench/bench.h"
#include "report/formats/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 8 /* repetitions that fit in a table */ };

bool ls_bench_scale_wanted(const struct ls_options *o)
{
    return o->scale && strcmp(o->scale, "none") != 0;
}

enum ls_status ls_bench_scale_begin(struct ls_options *o)
{
    const struct ls_option *workers = ls_option_find("workers");
    char **list = &o->lists[workers - ls_option_table];
    if (*list || o->workers > 1)
        return ls_fail(LS_USAGE,
                       "--scale starts workers itself, but --workers has asked for some already; leave it out");
    LS_TRY(ls_option_set(o, workers, "--scale", o->scale));
    if (!*list)
        *list = ls_strdup(o->scale); /* one number is a list of one */
    return *list ? LS_OK : LS_FAILED;
}

int ls_bench_scale_limit(struct ls_options *o, int most, int *left)
{
    char *list = o->lists[ls_option_find("workers") - ls_option_table], *to = list;
    int removed = 0;
    *left = 0;
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ",");
        const char *next = at[n] ? at + n + 1 : at + n;
        if (strtoll(at, NULL, 10) > most) {
            removed++;
        } else {
            if ((*left)++ > 0)
                *to++ = ',';
            memmove(to, at, n);
            to += n;
        }
        at = next;
    }
    if (to)
        *to = 0;
    return removed;
}

/* --- rows ----------------------------------------------------------------------------------------------- */

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static const json_t *row_at(const json_t *rows, size_t i)
{
    return json_array_get(rows, i);
}

static const json_t *speeds_of(const json_t *row)
{
    return json_object_get(row, "repetitions");
}

/* The first row that was measured. */
static const json_t *first_of(const json_t *rows)
{
    size_t i = 0;
    while (i + 1 < json_array_size(rows) && json_array_size(speeds_of(row_at(rows, i))) == 0)
        i++;
    return row_at(rows, i);
}

static double speedup_of(const json_t *rows, const json_t *row)
{
    return number(row, "median") / number(first_of(rows), "median");
}

static double efficiency_of(const json_t *rows, const json_t *row)
{
    return speedup_of(rows, row) * number(first_of(rows), "workers") / number(row, "workers");
}

/* --- output --------------------------------------------------------------------------------------------- */

static void print_head(const struct ls_options *o, const json_t *rows)
{
    int cores = ls_engine_cores();
    long long threads = (long long)number(first_of(rows), "threads");
    char shown[LS_PRINTABLE_SIZE];
    printf("%s, %s scaling: batch %lld%s, %lld thread%s a worker, %lld repetition%s, samples/s\n",
           ls_utf8_printable(o->model, shown, sizeof shown), o->weak ? "weak" : "strong", (long long)o->batch,
           o->weak ? " a worker" : "", threads, threads == 1 ? "" : "s", (long long)o->repeat,
           o->repeat == 1 ? "" : "s");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = row_at(rows, i);
        long long workers = (long long)number(row, "workers"), nodes = (long long)number(row, "nodes");
        long long each = nodes > 1 ? (workers + nodes - 1) / nodes : workers; /* on one machine */
        if (each * threads > cores)
            printf("%lld workers have %d cores for %lld threads%s: their figures say little of how this scales\n",
                   workers, cores, each * threads, nodes > 1 ? " on a node" : "");
    }
}

static void add_row(struct ls_table *t, const json_t *rows, const json_t *row, int shown)
{
    ls_table_row(t);
    ls_table_cell(t, "%lld", (long long)number(row, "workers"));
    ls_table_cell(t, "%lld", (long long)number(row, "batch"));
    if (json_array_size(speeds_of(row)) == 0) {
        ls_table_cell(t, "failed");
        return;
    }
    for (int k = 0; k < shown; k++)
        ls_table_cell(t, "%.1f", json_number_value(json_array_get(speeds_of(row), (size_t)k)));
    ls_table_cell(t, "%.1f", number(row, "median"));
    ls_table_cell(t, "%.1f", number(row, "mean"));
    ls_table_cell(t, "%.1f", number(row, "deviation"));
    ls_table_cell(t, "%.1f%%", 100 * number(row, "variation"));
    ls_table_cell(t, "%.2f", speedup_of(rows, row));
    ls_table_cell(t, "%.0f%%", 100 * efficiency_of(rows, row));
}

enum ls_status ls_bench_scale_print(const struct ls_options *o, const json_t *rows)
{
    static const char *const behind[] = {"median", "mean", "sd", "CV", "speed-up", "efficiency"};
    const char *headings[LS_TABLE_COLUMNS] = {"workers", "batch"};
    char numbers[SHOWN][16], align[LS_TABLE_COLUMNS + 1] = "";
    int shown = o->repeat <= SHOWN ? (int)o->repeat : 0, n = 2;
    struct ls_table t;
    for (int i = 0; i < shown; i++) {
        snprintf(numbers[i], sizeof numbers[i], "#%d", i + 1);
        headings[n++] = numbers[i];
    }
    for (int i = 0; i < 6; i++)
        headings[n++] = behind[i];
    memset(align, 'r', (size_t)n);
    print_head(o, rows);
    ls_table_init(&t, align, headings);
    for (size_t i = 0; i < json_array_size(rows); i++)
        add_row(&t, rows, row_at(rows, i), shown);
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static json_t *entry_of(const json_t *rows, json_t *row)
{
    json_t *entry =
        json_pack("{s:O, s:O, s:O}", "workers", json_object_get(row, "workers"), "batch", json_object_get(row, "batch"),
                  "samples_per_s_repeats", json_object_get(row, "repetitions"));
    if (json_array_size(speeds_of(row)) == 0) {
        json_object_set(entry, "error", json_object_get(row, "error"));
        return entry;
    }
    json_object_set(entry, "median", json_object_get(row, "median"));
    json_object_set(entry, "mean", json_object_get(row, "mean"));
    json_object_set(entry, "sd", json_object_get(row, "deviation"));
    json_object_set(entry, "cv", json_object_get(row, "variation"));
    json_object_set_new(entry, "speedup", json_real(speedup_of(rows, row)));
    json_object_set_new(entry, "efficiency", json_real(efficiency_of(rows, row)));
    json_object_set(entry, "step_ms_median", json_object_get(row, "step_ms"));
    return entry;
}

json_t *ls_bench_scale_keys(const struct ls_options *o, const json_t *rows)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++)
        json_array_append_new(entries, entry_of(rows, json_array_get(rows, i)));
    return json_pack("{s:s, s:O, s:s, s:I, s:O, s:I, s:i, s:o}", "kind", "scale", "model",
                     json_object_get(row_at(rows, 0), "model"), "scaling", o->weak ? "weak" : "strong", "batch",
                     (json_int_t)o->batch, "threads", json_object_get(first_of(rows), "threads"), "repeat",
                     (json_int_t)o->repeat, "cores", ls_engine_cores(), "entries", entries);
}

/* --- under a launcher ----------------------------------------------------------------------------------- */

/* Whether the word is one of these options, whose values belong to this launch only. *both: the value is the next word. */
static bool is_of_this_launch(const char *word, bool *both)
{
    static const char *const names[] = {"--scale", "--output", "--format", "-o", "--json", "--threads"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        *both = strcmp(word, names[i]) == 0 && strcmp(word, "--json") != 0;
        if (strcmp(word, names[i]) == 0 || (strncmp(word, names[i], n) == 0 && word[n] == '='))
            return true;
    }
    return false;
}

/* The command line without these options, as text for a shell; free it with free. */
static char *make_command(const struct ls_options *o)
{
    struct ls_options plain = {0};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    plain.command_line = ls_alloc((size_t)o->n_command_line + 1, sizeof *plain.command_line);
    for (int i = 0; plain.command_line && i < o->n_command_line; i++) {
        bool both;
        if (is_of_this_launch(o->command_line[i], &both))
            i += both;
        else
            plain.command_line[plain.n_command_line++] = o->command_line[i];
    }
    if (out) {
        ls_options_command(&plain, out);
        fclose(out);
    }
    ls_free(plain.command_line);
    return text;
}

static void print_command(const struct ls_launch *launch, const char *command, long long workers, long long threads)
{
    int per_node = launch->local_size > 0 ? launch->local_size : 1;
    char start[96], each[48] = "";
    if (launch->size > per_node && launch->mpi) /* on each node as many as now */
        snprintf(each, sizeof each, strcmp(launch->mpi, "openmpi") == 0 ? "--map-by ppr:%d:node " : "-ppn %d ",
                 per_node);
    if (strncmp(launch->how, "srun", 4) == 0)
        snprintf(start, sizeof start, "srun -N %lld -n %lld ", (workers + per_node - 1) / per_node, workers);
    else if (launch->kind == LS_LAUNCH_MPI)
        snprintf(start, sizeof start, "mpirun -np %lld %s", workers, each);
    else
        snprintf(start, sizeof start, "(%lld times) ", workers);
    ls_progress("  %s%s --threads %lld -o bench-%lld.json", start, command, threads, workers);
}

void ls_bench_scale_commands(const struct ls_options *o, const struct ls_launch *launch, const char *why)
{
    const char *list = o->scale;
    char *command = make_command(o), *files = NULL;
    size_t size;
    FILE *out = open_memstream(&files, &size);
    ls_progress(
        "--scale %s: %s. Start each number of processes once, with your other options of the launcher, and merge "
        "the results:",
        o->scale, why);
    for (const char *at = list; at && command; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        long long workers = strtoll(at, NULL, 10);
        print_command(launch, command, workers, (long long)o->threads);
        if (out)
            fprintf(out, " bench-%lld.json", workers);
    }
    if (out) {
        fclose(out);
        ls_progress("  %s bench --merge%s", o->n_command_line > 0 ? o->command_line[0] : "lockstep", files);
    }
    free(files);
    free(command);
}
