/* Results in the JSON output of version 0.2, which had no list of them. */
#ifndef LS_CMD_BENCH_OLD_RESULTS_H
#define LS_CMD_BENCH_OLD_RESULTS_H

#include <jansson.h>

/* Returns a new array of rows (results.h) for the output of `bench --json` and `bench --scale --json` of version 0.2, or NULL
 * if `all` is something else. What that version did not write is missing in the rows. */
json_t *ls_bench_old_results(const json_t *all);

#endif
