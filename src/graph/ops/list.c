/* The one list of ops. */
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

const struct ls_op *const ls_ops[] = {
    &ls_op_conv,
    &ls_op_conv_bwd_data,
    &ls_op_conv_bwd_weights,
    &ls_op_dense,
    &ls_op_dense_bwd_data,
    &ls_op_dense_bwd_weights,
    &ls_op_bn,
    &ls_op_bn_bwd,
    &ls_op_bn_running,
    &ls_op_act,
    &ls_op_act_bwd,
    &ls_op_lrn,
    &ls_op_lrn_bwd,
    &ls_op_maxpool,
    &ls_op_maxpool_bwd,
    &ls_op_avgpool,
    &ls_op_avgpool_bwd,
    &ls_op_adaptive_avgpool,
    &ls_op_adaptive_avgpool_bwd,
    &ls_op_dropout,
    &ls_op_dropout_bwd,
    &ls_op_add,
    &ls_op_concat,
    &ls_op_slice,
    &ls_op_flatten,
    &ls_op_unflatten,
    &ls_op_sum,
    &ls_op_softmax_xent,
    &ls_op_softmax_xent_bwd,
    &ls_op_l2_loss,
    &ls_op_l2_loss_bwd,
    &ls_op_reorder,
    &ls_op_sgd,
    &ls_op_lars,
    NULL,
};

const struct ls_op *ls_op_find(const char *name)
{
    for (const struct ls_op *const *op = ls_ops; *op; op++)
        if (strcmp((*op)->name, name) == 0)
            return *op;
    return NULL;
}

bool ls_attr_allowed(const struct ls_attr_key *key, double value)
{
    if (key->type == LS_ATTR_INT)
        return value >= key->low;
    if (key->above ? !(value > key->low) : key->high > 0 && !(value >= key->low))
        return false;
    return key->high <= 0 || (key->below ? value < key->high : value <= key->high);
}

const char *ls_attr_range(const struct ls_attr_key *key, char text[64])
{
    char end[32] = "";
    if (key->high > 0)
        snprintf(end, sizeof end, " to %s%g", key->below ? "below " : "", key->high);
    switch (key->type) {
    case LS_ATTR_INT:
        snprintf(text, 64, "whole number from %g", key->low);
        break;
    case LS_ATTR_FLOAT:
        if (key->above || key->high > 0)
            snprintf(text, 64, "number %s %g%s", key->above ? "above" : "from", key->low, end);
        else
            snprintf(text, 64, "number");
        break;
    case LS_ATTR_BOOL:
        snprintf(text, 64, "true or false");
        break;
    case LS_ATTR_ACT:
        snprintf(text, 64, "none, relu or relu6");
        break;
    }
    return text;
}
