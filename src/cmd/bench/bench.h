/* Measurements of `lockstep bench` besides the steps of one run. */
#ifndef LS_CMD_BENCH_BENCH_H
#define LS_CMD_BENCH_BENCH_H

#include "base/status.h"
#include "config/options.h"
#include "exec/step.h"
#include <stdbool.h>

/* --scale 1,2,4: runs bench with each of these numbers of workers, in separate processes, and prints the scaling. All runs
 * use the same number of threads per worker: --threads, or the cores divided by the largest number of workers. */
bool ls_bench_scale_wanted(const struct ls_options *o);
enum ls_status ls_bench_scale(const struct ls_options *o);

/* --collective on the command line: times sums over all processes, for sizes from 1 KiB to --largest-mb. In a file or the
 * environment, and always with the value nccl, the option sets the algorithm of the sums of ordinary steps instead. */
bool ls_bench_collective_wanted(const struct ls_options *o);
/* Runs in each process. LS_FAILED if a sum was wrong. */
enum ls_status ls_bench_collective(struct ls_options *o);

/* --profile: prints the time of each node of a step. Call it after some steps have run. */
enum ls_status ls_bench_profile(const struct ls_options *o, struct ls_engine *e, const struct ls_run *run);

/* --profile on several workers: records the steps first, first + 1, ... (from 1), then prints the shares of computing and
 * communication on each rank. begin sets *trace where there is something to measure; the caller frees it after the stepper
 * is released. All ranks call both. */
enum ls_status ls_bench_shares_begin(const struct ls_options *o, struct ls_stepper *s, uint64_t first, uint64_t steps,
                                     struct ls_trace **trace);
enum ls_status ls_bench_shares(const struct ls_options *o, struct ls_stepper *s, struct ls_trace *trace);

#endif
