/* The update pass: optimizer nodes for every trained parameter, and the running statistics of every BN.
 *
 * An optimizer is one file here with a const struct ls_optim_kind at its end, one line in config/lists/optimizers.def, and one
 * kernel for its update op in each backend. Its hyperparameters are options, also listed in
 * config/lists/hyperparameters.def. Its state tensors have the role LS_ROLE_OPTIMIZER: checkpoints save them, ranks
 * compare them and servers shard them without knowing the optimizer. */
#ifndef LS_OPTIM_OPTIM_H
#define LS_OPTIM_OPTIM_H

#include "config/options.h"
#include "graph/graph.h"

struct ls_optim_kind {
    const char *name, *summary;
    /* Refuses options that the optimizer does not take; NULL: it takes them all. */
    enum ls_status (*check)(const struct ls_options *o);
    /* Appends the update node of one parameter, which has a gradient. */
    enum ls_status (*emit)(struct ls_graph *g, const struct ls_options *o, int param);
    /* Writes its hyperparameters for the announcement of a run, such as ", momentum 0.9". Weight decay is written apart. */
    void (*describe)(const struct ls_options *o, char *text, size_t room);
};
extern const struct ls_optim_kind *const ls_optim_kinds[]; /* ends with NULL */
#define X(name, ...) extern const struct ls_optim_kind ls_optim_##name;
#include "config/lists/optimizers.def"

/* With --ema, the state tensor VALUE.trained of each parameter and running statistic holds its average over steps. Files have
 * the two swapped: the model's weights are the averages, and .trained those that training goes on with (exec/averages.h). */
#define LS_OPTIM_TRAINED "trained"

/* Appends the update nodes of --optimizer; LS_USAGE when there is none of that name, or it does not take the options. Call
 * after ls_graph_backward.
 * interleave: each update stands right behind the last node that reads or writes its parameter or gradient, so that a
 * gradient's memory is free as soon as it is used. Only where one pass is one step (one replica, no accumulation) and
 * neither --clip-norm nor --ema asks for more. Otherwise all updates stand at the end, after gradients were summed. */
enum ls_status ls_optim_update(struct ls_graph *g, const struct ls_options *o, bool interleave);
/* rates.c: sets the learning rate, momentum and weight decay of every parameter by --lr-groups, --momentum-groups,
 * --decay-groups and --layer-decay. LS_USAGE if a group is wrong or matches no parameter. */
enum ls_status ls_optim_rates(struct ls_graph *g, const struct ls_options *o);
/* "sgd, momentum 0.9, weight decay 0.0005" */
void ls_optim_describe(const struct ls_options *o, char *text, size_t room);

/* For the optimizers: append the node of `op` for one parameter, with all hyperparameters, and one state tensor
 * PARAMETER.NAME, zero at first, for each name in `states`, which ends with NULL. */
enum ls_status ls_optim_node(struct ls_graph *g, const struct ls_options *o, const struct ls_op *op, int param,
                             const char *const *states);

#endif
