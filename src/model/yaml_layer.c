/* A layer of a model file: {name: conv1, op: conv, from: pool1, out: 64, kernel: 3, pad: same, init: xavier}. */
#include "base/log.h"
#include "model/model.h"
#include "model/yaml_doc.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KNOWN 64

const struct ls_help_row ls_layer_keys[] = {
    {"name", "of the layer; its parameters are called NAME.weight, NAME.bias"},
    {"op", "what it computes"},
    {"from", "the layer or list of layers it reads, images for the input (the layer above)"},
    {NULL, NULL},
};

const struct ls_help_row ls_weights_keys[] = {
    {"init", "how its weights start (as the head's init says)"},
    {"bias_init", "how its biases start, likewise; for both, bn takes the last three ways"},
    {NULL, NULL},
};

const struct ls_help_row ls_op_shorts[] = {
    {"relu", "short for op: act, act: relu"},
    {"relu6", "short for op: act, act: relu6"},
    {"silu", "short for op: act, act: silu; x * sigmoid(x), also called swish"},
    {"hardswish", "short for op: act, act: hardswish; x * hardsigmoid(x)"},
    {"sigmoid", "short for op: act, act: sigmoid"},
    {"hardsigmoid", "short for op: act, act: hardsigmoid; x / 6 + 1/2 between 0 and 1"},
    {"gelu", "short for op: act, act: gelu, computed with erf"},
    {NULL, NULL},
};

const char *const ls_scheme_names[] = {
    [LS_SCHEME_TORCH] = "torch",           [LS_SCHEME_KAIMING_OUT] = "kaiming_out",
    [LS_SCHEME_NORMAL_001] = NULL, /* written as "normal 0.01" */
    [LS_SCHEME_KAIMING_IN] = "kaiming_in", [LS_SCHEME_KAIMING_UNIFORM] = "kaiming_uniform",
    [LS_SCHEME_XAVIER] = "xavier",
};

/* --- values -------------------------------------------------------------------------------------------------- */

static bool parse_number(const char *text, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && !*end && !errno && isfinite(*value) && fabs(*value) < 1e9;
}

static enum ls_status parse_float(struct ls_yaml *y, const yaml_node_t *node, const struct ls_attr_key *key,
                                  const char *what, double *value)
{
    const char *text;
    char range[64];
    LS_TRY(ls_yaml_text(y, node, what, &text));
    if (parse_number(text, value) && ls_attr_allowed(key, *value))
        return LS_OK;
    return ls_fail(LS_BAD_INPUT, "%s is a %s, not '%.40s'", what, ls_attr_range(key, range), text);
}

/* Finds the position of a value in words, which ends with NULL. The error lists the known words. */
static enum ls_status parse_word(struct ls_yaml *y, const yaml_node_t *node, const char *what, const char *const *words,
                                 double *position)
{
    const char *text;
    LS_TRY(ls_yaml_text(y, node, what, &text));
    char known[96] = "";
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], text) == 0) {
            *position = i;
            return LS_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", words[i]);
    }
    return ls_fail(LS_BAD_INPUT, "%s is one of %s, not '%.40s'", what, known, text);
}

static enum ls_status parse_value(struct ls_yaml *y, const yaml_node_t *node, const struct ls_attr_key *key,
                                  const char *what, double *value)
{
    static const char *const truth[] = {"false", "true", "no", "yes", "off", "on", NULL};
    const char *acts[LS_ACTS + 1] = {NULL};
    int64_t integer;
    switch (key->type) {
    case LS_ATTR_INT:
        LS_TRY(ls_yaml_integer(y, node, what, (int64_t)key->low, &integer));
        *value = (double)integer;
        return LS_OK;
    case LS_ATTR_FLOAT:
        return parse_float(y, node, key, what, value);
    case LS_ATTR_BOOL:
        LS_TRY(parse_word(y, node, what, truth, value));
        *value = fmod(*value, 2);
        return LS_OK;
    case LS_ATTR_ACT:
        for (enum ls_act act = LS_ACT_NONE; act < LS_ACTS; act++)
            acts[act] = ls_act_name(act);
        return parse_word(y, node, what, acts, value);
    }
    return LS_OK;
}

enum ls_status ls_yaml_init_rule(struct ls_yaml *y, const yaml_node_t *node, const char *what,
                                 struct ls_init_rule *rule)
{
    const char *text;
    double value;
    LS_TRY(ls_yaml_text(y, node, what, &text));
    for (int s = LS_SCHEME_TORCH; s <= LS_SCHEME_XAVIER; s++)
        if (ls_scheme_names[s] && strcmp(ls_scheme_names[s], text) == 0) {
            *rule = (struct ls_init_rule){.by_scheme = true, .scheme = (enum ls_scheme)s};
            return LS_OK;
        }
    for (int k = 0; k < LS_INITS; k++) {
        const char *name = ls_init_name((enum ls_init_kind)k);
        size_t length = strlen(name);
        if (strncmp(text, name, length) != 0 || text[length] != ' ' || !parse_number(text + length + 1, &value))
            continue;
        *rule = (struct ls_init_rule){.weight = {(enum ls_init_kind)k, (float)value}};
        return LS_OK;
    }
    return ls_fail(
        LS_BAD_INPUT,
        "%s is torch, kaiming_out, kaiming_in, kaiming_uniform, xavier, 'normal DEVIATION', 'uniform BOUND', "
        "'constant VALUE', 'identity BOUND' or 'whiten EPS', not '%.40s'",
        what, text);
}

/* --- attributes ---------------------------------------------------------------------------------------------- */

static const struct ls_attr_key *find_attr(const struct ls_op *op, const char *name)
{
    for (const struct ls_attr_key *key = op->attrs; key && key->key; key++)
        if (strcmp(key->key, name) == 0)
            return key;
    return NULL;
}

static int add_names(const struct ls_help_row *rows, const char **known, int n)
{
    for (; rows->name && n < MAX_KNOWN; rows++)
        known[n++] = rows->name;
    return n;
}

static enum ls_status unknown_attr(const struct ls_yaml_layer *layer, const char *name)
{
    const char *known[MAX_KNOWN];
    char hint[96], all[512];
    int n = add_names(ls_layer_keys, known, 0);
    n = layer->op->weights ? add_names(ls_weights_keys, known, n) : n;
    for (const struct ls_attr_key *key = layer->op->attrs; key && key->key && n < MAX_KNOWN; key++)
        known[n++] = key->key;
    return ls_fail(LS_BAD_INPUT,
                   "layer %s: unknown attribute '%.40s'%s %s has %s; `lockstep help ops %s` explains them", layer->name,
                   name, ls_yaml_hint(name, known, n, hint), layer->op->name, ls_yaml_list(known, n, all),
                   layer->op->name);
}

/* Reads a list of 2 or 4 values for an attribute with as many fields. Two values for four fields are the height and
 * width of padding. */
static enum ls_status parse_list(struct ls_yaml *y, const yaml_node_t *node, const struct ls_attr_key *key,
                                 const char *what, struct ls_attr *attr)
{
    int n = (int)(node->data.sequence.items.top - node->data.sequence.items.start);
    double value;
    if (key->fields < 2 || (n != 2 && n != key->fields))
        return ls_fail(LS_BAD_INPUT, "%s is %s, here stands a list of %d", what,
                       key->fields == 4   ? "one number, [height, width] or [top, left, bottom, right]"
                       : key->fields == 2 ? "one number or [height, width]"
                                          : "a single value",
                       n);
    for (int i = 0; i < key->fields; i++) {
        LS_TRY(parse_value(y, ls_yaml_node(y, node->data.sequence.items.start[i % n]), key, what, &value));
        ls_attr_set(attr, key, i, value);
    }
    return LS_OK;
}

static enum ls_status parse_attr(struct ls_yaml *y, const yaml_node_t *node, const struct ls_attr_key *key,
                                 int64_t classes, struct ls_yaml_layer *layer)
{
    char what[LS_LAYER_NAME + 64];
    const char *text = node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
    double value;
    snprintf(what, sizeof what, "layer %s: %s", layer->name, key->key);
    if (node->type == YAML_SEQUENCE_NODE)
        return parse_list(y, node, key, what, &layer->attr);
    if (key->fields == 4 && strcmp(text, "same") == 0) {
        layer->same_padding = true;
        return LS_OK;
    }
    if (key->offset == offsetof(struct ls_attr, out) && strcmp(text, "classes") == 0)
        value = (double)classes;
    else
        LS_TRY(parse_value(y, node, key, what, &value));
    for (int i = 0; i < key->fields; i++)
        ls_attr_set(&layer->attr, key, i, value);
    return LS_OK;
}

static enum ls_status parse_init(struct ls_yaml *y, const yaml_node_t *node, const char *name,
                                 struct ls_yaml_layer *layer)
{
    bool of_bias = strcmp(name, "bias_init") == 0;
    struct ls_init_rule *rule = of_bias ? &layer->bias_init : &layer->init;
    char what[LS_LAYER_NAME + 64];
    snprintf(what, sizeof what, "layer %s: %s", layer->name, name);
    LS_TRY(ls_yaml_init_rule(y, node, what, rule));
    bool of_filters = ls_init_of_filters(rule);
    if ((rule->by_scheme || of_filters) && (of_bias || layer->op == &ls_op_bn))
        return ls_fail(LS_BAD_INPUT, "%s is 'constant VALUE', 'normal DEVIATION' or 'uniform BOUND', not %s", what,
                       of_filters ? ls_init_name(rule->weight.kind) : ls_scheme_names[rule->scheme]);
    if (of_filters && layer->op != &ls_op_conv)
        return ls_fail(LS_BAD_INPUT, "%s is %s, which is for the filters of conv", what,
                       ls_init_name(rule->weight.kind));
    *(of_bias ? &layer->has_bias_init : &layer->has_init) = true;
    return LS_OK;
}

/* --- the layer ----------------------------------------------------------------------------------------------- */

/* Returns the value of a key in the mapping of the layer, or NULL. */
static const yaml_node_t *find_value(struct ls_yaml *y, const yaml_node_t *map, const char *key)
{
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *k = ls_yaml_node(y, p->key);
        if (k->type == YAML_SCALAR_NODE && strcmp((const char *)k->data.scalar.value, key) == 0)
            return ls_yaml_node(y, p->value);
    }
    return NULL;
}

static enum ls_status unknown_op(const struct ls_yaml_layer *layer, const char *name)
{
    const char *known[MAX_KNOWN];
    char hint[96], all[512];
    int n = 0;
    for (const struct ls_op *const *op = ls_ops; *op && n < MAX_KNOWN; op++)
        if ((*op)->layer)
            known[n++] = (*op)->name;
    n = add_names(ls_op_shorts, known, n);
    return ls_fail(LS_BAD_INPUT, "layer %s: unknown op '%.40s'%s there are %s; `lockstep help ops` explains them",
                   layer->name, name, ls_yaml_hint(name, known, n, hint), ls_yaml_list(known, n, all));
}

/* Reads the op and sets its default attributes. The name of an activation is short for act. */
static enum ls_status read_op(struct ls_yaml *y, struct ls_yaml_layer *layer)
{
    const yaml_node_t *node = find_value(y, layer->node, "op");
    const char *name;
    if (!node)
        return ls_fail(LS_BAD_INPUT, "layer %s: has no op, such as conv", layer->name);
    LS_TRY(ls_yaml_text(y, node, "op", &name));
    enum ls_act act = ls_act_find(name);
    bool is_act = act != LS_ACTS && act != LS_ACT_NONE;
    layer->op = is_act ? &ls_op_act : ls_op_find(name);
    if (!layer->op || !layer->op->layer)
        return unknown_op(layer, name);
    layer->attr = ls_attr_default(layer->op);
    if (is_act)
        layer->attr.act = act;
    return LS_OK;
}

static enum ls_status read_pair(struct ls_yaml *y, const yaml_node_pair_t *pair, int64_t classes,
                                struct ls_yaml_layer *layer)
{
    const yaml_node_t *key = ls_yaml_node(y, pair->key), *value = ls_yaml_node(y, pair->value);
    const char *name;
    LS_TRY(ls_yaml_text(y, key, "the name of an attribute", &name));
    if (find_value(y, layer->node, name) != value)
        return ls_fail(LS_BAD_INPUT, "layer %s: '%.40s' is given twice", layer->name, name);
    if (strcmp(name, "name") == 0 || strcmp(name, "op") == 0)
        return LS_OK;
    if (strcmp(name, "from") == 0) {
        layer->from = value;
        return LS_OK;
    }
    if (layer->op->weights && (strcmp(name, "init") == 0 || strcmp(name, "bias_init") == 0))
        return parse_init(y, value, name, layer);
    const struct ls_attr_key *attr = find_attr(layer->op, name);
    return attr ? parse_attr(y, value, attr, classes, layer) : unknown_attr(layer, name);
}

enum ls_status ls_yaml_read_layer(struct ls_yaml *y, const yaml_node_t *node, int64_t classes,
                                  struct ls_yaml_layer *layer)
{
    *layer = (struct ls_yaml_layer){.node = node};
    ls_yaml_at(y, node);
    if (node->type != YAML_MAPPING_NODE)
        return ls_fail(LS_BAD_INPUT, "a layer is a map such as {name: conv1, op: conv, out: 64, kernel: 3}");
    const yaml_node_t *name = find_value(y, node, "name");
    if (!name)
        return ls_fail(LS_BAD_INPUT, "this layer has no name");
    LS_TRY(ls_yaml_text(y, name, "a layer's name", &layer->name));
    if (strlen(layer->name) > LS_LAYER_NAME)
        return ls_fail(LS_BAD_INPUT, "layer %.40s...: a name has at most %d bytes", layer->name, LS_LAYER_NAME);
    LS_TRY(read_op(y, layer));
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++)
        LS_TRY(read_pair(y, p, classes, layer));
    ls_yaml_at(y, node);
    for (const struct ls_attr_key *key = layer->op->attrs; key && key->key; key++)
        if (key->required && !find_value(y, node, key->key))
            return ls_fail(LS_BAD_INPUT, "layer %s: %s needs '%s' (%s)", layer->name, layer->op->name, key->key,
                           key->help);
    return LS_OK;
}
