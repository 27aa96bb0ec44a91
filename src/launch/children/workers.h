/* `--workers N`: this process starts N copies of itself on its node, which train together, alone or with the workers of other
 * nodes, and supervises them (children.h). */
#ifndef LS_LAUNCH_WORKERS_H
#define LS_LAUNCH_WORKERS_H

#include "base/status.h"
#include "config/options.h"
#include <stdbool.h>

/* If --workers, --npernode or --hostfile makes this process a parent: starts the workers with the same command line, waits
 * for them, and returns true. *status is LS_PEER_LOST if a worker was killed, else the status of the first worker that
 * failed. LS_USAGE if a launcher has already started several processes on this node. */
bool ls_workers_took_over(const struct ls_options *o, enum ls_status *status);

#endif
