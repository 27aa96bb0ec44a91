/* `--workers N`: this process starts N copies of itself on this machine, which train together, and sees to them.
 *
 *   W1  Whatever happens to the parent, its workers end; whatever happens to a worker, the parent says so, once, and
 *       ends the others within the deadline and a few seconds.
 *   W2  A signal to the parent reaches each worker once, whether it came from a terminal, a kill or a batch system. */
#ifndef LS_CMD_WORKERS_H
#define LS_CMD_WORKERS_H

#include "base/status.h"
#include "config/options.h"
#include <stdbool.h>

/* Is this the process that --workers makes a parent? LS_USAGE when a launcher has started several already. */
enum ls_status ls_workers_wanted(const struct ls_options *o, bool *wanted);
/* Start them with these arguments (argv[0] is the program's name) and wait. The status is 4 when one was lost, else that
 * of the first that failed. */
enum ls_status ls_workers_run(const struct ls_options *o, int argc, char **argv);

#endif
