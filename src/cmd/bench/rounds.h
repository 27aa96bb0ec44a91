/* Measures the combinations of the axes, each in processes of its own. */
#ifndef LS_CMD_BENCH_ROUNDS_H
#define LS_CMD_BENCH_ROUNDS_H

#include "cmd/bench/axes.h"
#include "cmd/bench/ranks/ranks.h"
#include <jansson.h>

/* Measures every combination --repeat times and returns a new array of rows (results.h), in the order of combinations. The
 * first round measures each of them once. If starting the processes takes no longer than measuring, the other rounds do the
 * same, so that a slow minute of the machine reaches all of them; otherwise a combination's other repetitions are measured
 * at once. A combination that fails becomes a row with its error. A signal ends the measurement: *rows has what was measured
 * until then, and LS_INTERRUPTED is returned. With ranks (NULL: none) the workers are started by the ranks of a launch; this
 * is rank 0, and LS_PEER_LOST is returned if a rank is lost. */
enum ls_status ls_bench_rounds(const struct ls_options *o, const struct ls_bench_axes *axes,
                               const struct ls_bench_ranks *ranks, json_t **rows);

#endif
