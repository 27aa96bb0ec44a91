/* What the files of ops share: addresses of a node's tensors, default layouts, windows. */
#ifndef LS_BACKEND_ONEDNN_OPS_OP_H
#define LS_BACKEND_ONEDNN_OPS_OP_H

#include "backend/onednn/program.h"

#define IN(i) tensor_data(p, p->core.g->nodes[node].in[i])
#define OUT(i) tensor_data(p, p->core.g->nodes[node].out[i])

/* Outputs, and parameters and state that no node placed before, get their default layouts. */
enum ls_status prepare_plain(struct ls_program *p, int node);
/* The node's pooling windows over `map`, which make `pooled` of it. */
enum ls_status window_axes(struct ls_program *p, int node, int map, int pooled);
/* The geometry of a tensor with the node's windows. */
struct ls_map map_with_axes(struct ls_program *p, int node, int tensor, const struct ls_run *run);

#endif
