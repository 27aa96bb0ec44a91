/* What `lockstep bench` measures besides the steps of one run. */
#ifndef LS_CMD_BENCH_BENCH_H
#define LS_CMD_BENCH_BENCH_H

#include "base/status.h"
#include "config/options.h"
#include "exec/engine.h"
#include <stdbool.h>

/* --scale 1,2,4: bench with each of these numbers of workers, each in processes of its own, and how the speed grows.
 * All compute with the same number of threads a worker, so that more workers means more cores: --threads, or the cores
 * dealt to the largest number of workers. */
bool ls_bench_scale_wanted(const struct ls_options *o);
enum ls_status ls_bench_scale(const struct ls_options *o);

/* --collective on the command line: how long sums over all processes take, for sizes from 1 KiB to --largest-mb. In a
 * file or the environment the option chooses how the sums of ordinary steps are made, and nccl always does. */
bool ls_bench_collective_wanted(const struct ls_options *o);
/* In each of the processes. LS_FAILED when a sum was wrong. */
enum ls_status ls_bench_collective(struct ls_options *o);

/* --profile: where the time of a step goes, after steps were run. */
enum ls_status ls_bench_profile(const struct ls_options *o, struct ls_engine *e, const struct ls_run *run);

#endif
