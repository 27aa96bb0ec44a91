/* What a node must do at least, whichever kernel computes it. */
#ifndef LS_CMD_BENCH_PROFILE_COST_H
#define LS_CMD_BENCH_PROFILE_COST_H

#include "graph/graph.h"

/* Bytes: each tensor that it reads is read once, each that it writes is written once. Updates read and write parameters and
 * state. Weights of products count in the type of the activations, as products read them. */
double ls_bench_node_bytes(const struct ls_graph *g, const struct ls_node *n);
/* Operations of a product in any direction: output positions times weights, times two for multiply and add; 0 for others. */
double ls_bench_node_operations(const struct ls_graph *g, const struct ls_node *n);

#endif
