/* Learning rates by parameter: groups by name, and rates that fall from the last block of a network to the first. */
#include "base/log.h"
#include "graph/ops.h"
#include "optim/optim.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- groups ------------------------------------------------------------------------------------------- */

/* Finds the end of the first group, "REGEX=NUMBER" before a comma or the end of the text. A regular expression may itself
 * have commas and equals signs. Sets *equals to the sign; NULL: there is no such group. */
static const char *group_end(const char *text, const char **equals, double *factor)
{
    for (*equals = strchr(text, '='); *equals; *equals = strchr(*equals + 1, '=')) {
        char *end;
        *factor = strtod(*equals + 1, &end);
        if (end > *equals + 1 && !isspace((unsigned char)(*equals)[1]) && (*end == ',' || *end == 0))
            return end;
    }
    return NULL;
}

/* Applies one group to the parameters that no earlier group took. */
static enum ls_status apply_group(struct ls_graph *g, const char *pattern, double factor, bool *taken)
{
    regex_t regex;
    LS_TRY(ls_graph_regex(g, "--lr-groups", pattern, &regex));
    for (int t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != LS_ROLE_PARAM || taken[t] || regexec(&regex, g->tensors[t].name, 0, NULL, 0) != 0)
            continue;
        g->tensors[t].lr_factor *= factor;
        taken[t] = true;
    }
    regfree(&regex);
    return LS_OK;
}

static enum ls_status apply_groups(struct ls_graph *g, const char *groups, bool *taken)
{
    enum ls_status st = LS_OK;
    for (const char *at = groups; st == LS_OK && *at;) {
        const char *equals;
        double factor;
        const char *end = group_end(at, &equals, &factor);
        if (!end || equals == at)
            return ls_fail(LS_USAGE, "--lr-groups %s: expected REGEX=NUMBER,..., found '%s'", groups, at);
        if (!(factor > 0 && factor <= 1e6))
            return ls_fail(LS_USAGE,
                           "--lr-groups %s: %g is not above 0 and at most 1e6; --freeze keeps parameters as they are",
                           groups, factor);
        char *pattern = ls_format("%.*s", (int)(equals - at), at);
        st = pattern ? apply_group(g, pattern, factor, taken) : LS_FAILED;
        ls_free(pattern);
        at = *end ? end + 1 : end;
    }
    return st;
}

/* --- layer decay -------------------------------------------------------------------------------------- */

/* The length of the block's name in that of a layer: up to the first part that is a number (layer1.0, features.3), else
 * without the last part (features.denseblock1.denselayer1), else all of it (conv1). */
static size_t block_length(const char *layer)
{
    for (const char *part = layer; part; part = strchr(part, '.')) {
        part += *part == '.';
        size_t digits = strspn(part, "0123456789");
        if (digits > 0 && (part[digits] == '.' || part[digits] == 0))
            return (size_t)(part - layer) + digits;
    }
    const char *dot = strrchr(layer, '.');
    return dot ? (size_t)(dot - layer) : strlen(layer);
}

/* Numbers the blocks: layers that follow each other and have the same block's name are one, and BN belongs to the block
 * before it. Sets block[t] of each parameter and returns the number of blocks. */
static int number_blocks(const struct ls_graph *g, int *block)
{
    const char *last = NULL;
    size_t length = 0;
    int blocks = 0;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        if (node->phase != LS_FORWARD || !node->op->weights)
            continue;
        size_t own = block_length(node->name);
        bool same = last && own == length && strncmp(last, node->name, own) == 0;
        if (!last || (!same && node->op != &ls_op_bn)) {
            blocks++;
            last = node->name;
            length = own;
        }
        for (int i = 0; i < LS_MAX_IN; i++)
            if (node->in[i] != LS_NONE)
                block[node->in[i]] = blocks - 1;
    }
    return blocks;
}

static void apply_decay(struct ls_graph *g, double decay, int *block)
{
    int blocks = number_blocks(g, block);
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == LS_ROLE_PARAM)
            g->tensors[t].lr_factor *= pow(decay, blocks - 1 - block[t]);
}

enum ls_status ls_optim_rates(struct ls_graph *g, const struct ls_options *o)
{
    if (!o->lr_groups && o->layer_decay == 1)
        return LS_OK;
    bool *taken = ls_alloc((size_t)g->n_tensors, sizeof *taken);
    int *block = ls_alloc((size_t)g->n_tensors, sizeof *block);
    enum ls_status st = taken && block ? LS_OK : LS_FAILED;
    for (int t = 0; t < g->n_tensors; t++)
        g->tensors[t].lr_factor = 1;
    if (st == LS_OK && o->layer_decay < 1)
        apply_decay(g, o->layer_decay, block);
    if (st == LS_OK && o->lr_groups)
        st = apply_groups(g, o->lr_groups, taken);
    ls_free(taken);
    ls_free(block);
    return st;
}
