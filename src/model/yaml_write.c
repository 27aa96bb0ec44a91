/* Writes a forward graph as a model file. All values come from the graph, so that graphs from a file, from a
 * built-in model and from code are written alike. Reading the file gives the same graph. */
#include "base/log.h"
#include "base/text/utf8.h"
#include "model/model.h"
#include "model/yaml_doc.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Formats the shortest text that reads back as the same float. */
static const char *float_text(float value, char text[32])
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, 32, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return text;
}

static bool same_init(struct ls_init a, struct ls_init b)
{
    return a.kind == b.kind && a.value == b.value;
}

/* --- initialisation ------------------------------------------------------------------------------------------ */

static const struct ls_tensor *param(const struct ls_graph *g, const struct ls_node *n, int slot)
{
    return n->in[slot] == LS_NONE ? NULL : &g->tensors[n->in[slot]];
}

/* Finds the rule that gives the initial weight of a layer. *bias is the initial bias under that rule. */
static struct ls_init_rule find_rule(const struct ls_graph *g, const struct ls_node *n, struct ls_init *bias)
{
    const struct ls_tensor *w = param(g, n, 1), *b = param(g, n, 2);
    for (int s = LS_SCHEME_TORCH; s <= LS_SCHEME_XAVIER; s++) {
        struct ls_init weight;
        ls_scheme_init((enum ls_scheme)s, &w->shape, &weight, bias);
        /* Only the torch scheme determines the bias. The others start it at 0, and a different bias is written as
         * bias_init. */
        bool fits = s != LS_SCHEME_TORCH || !b || same_init(b->init, *bias);
        if (ls_scheme_names[s] && same_init(weight, w->init) && fits)
            return (struct ls_init_rule){.by_scheme = true, .scheme = (enum ls_scheme)s};
    }
    *bias = (struct ls_init){LS_INIT_CONST, 0};
    return (struct ls_init_rule){.weight = w->init};
}

static bool same_rule(const struct ls_init_rule *a, const struct ls_init_rule *b)
{
    return a->by_scheme == b->by_scheme && (a->by_scheme ? a->scheme == b->scheme : same_init(a->weight, b->weight));
}

static void print_init(FILE *out, struct ls_init init)
{
    char text[32];
    fprintf(out, "%s %s", ls_init_name(init.kind), float_text(init.value, text));
}

static void print_rule(FILE *out, const struct ls_init_rule *rule)
{
    if (rule->by_scheme)
        fputs(ls_scheme_names[rule->scheme], out);
    else
        print_init(out, rule->weight);
}

/* The rule of the head for a kind of layer is the rule of the first such layer, unless it is one for some filters only. */
static struct ls_init_rule head_rule(const struct ls_graph *g, const struct ls_op *op)
{
    struct ls_init bias;
    for (int n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].op != op)
            continue;
        struct ls_init_rule rule = find_rule(g, &g->nodes[n], &bias);
        if (!ls_init_of_filters(&rule))
            return rule;
    }
    return (struct ls_init_rule){.by_scheme = true, .scheme = LS_SCHEME_TORCH};
}

static void print_layer_init(FILE *out, const struct ls_graph *g, const struct ls_node *n,
                             const struct ls_init_rule *head)
{
    struct ls_init bias = {LS_INIT_CONST, 0}, one = {LS_INIT_CONST, 1};
    const struct ls_tensor *w = param(g, n, 1), *b = param(g, n, 2);
    if (n->op == &ls_op_bn) {
        if (!same_init(w->init, one)) {
            fputs(", init: ", out);
            print_init(out, w->init);
        }
    } else {
        struct ls_init_rule rule = find_rule(g, n, &bias);
        if (!same_rule(&rule, head)) {
            fputs(", init: ", out);
            print_rule(out, &rule);
        }
    }
    if (b && !same_init(b->init, bias)) {
        fputs(", bias_init: ", out);
        print_init(out, b->init);
    }
}

/* --- attributes ---------------------------------------------------------------------------------------------- */

static void print_value(FILE *out, const struct ls_attr *attr, const struct ls_attr_key *key, int field)
{
    double value = ls_attr_get(attr, key, field);
    char text[32];
    if (key->type == LS_ATTR_INT)
        fprintf(out, "%" PRId64, (int64_t)value);
    else if (key->type == LS_ATTR_FLOAT)
        fputs(float_text((float)value, text), out);
    else if (key->type == LS_ATTR_BOOL)
        fputs(value != 0 ? "true" : "false", out);
    else
        fputs(ls_act_name((enum ls_act)value), out);
}

/* Uneven padding that equals "same" padding is written as "same", which also holds for other input sizes. */
static bool is_same_padding(const struct ls_graph *g, const struct ls_node *n)
{
    struct ls_attr same = n->attr;
    const struct ls_shape *x = &g->tensors[n->in[0]].shape;
    ls_attr_same_padding(&same, x->dim[2], x->dim[3]);
    return same.pad_t == n->attr.pad_t && same.pad_l == n->attr.pad_l && same.pad_b == n->attr.pad_b &&
           same.pad_r == n->attr.pad_r;
}

static void print_attr(FILE *out, const struct ls_graph *g, const struct ls_node *n, const struct ls_attr_key *key)
{
    int shown = key->fields;
    bool halves = true, equal = true;
    for (int i = 0; i < key->fields; i++) {
        equal &= ls_attr_get(&n->attr, key, i) == ls_attr_get(&n->attr, key, 0);
        halves &= ls_attr_get(&n->attr, key, i) == ls_attr_get(&n->attr, key, i % 2);
    }
    fprintf(out, ", %s: ", key->key);
    if (equal)
        shown = 1;
    else if (key->fields == 4 && halves)
        shown = 2;
    else if (key->fields == 4 && is_same_padding(g, n)) {
        fputs("same", out);
        return;
    }
    for (int i = 0; i < shown; i++) {
        fputs(i ? ", " : shown > 1 ? "[" : "", out);
        print_value(out, &n->attr, key, i);
    }
    fputs(shown > 1 ? "]" : "", out);
}

/* Whether the layer's channels are the logits: nothing that follows changes their number. */
static bool gives_logits(const struct ls_graph *g, const struct ls_node *n)
{
    int t = n->out[0];
    for (const struct ls_node *m = n + 1; m < g->nodes + g->n_nodes && t != g->logits; m++)
        if (m->in[0] == t && ls_graph_readers(g, t) == 1 &&
            (m->op == &ls_op_act || m->op == &ls_op_adaptive_avgpool || m->op == &ls_op_flatten))
            t = m->out[0];
    return t == g->logits && g->tensors[n->out[0]].shape.dim[1] == g->tensors[t].shape.dim[1];
}

static void print_attrs(FILE *out, const struct ls_graph *g, const struct ls_node *n)
{
    struct ls_attr usual = ls_attr_default(n->op);
    for (const struct ls_attr_key *key = n->op->attrs; key && key->key; key++) {
        bool differs = key->required || n->op == &ls_op_dropout ||
                       n->op == &ls_op_drop_path; /* p is always written, for the reader of the file */
        for (int i = 0; i < key->fields; i++)
            differs |= ls_attr_get(&n->attr, key, i) != ls_attr_get(&usual, key, i);
        if (key->offset == offsetof(struct ls_attr, out) && gives_logits(g, n))
            fprintf(out, ", %s: classes", key->key);
        else if (differs)
            print_attr(out, g, n, key);
    }
}

/* --- layers -------------------------------------------------------------------------------------------------- */

static const char *quote(const char *name)
{
    return isalnum((unsigned char)*name) ? "" : "'";
}

/* Writes the inputs of a layer unless it reads only the previous layer. */
static void print_from(FILE *out, const struct ls_graph *g, const struct ls_node *n, int before)
{
    int in[LS_MAX_IN], count = 0;
    for (int i = 0; i < LS_MAX_IN; i++)
        if (n->in[i] != LS_NONE && !ls_role_kept(g->tensors[n->in[i]].role))
            in[count++] = n->in[i];
    if (count == 1 && in[0] == before)
        return;
    fputs(count > 1 ? ", from: [" : ", from: ", out);
    for (int i = 0; i < count; i++) {
        const char *name = g->tensors[in[i]].name;
        fprintf(out, "%s%s%s%s", i ? ", " : "", quote(name), name, quote(name));
    }
    fputs(count > 1 ? "]" : "", out);
}

static void print_layer(FILE *out, const struct ls_graph *g, const struct ls_node *n, int before,
                        const struct ls_init_rule *conv, const struct ls_init_rule *dense)
{
    bool act = n->op == &ls_op_act && n->attr.act != LS_ACT_NONE;
    const char *op = act ? ls_act_name(n->attr.act) : n->op->name;
    fprintf(out, "  - {name: %s%s%s, op: %s", quote(n->name), n->name, quote(n->name), op);
    print_from(out, g, n, before);
    if (!act)
        print_attrs(out, g, n);
    if (n->op->weights)
        print_layer_init(out, g, n, n->op == &ls_op_conv ? conv : dense);
    fputs("}\n", out);
}

enum ls_status ls_model_write_yaml(const struct ls_graph *g, const char *name, FILE *out)
{
    const struct ls_shape *x = &g->tensors[g->input].shape;
    struct ls_init_rule conv = head_rule(g, &ls_op_conv), dense = head_rule(g, &ls_op_dense);
    int tensors, before = g->input;
    int64_t parameters = ls_graph_parameters(g, &tensors);
    char shown[LS_PRINTABLE_SIZE];
    fprintf(out, "# %s: %" PRId64 " parameters in %d tensors\n", ls_utf8_printable(name, shown, sizeof shown),
            parameters, tensors);
    fprintf(out, "input: %" PRId64 "x%" PRId64 "x%" PRId64 "\n", x->dim[1], x->dim[2], x->dim[3]);
    fprintf(out, "classes: %" PRId64 "\n", g->tensors[g->logits].shape.dim[1]);
    fputs("init: {conv: ", out);
    print_rule(out, &conv);
    fputs(", dense: ", out);
    print_rule(out, &dense);
    fputs("}\nlayers:\n", out);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ls_node *n = &g->nodes[i];
        if (n->phase != LS_FORWARD || !n->op->layer)
            continue;
        print_layer(out, g, n, before, &conv, &dense);
        before = n->out[0];
    }
    if (fflush(out) != 0 || ferror(out))
        return ls_fail(LS_FAILED, "the model cannot be written: %s", strerror(errno));
    return LS_OK;
}
