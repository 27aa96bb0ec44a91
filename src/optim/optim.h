/* The update pass: optimizer nodes for every trained parameter, and the running statistics of every BN.
 *
 * An optimizer is one file with a const struct ls_optim_kind at its end and one line in config/lists/optimizers.def. */
#ifndef LS_OPTIM_OPTIM_H
#define LS_OPTIM_OPTIM_H

#include "graph/graph.h"

struct ls_optim {
    const char *name; /* "sgd" or "lars" */
    float momentum, weight_decay, trust;
    bool nesterov;
    bool decay_all; /* false: no weight decay on BN's scale and shift and on biases */
    /* true: each update stands right behind the last node that touches its parameter or gradient, so a
     * gradient dies as soon as it is used. Only where one pass is one step (one replica, no accumulation).
     * false: all updates stand at the end, after gradients were summed. */
    bool interleave;
};

struct ls_optim_kind {
    const char *name, *summary;
    /* Append the update node of one parameter, which has a gradient. */
    enum ls_status (*emit)(struct ls_graph *g, const struct ls_optim *o, int param);
};
extern const struct ls_optim_kind *const ls_optim_kinds[]; /* ends with NULL */
#define X(name) extern const struct ls_optim_kind ls_optim_##name;
#include "config/lists/optimizers.def"

/* LS_USAGE, naming the known ones, when there is no optimizer o->name. Call after ls_graph_backward. */
enum ls_status ls_optim_update(struct ls_graph *g, const struct ls_optim *o);

/* Is the tensor an optimizer's own state ("<param>.momentum"), which is no part of the model? */
bool ls_optim_owns(const struct ls_graph *g, int tensor);

/* For the optimizers: the parameter's momentum tensor (made, zero); LS_NONE when memory is out. */
int ls_optim_momentum(struct ls_graph *g, int param);
/* The weight decay this parameter gets. */
float ls_optim_decay(const struct ls_graph *g, const struct ls_optim *o, int param);
/* Append an update node. */
enum ls_status ls_optim_node(struct ls_graph *g, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                             const int *in, int n_in);

#endif
