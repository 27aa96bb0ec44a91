/* The results of bench: a JSON array of rows, one for each configuration. A row is an object:
 *
 *   "model", "batch", ...     the value of every option with `axis` (config/lists/options.def), - written as _
 *   "nodes", "workers_per_node", "machine", "cores" (of the first node), "scaling" ("strong" or "weak")
 *   "repetitions"             samples/s of each repetition; empty if the configuration failed
 *   "error"                   why it failed; missing if it did not
 *   "input_wait"              --with-input: the share of the time that steps waited for input
 *   "per_core", "data", "augment"     --loader: samples per second of CPU time, and what was loaded
 *   "median", "mean", "deviation", "variation", "speedup", "efficiency", "best"     made by ls_bench_rows_compare
 *
 * A missing key means that the value is not known; ls_bench_rows_compare needs "workers" and "repetitions". */
#ifndef LS_CMD_BENCH_RESULTS_H
#define LS_CMD_BENCH_RESULTS_H

#include "base/status.h"
#include "config/options.h"
#include "config/table.h"
#include <jansson.h>

/* Returns the key of an option in a row: its name with _ for -. */
const char *ls_bench_key(const struct ls_option *option, char room[64]);
/* Returns the value as text. A missing value is "-". The text is in `room` unless the value is a string. */
const char *ls_bench_text(const json_t *value, char room[64]);

/* Returns a new row with the values of the options, on one node, with no repetitions. */
json_t *ls_bench_row(const struct ls_options *o);
/* Sets nodes and workers_per_node. */
void ls_bench_row_place(json_t *row, int workers, int nodes);
/* Returns a new object that describes the measurement: version, command, time and machine. */
json_t *ls_bench_about(const struct ls_options *o, const char *machine);
/* Describes this machine: host, processor (or `card`, if that is not "") and cores. */
void ls_bench_machine(const char *card, char *text, size_t room);

/* Returns a text that is equal for rows of the same configuration on the same machine; free it with free. NULL: no memory. */
char *ls_bench_row_key(const json_t *row);
/* Returns a new object of arrays: the rows that speed-up and efficiency compare, in the order of their first rows. Rows of a
 * group differ in the numbers of workers, nodes and replicas, and in the machine. The batch is equal, or that of one worker is
 * where it grows with the workers (weak scaling). */
json_t *ls_bench_groups(json_t *rows);
/* Adds statistics, speed-up and efficiency to each row with repetitions, and marks the fastest row of each model. Speed-up
 * is relative to the row of the group with the fewest workers; of several, to one on the same machine, then to the first. */
enum ls_status ls_bench_rows_compare(json_t *rows);

/* What a format writes. */
struct ls_bench_table {
    const struct ls_options *o;
    json_t *about, *rows; /* owned */
    json_t *old;          /* owned; keys that JSON has at the top level besides; NULL: none */
    const char *over;     /* how the processes communicate, in words; NULL: not said */
};
void ls_bench_table_release(struct ls_bench_table *t);
/* Writes the table to standard output or --output, in the format of --format, --json or the file's ending. With --output
 * the table is also printed as text, unless --quiet is given. */
enum ls_status ls_bench_write(const struct ls_bench_table *t);
/* Rejects a file of --output that cannot be written. Call it before measuring. */
enum ls_status ls_bench_check_output(const struct ls_options *o);
/* Whether bench writes a table in a format other than text, or a file. */
bool ls_bench_writes_table(const struct ls_options *o);

#endif
