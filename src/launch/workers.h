/* `--workers N`: this process starts N copies of itself on this machine, which train together, and sees to them.
 *
 *   W1  Whatever happens to the parent, its workers end; whatever happens to a worker, the parent says so, once, and
 *       ends the others within the deadline and a few seconds.
 *   W2  A signal to the parent reaches each worker once, whether it came from a terminal, a kill or a batch system. */
#ifndef LS_LAUNCH_WORKERS_H
#define LS_LAUNCH_WORKERS_H

#include "base/status.h"
#include "config/options.h"
#include <stdbool.h>

/* Where --workers makes this process a parent: start them with its command line, wait, and return true. *status is 4 when
 * one was lost, else that of the first that failed; LS_USAGE when a launcher has started several already. */
bool ls_workers_took_over(const struct ls_options *o, enum ls_status *status);

#endif
