/* `--workers N`: this process starts N copies of itself on this machine, which train together, and supervises them.
 *
 *   W1  If the parent ends for any reason, its workers end. If a worker fails, the parent reports it once and ends the other
 *       workers within the deadline and a few seconds.
 *   W2  A signal to the parent reaches each worker once, whether a terminal, kill or a batch system sent it. */
#ifndef LS_LAUNCH_WORKERS_H
#define LS_LAUNCH_WORKERS_H

#include "base/status.h"
#include "config/options.h"
#include <stdbool.h>

/* If --workers makes this process a parent: starts the workers with the same command line, waits for them, and returns true.
 * *status is LS_PEER_LOST if a worker was killed, else the status of the first worker that failed. LS_USAGE if a launcher has
 * already started several processes. */
bool ls_workers_took_over(const struct ls_options *o, enum ls_status *status);

#endif
