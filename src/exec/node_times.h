/* The time of each node of a program. */
#ifndef LS_EXEC_NODE_TIMES_H
#define LS_EXEC_NODE_TIMES_H

#include "exec/engine.h"

/* seconds[n]: of node n. CPU kernels are timed one by one; the fastest of a few rounds counts. Updates run as well. */
enum ls_status ls_time_nodes(const struct ls_backend *b, const struct ls_net *net, const struct ls_run *run,
                             double *seconds);
/* One round on a backend whose run returns when its work is over. seconds[n] becomes the time of node n on `clock`, unless
 * `again` and an earlier round was faster. */
enum ls_status ls_time_nodes_once(const struct ls_backend *b, const struct ls_net *net, const struct ls_run *run,
                                  double (*clock)(void), bool again, double *seconds);

#endif
