/* Measurements of `lockstep bench` besides the steps of one run. */
#ifndef LS_CMD_BENCH_BENCH_H
#define LS_CMD_BENCH_BENCH_H

#include "base/status.h"
#include "cmd/bench/results/results.h"
#include "cmd/world.h"
#include "config/options.h"
#include "exec/step.h"
#include "launch/launch.h"
#include <stdbool.h>

/* Lists of values, or --scale: measures every combination, each in processes of its own, and prints one table. */
bool ls_bench_over_axes_wanted(const struct ls_options *o);
/* Sets *done to false, and does nothing, if a launcher has started this process and --scale is the only list: see
 * ls_bench_over_ranks. Other lists are LS_USAGE under a launcher. */
enum ls_status ls_bench_over_axes(struct ls_options *o, bool *done);
/* --scale under a launcher: its first ranks measure each number of workers (ranks/ranks.h). All ranks call it, and get the
 * same status unless the group is broken. *done: false where that is not possible; the reason is printed, and the processes
 * of the launch are to be measured as one group. */
enum ls_status ls_bench_over_ranks(struct ls_options *o, const struct ls_world *world, bool *done);

/* --scale 1,2,4: a list of numbers of workers. All use the same number of threads per worker: --threads, or the cores divided
 * by the largest number of workers. */
bool ls_bench_scale_wanted(const struct ls_options *o);
/* Checks --scale and makes it the list of --workers. */
enum ls_status ls_bench_scale_begin(struct ls_options *o);
/* Print the rows of --scale as text, and return the keys that its JSON output has besides. Speed-ups are relative to the first
 * number of workers. */
enum ls_status ls_bench_scale_print(const struct ls_options *o, const json_t *rows);
json_t *ls_bench_scale_keys(const struct ls_options *o, const json_t *rows);
/* Under a launcher: prints why not all numbers of workers are measured by this launch, the commands that measure each of them,
 * and the one that merges the results. */
void ls_bench_scale_commands(const struct ls_options *o, const struct ls_launch *launch, const char *why);
/* Removes the numbers above `most` from the list of --scale. Returns how many were removed; *left is how many remain. */
int ls_bench_scale_limit(struct ls_options *o, int most, int *left);

/* --merge A.json B.json ...: prints one table of the results in the files. */
enum ls_status ls_bench_merge(const struct ls_options *o);

/* --collective on the command line: times sums over all processes, for sizes from 1 KiB to --largest-mb. In a file or the
 * environment, and always with the value nccl, the option sets the algorithm of the sums of ordinary steps instead. */
bool ls_bench_collective_wanted(const struct ls_options *o);
/* Runs in each process. LS_FAILED if a sum was wrong. */
enum ls_status ls_bench_collective(struct ls_options *o);

/* --loader: times the loader of --data alone, in this process. */
enum ls_status ls_bench_loader(const struct ls_options *o);

/* --profile: prints the time of each node of a step. Call it after some steps have run. */
enum ls_status ls_bench_profile(const struct ls_options *o, struct ls_engine *e, const struct ls_run *run);

/* --profile on several workers: records the steps first, first + 1, ... (from 1), then prints the shares of computing and
 * communication on each rank. begin sets *trace where there is something to measure; the caller frees it after the stepper
 * is released. All ranks call both. */
enum ls_status ls_bench_shares_begin(const struct ls_options *o, struct ls_stepper *s, uint64_t first, uint64_t steps,
                                     struct ls_trace **trace);
enum ls_status ls_bench_shares(const struct ls_options *o, struct ls_stepper *s, struct ls_trace *trace);

#endif
