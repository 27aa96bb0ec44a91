/* The list of ops, and the allowed values of attributes. */
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

const struct ls_op *const ls_ops[] = {
#define X(name) &ls_op_##name,
#include "graph/ops/list.def"
#define X(name, ...) &ls_op_##name,
#include "config/lists/optimizers.def"
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
        snprintf(text, 64, "none or an activation such as relu");
        break;
    }
    return text;
}
