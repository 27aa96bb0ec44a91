/* Devices that sum gradients among themselves (ls_backend_peers). That is a strategy, too. Without peers, open, share
 * and close do nothing. */
#ifndef LS_EXEC_DEVICE_PEERS_H
#define LS_EXEC_DEVICE_PEERS_H

#include "exec/engine.h"

/* Decides by the options whether devices may sum. Refuses options that do not go with --collective nccl. */
enum ls_status ls_peers_plan(struct ls_engine *e, const struct ls_options *o);
/* Connects the processes. Where that is not possible the host sums, by the strategy of --sync. */
enum ls_status ls_peers_open(struct ls_engine *e);
/* Describes what is summed, when there are buckets. `settle` as ls_peers_group has it. */
enum ls_status ls_peers_share(struct ls_engine *e, enum ls_status (*settle)(void *context, int bucket), void *context);
/* together: all processes close now, and no step failed. May be called twice. */
void ls_peers_close(struct ls_engine *e, bool together);
/* Whether devices sum through memory that they map: with the tree's order of additions, of processes on one machine,
 * where each process has one part of the sum. */
bool ls_peers_may_sum(const struct ls_backend *b, const struct ls_comm *comm, const struct ls_options *o,
                      const struct ls_sync_ops *strategy, const struct ls_tree *tree);
/* The library that sums, with its version; "" where none does. */
void ls_peers_library(const struct ls_engine *e, char *text, size_t room);

#endif
