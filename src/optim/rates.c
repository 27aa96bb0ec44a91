/* Learning rates, momenta and weight decay by parameter: groups by name, and rates that fall from the last block of a
 * network to the first. */
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

/* An option that gives parameters a number by name. */
struct grouped {
    const char *option, *groups, *range; /* range: in words, for messages */
    double low, high;                    /* high is excluded where low is not */
    bool above;                          /* low is excluded */
    void (*set)(struct ls_tensor *t, double value);
};

static void set_rate(struct ls_tensor *t, double factor)
{
    t->lr_factor *= factor;
}

static void set_momentum(struct ls_tensor *t, double momentum)
{
    t->momentum = momentum;
    t->has_momentum = true;
}

static void set_decay(struct ls_tensor *t, double factor)
{
    t->decay_factor = factor;
    t->has_decay_factor = true;
}

/* Applies one group to the parameters that no earlier group took. */
static enum ls_status apply_group(struct ls_graph *g, const struct grouped *by, const char *pattern, double value,
                                  bool *taken)
{
    regex_t regex;
    LS_TRY(ls_graph_regex(g, by->option, pattern, &regex));
    for (int t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != LS_ROLE_PARAM || taken[t] || regexec(&regex, g->tensors[t].name, 0, NULL, 0) != 0)
            continue;
        by->set(&g->tensors[t], value);
        taken[t] = true;
    }
    regfree(&regex);
    return LS_OK;
}

static enum ls_status apply_groups(struct ls_graph *g, const struct grouped *by, bool *taken)
{
    enum ls_status st = LS_OK;
    memset(taken, 0, (size_t)g->n_tensors * sizeof *taken);
    for (const char *at = by->groups; st == LS_OK && at && *at;) {
        const char *equals;
        double value;
        const char *end = group_end(at, &equals, &value);
        if (!end || equals == at)
            return ls_fail(LS_USAGE, "%s %s: expected REGEX=NUMBER,..., found '%s'", by->option, by->groups, at);
        if (!(by->above ? value > by->low && value <= by->high : value >= by->low && value < by->high))
            return ls_fail(LS_USAGE, "%s %s: %g is not %s", by->option, by->groups, value, by->range);
        char *pattern = ls_format("%.*s", (int)(equals - at), at);
        st = pattern ? apply_group(g, by, pattern, value, taken) : LS_FAILED;
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

static bool has_weights(const struct ls_node *n)
{
    return n->phase == LS_FORWARD && n->op->weights;
}

static bool same_block(const char *layer, const char *other)
{
    size_t length = block_length(layer);
    return length == block_length(other) && strncmp(layer, other, length) == 0;
}

/* Does the block of BN node n go on behind it? So it does where BN stands before the convolutions, as in DenseNet. */
static bool leads(const struct ls_graph *g, int n)
{
    int next = n + 1;
    while (next < g->n_nodes && (!has_weights(&g->nodes[next]) || g->nodes[next].op == &ls_op_bn))
        next++;
    return next < g->n_nodes && same_block(g->nodes[n].name, g->nodes[next].name);
}

/* Numbers the blocks: layers that follow each other and have the same block's name are one. BN that has no other layer of its
 * block behind it belongs to the block before it. Sets block[t] of each parameter and returns the number of blocks. */
static int number_blocks(const struct ls_graph *g, int *block)
{
    const char *last = NULL;
    int blocks = 0;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        if (!has_weights(node))
            continue;
        if (!last || (!same_block(last, node->name) && (node->op != &ls_op_bn || leads(g, n)))) {
            blocks++;
            last = node->name;
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
    const struct grouped options[] = {
        {"--lr-groups", o->lr_groups, "above 0 and at most 1e6; --freeze keeps parameters as they are", 0, 1e6, true,
         set_rate},
        {"--momentum-groups", o->momentum_groups, "from 0 to below 1", 0, 1, false, set_momentum},
        {"--decay-groups", o->decay_groups, "from 0 to below 1e12", 0, 1e12, false, set_decay},
    };
    if (!o->lr_groups && !o->momentum_groups && !o->decay_groups && o->layer_decay == 1)
        return LS_OK;
    bool *taken = ls_alloc((size_t)g->n_tensors, sizeof *taken);
    int *block = ls_alloc((size_t)g->n_tensors, sizeof *block);
    enum ls_status st = taken && block ? LS_OK : LS_FAILED;
    for (int t = 0; t < g->n_tensors; t++)
        g->tensors[t].lr_factor = 1;
    if (st == LS_OK && o->layer_decay < 1)
        apply_decay(g, o->layer_decay, block);
    for (size_t i = 0; st == LS_OK && i < sizeof options / sizeof *options; i++)
        st = apply_groups(g, &options[i], taken);
    ls_free(taken);
    ls_free(block);
    return st;
}
