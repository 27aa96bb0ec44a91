/* Parameters that stay as they are. A tensor depends on training if a trained parameter is among what it is computed from.
 * Layers below the first trained parameter do not: backward never reaches them, and they compute as in evaluation. */
#include "base/log.h"
#include "graph/graph.h"
#include "graph/ops.h"

#include <regex.h>

void ls_graph_find_trained(const struct ls_graph *g, int n_nodes, bool *trained)
{
    for (int t = 0; t < g->n_tensors; t++)
        trained[t] = g->tensors[t].role == LS_ROLE_PARAM && !g->tensors[t].frozen;
    for (int n = 0; n < n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        bool any = false;
        for (int i = 0; i < LS_MAX_IN; i++)
            any = any || (node->in[i] != LS_NONE && trained[node->in[i]]);
        for (int i = 0; i < LS_MAX_OUT; i++)
            if (node->out[i] != LS_NONE)
                trained[node->out[i]] = any;
    }
}

/* Marks the parameters that match and returns the number of the others. */
static int mark(struct ls_graph *g, const regex_t *regex)
{
    int left = 0;
    for (int t = 0; t < g->n_tensors; t++) {
        struct ls_tensor *tensor = &g->tensors[t];
        if (tensor->role != LS_ROLE_PARAM)
            continue;
        tensor->frozen = tensor->frozen || regexec(regex, tensor->name, 0, NULL, 0) == 0;
        left += !tensor->frozen;
    }
    return left;
}

/* Drops the outputs from slot `first` on, which only training needs. */
static void drop_outputs(struct ls_graph *g, struct ls_node *n, int first)
{
    for (int i = first; i < LS_MAX_OUT; i++) {
        if (n->out[i] != LS_NONE)
            g->tensors[n->out[i]].role = LS_ROLE_ACT; /* unused now: no gradient to sum */
        n->out[i] = LS_NONE;
    }
}

/* BN takes its running statistics and leaves them as they are; max pooling keeps no index. */
static enum ls_status settle_layers(struct ls_graph *g)
{
    bool *trained = ls_alloc((size_t)g->n_tensors, sizeof *trained);
    if (!trained)
        return LS_FAILED;
    ls_graph_find_trained(g, g->n_nodes, trained);
    for (int n = 0; n < g->n_nodes; n++) {
        struct ls_node *node = &g->nodes[n];
        if (trained[node->out[0]] || (node->op != &ls_op_bn && node->op != &ls_op_maxpool))
            continue;
        node->attr.training = false;
        drop_outputs(g, node, 1);
    }
    ls_free(trained);
    return LS_OK;
}

/* An example of a name, for messages. */
static const char *some_parameter(const struct ls_graph *g)
{
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == LS_ROLE_PARAM)
            return g->tensors[t].name;
    return "conv1.weight";
}

enum ls_status ls_graph_regex(const struct ls_graph *g, const char *option, const char *pattern, regex_t *regex)
{
    char why[160];
    int found = 0, error = regcomp(regex, pattern, REG_EXTENDED | REG_NOSUB);
    if (error) {
        regerror(error, regex, why, sizeof why);
        return ls_fail(LS_USAGE, "%s '%s': %s; expected a POSIX extended regular expression, such as '^layer[12]'",
                       option, pattern, why);
    }
    for (int t = 0; t < g->n_tensors; t++)
        found += g->tensors[t].role == LS_ROLE_PARAM && regexec(regex, g->tensors[t].name, 0, NULL, 0) == 0;
    if (found > 0)
        return LS_OK;
    regfree(regex);
    return ls_fail(LS_USAGE, "%s '%s': no parameter of the model matches; they have names such as %s", option, pattern,
                   some_parameter(g));
}

enum ls_status ls_graph_freeze(struct ls_graph *g, const char *pattern)
{
    regex_t regex;
    LS_TRY(ls_graph_regex(g, "--freeze", pattern, &regex));
    int left = mark(g, &regex);
    regfree(&regex);
    if (left == 0)
        return ls_fail(LS_USAGE, "--freeze '%s': every parameter matches, so nothing is left to train", pattern);
    return settle_layers(g);
}
