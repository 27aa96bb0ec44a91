/* Clipping of gradients by the norm of all of them together (--clip-norm), as PyTorch's clip_grad_norm_ has it:
 *
 *   every gradient *= clip_norm / (norm + 1e-6), where that is below 1
 *
 * A backend does so before the first update node. All gradients are complete then: the nodes of all updates stand at the end
 * of the graph, and run together. Squares are added tensor by tensor in the order of nodes, and of a layer in chunks of rows
 * chunk by chunk. So the order is the same on any number of processes, each of which may have some of the gradients: then
 * exec/clip.h adds, and ls_run.squares has the sum. */
#ifndef LS_BACKEND_CORE_CLIP_H
#define LS_BACKEND_CORE_CLIP_H

#include "backend/backend.h"

/* The norm that the gradient of an update node is clipped to with the others; 0: it is not, or the node updates nothing. */
double ls_clip_limit(const struct ls_node *n);
/* The node before which gradients are clipped; LS_NONE: none is. */
int ls_clip_node(const struct ls_graph *g);
/* Whether that node clips now. Of an update in windows, the one without values does, and once a step. */
bool ls_clip_now(const struct ls_node *n);
/* What gradients are multiplied by before that node; 1: they stay. of: ls_backend.squares. */
float ls_clip_factor(const struct ls_program *p, const struct ls_graph *g, int node, const struct ls_run *run,
                     int (*of)(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS]));

#endif
