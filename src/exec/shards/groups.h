/* Which parameters are gathered together, and where (params.h). */
#ifndef LS_EXEC_SHARDS_GROUPS_H
#define LS_EXEC_SHARDS_GROUPS_H

#include "exec/engine.h"

struct ls_param_group {
    size_t first, count; /* floats of the gradient memory */
    size_t at;           /* in the ring */
};

struct ls_param_groups {
    struct ls_param_group *list; /* owned; in the order of gradients */
    int n;
    int *of;       /* owned; for each tensor of the training graph: its group, or LS_NONE */
    size_t *place; /* owned; of tensors that have one: of the gradient, in the gradient memory */
    size_t ring;   /* floats */
    size_t pair;   /* floats of the largest two neighbours */
    size_t others; /* floats of gradients of no group */
};

/* The training program is prepared. No node reads parameters of two groups. */
enum ls_status ls_param_groups_init(struct ls_param_groups *g, const struct ls_engine *e, const struct ls_options *o);
void ls_param_groups_release(struct ls_param_groups *g);
/* The group that a node of a net's graph reads; LS_NONE: none. */
int ls_param_group_of(const struct ls_param_groups *g, const struct ls_engine *e, const struct ls_net *net, int node);

#endif
