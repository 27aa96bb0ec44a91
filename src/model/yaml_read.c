/* Reads model files: a head (input, classes, init) and a list of layers. A layer reads the previous one unless
 * `from` names others. The last layer gives the logits. */
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/nearest.h"
#include "model/model.h"
#include "model/yaml_doc.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_FILE ((size_t)4 << 20)

struct head {
    struct ls_model_size size;
    struct ls_init_rule conv, dense;
    const yaml_node_t *layers;
};

struct place {
    const char *name; /* borrowed from the document */
    int line, tensor;
    bool read;
};

struct reader {
    struct ls_yaml yaml;
    struct ls_build *b; /* borrowed */
    struct head head;
    struct place *places; /* owned; the images, then one entry for each layer so far */
    int n_places;
};

const struct ls_help_row ls_head_keys[] = {
    {"input", "CxHxW, the images it is made for; --input and the data override it"},
    {"classes", "their number, likewise"},
    {"init", "how weights start, as in {conv: kaiming_out, dense: torch} (torch)"},
    {"layers", "the list of layers; the last one gives the score of each class"},
    {NULL, NULL},
};

const struct ls_help_row ls_init_rules[] = {
    {"torch", "as PyTorch's layers start: uniform within 1/sqrt(inputs)"},
    {"kaiming_out", "normal, with a deviation of sqrt(2/outputs)"},
    {"kaiming_in", "normal, with a deviation of sqrt(2/inputs)"},
    {"kaiming_uniform", "uniform, within sqrt(6/inputs) of 0"},
    {"xavier", "uniform within sqrt(6/(inputs+outputs))"},
    {"normal DEVIATION", "normal around 0"},
    {"uniform BOUND", "uniform from -BOUND to BOUND"},
    {"constant VALUE", "all the same"},
    {"identity BOUND", "conv: the first filters pass a channel on each, the others are uniform from -BOUND to BOUND"},
    {"whiten EPS", "conv on images: principal components of training patches, each to variance 1, then the same "
                   "negated; EPS is added to variances; not trained"},
    {NULL, NULL},
};

/* --- the head ------------------------------------------------------------------------------------------------ */

static enum ls_status read_input(struct ls_yaml *y, const yaml_node_t *node, struct ls_model_size *size)
{
    const char *text;
    int used = 0;
    long long c, h, w;
    LS_TRY(ls_yaml_text(y, node, "input", &text));
    if (sscanf(text, "%9lldx%9lldx%9lld%n", &c, &h, &w, &used) != 3 || text[used] || c < 1 || h < 1 || w < 1)
        return ls_fail(LS_BAD_INPUT, "input is CHANNELSxHEIGHTxWIDTH such as 3x32x32, not '%.40s'", text);
    size->channels = c;
    size->height = h;
    size->width = w;
    return LS_OK;
}

static enum ls_status read_init(struct ls_yaml *y, const yaml_node_t *node, struct head *head)
{
    static const char *const known[] = {"conv", "dense"};
    ls_yaml_at(y, node);
    if (node->type != YAML_MAPPING_NODE)
        return ls_fail(LS_BAD_INPUT, "init is a map such as {conv: kaiming_out, dense: torch}");
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const char *kind;
        char hint[96];
        LS_TRY(ls_yaml_text(y, ls_yaml_node(y, p->key), "a kind of layer", &kind));
        bool conv = strcmp(kind, "conv") == 0;
        if (!conv && strcmp(kind, "dense") != 0)
            return ls_fail(LS_BAD_INPUT, "init has no '%.40s'%s there are conv and dense", kind,
                           ls_yaml_hint(kind, known, 2, hint));
        struct ls_init_rule *rule = conv ? &head->conv : &head->dense;
        LS_TRY(ls_yaml_init_rule(y, ls_yaml_node(y, p->value), conv ? "init of conv" : "init of dense", rule));
        if (ls_init_of_filters(rule))
            return ls_fail(LS_BAD_INPUT, "init of %s is %s, which is the init of a single layer", kind,
                           ls_init_name(rule->weight.kind));
    }
    return LS_OK;
}

static bool has_key(struct ls_yaml *y, const yaml_node_t *map, const char *key)
{
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *k = ls_yaml_node(y, p->key);
        if (k->type == YAML_SCALAR_NODE && strcmp((const char *)k->data.scalar.value, key) == 0)
            return true;
    }
    return false;
}

static enum ls_status read_head(struct ls_yaml *y, struct head *head)
{
    static const char *const keys[] = {"input", "classes", "init", "layers"};
    const yaml_node_t *root = yaml_document_get_root_node(&y->document), *seen[4] = {NULL};
    *head = (struct head){.conv = {.by_scheme = true}, .dense = {.by_scheme = true}};
    ls_yaml_at(y, root);
    if (root->type != YAML_MAPPING_NODE)
        return ls_fail(LS_BAD_INPUT, "a model file is a map with input, classes, init and layers");
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = ls_yaml_node(y, p->key), *value = ls_yaml_node(y, p->value);
        const char *name;
        char hint[96];
        int k = 0;
        LS_TRY(ls_yaml_text(y, key, "a key", &name));
        while (k < 4 && strcmp(name, keys[k]) != 0)
            k++;
        if (k == 4 && !has_key(y, root, "layers") && !ls_nearest_word(name, keys, 4))
            return ls_fail(LS_BAD_INPUT,
                           "'%.40s' is no part of a model, and there is no list of layers: if this is a configuration, "
                           "leave out --model and type the file alone, as in `lockstep train %s`",
                           name, y->path);
        if (k == 4)
            return ls_fail(LS_BAD_INPUT, "unknown key '%.40s'%s a model file has input, classes, init and layers", name,
                           ls_yaml_hint(name, keys, 4, hint));
        if (seen[k])
            return ls_fail(LS_BAD_INPUT, "'%s' stands in line %d already", name, ls_yaml_line(seen[k]));
        seen[k] = key;
        if (k == 0)
            LS_TRY(read_input(y, value, &head->size));
        else if (k == 1)
            LS_TRY(ls_yaml_integer(y, value, "classes", 1, &head->size.classes));
        else if (k == 2)
            LS_TRY(read_init(y, value, head));
        else
            head->layers = value;
    }
    ls_yaml_at(y, head->layers ? head->layers : root);
    if (!head->layers || head->layers->type != YAML_SEQUENCE_NODE ||
        head->layers->data.sequence.items.start == head->layers->data.sequence.items.top)
        return ls_fail(LS_BAD_INPUT, "a model file needs a list of 'layers'");
    return LS_OK;
}

/* --- inputs of a layer --------------------------------------------------------------------------------------- */

/* Returns the line of a layer of that name anywhere in the file, or 0. */
static int find_later(struct reader *r, const char *name)
{
    const yaml_node_t *list = r->head.layers;
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++) {
        const yaml_node_t *layer = ls_yaml_node(&r->yaml, *i);
        if (layer->type != YAML_MAPPING_NODE)
            continue;
        for (yaml_node_pair_t *p = layer->data.mapping.pairs.start; p < layer->data.mapping.pairs.top; p++) {
            const yaml_node_t *key = ls_yaml_node(&r->yaml, p->key), *value = ls_yaml_node(&r->yaml, p->value);
            if (key->type == YAML_SCALAR_NODE && value->type == YAML_SCALAR_NODE &&
                strcmp((const char *)key->data.scalar.value, "name") == 0 &&
                strcmp((const char *)value->data.scalar.value, name) == 0)
                return ls_yaml_line(layer);
        }
    }
    return 0;
}

static struct place *find_place(struct reader *r, const char *name)
{
    for (int i = 0; i < r->n_places; i++)
        if (strcmp(r->places[i].name, name) == 0)
            return &r->places[i];
    return NULL;
}

static enum ls_status no_such_input(struct reader *r, const char *layer, const char *name)
{
    int line = find_later(r, name), n = 0;
    const char *known[64];
    char hint[96];
    if (line)
        return ls_fail(LS_BAD_INPUT,
                       "layer %s: reads '%s', which stands below it in line %d; layers read only what is above", layer,
                       name, line);
    for (int i = r->n_places - 1; i >= 0 && n < 64; i--)
        known[n++] = r->places[i].name;
    return ls_fail(LS_BAD_INPUT, "layer %s: reads '%.40s', but no layer has that name%s the one above is '%s'", layer,
                   name, ls_yaml_hint(name, known, n, hint), known[0]);
}

static enum ls_status add_input(struct reader *r, const struct ls_yaml_layer *layer, const yaml_node_t *node, int *in,
                                int *n)
{
    const char *name;
    LS_TRY(ls_yaml_text(&r->yaml, node, "an input", &name));
    struct place *p = find_place(r, name);
    if (!p)
        return no_such_input(r, layer->name, name);
    if (*n == LS_MAX_IN)
        return ls_fail(LS_BAD_INPUT, "layer %s: more than %d inputs", layer->name, LS_MAX_IN);
    p->read = true;
    in[(*n)++] = p->tensor;
    return LS_OK;
}

static enum ls_status read_inputs(struct reader *r, const struct ls_yaml_layer *layer, int *in, int *n)
{
    const yaml_node_t *from = layer->from;
    *n = 0;
    if (!from) {
        struct place *before = &r->places[r->n_places - 1];
        before->read = true;
        in[(*n)++] = before->tensor;
        return LS_OK;
    }
    if (from->type != YAML_SEQUENCE_NODE)
        return add_input(r, layer, from, in, n);
    for (yaml_node_item_t *i = from->data.sequence.items.start; i < from->data.sequence.items.top; i++)
        LS_TRY(add_input(r, layer, ls_yaml_node(&r->yaml, *i), in, n));
    return LS_OK;
}

/* --- layers -------------------------------------------------------------------------------------------------- */

static void apply_rule(struct ls_build *b, const char *layer, const char *part, const struct ls_init *init)
{
    ls_build_init(b, ls_build_name(b, "%s.%s", layer, part), init->kind, init->value);
}

/* Appends a layer. The rule initialises its weights: it is the `init` of the layer, or the head's rule for its kind. */
static int append_with_init(struct reader *r, const struct ls_yaml_layer *layer, const struct ls_init_rule *rule,
                            const int *in, int n)
{
    struct ls_build *b = r->b;
    b->conv_scheme = b->dense_scheme = rule->by_scheme ? rule->scheme : LS_SCHEME_NORMAL_001;
    int y = ls_build_layer(b, layer->op, layer->name, &layer->attr, in, n);
    if (!rule->by_scheme)
        apply_rule(b, layer->name, "weight", &rule->weight);
    if (layer->has_bias_init)
        apply_rule(b, layer->name, "bias", &layer->bias_init.weight);
    return y;
}

/* A stride of 0 in a pooling stands for its kernel. The op reports other invalid values. */
static void pad_same(struct ls_attr *attr, const struct ls_shape *x)
{
    struct ls_attr window = *attr;
    window.stride_h = window.stride_h ? window.stride_h : window.kernel_h;
    window.stride_w = window.stride_w ? window.stride_w : window.kernel_w;
    if (x->rank != 4 || window.stride_h < 1 || window.stride_w < 1)
        return;
    ls_attr_same_padding(&window, x->dim[2], x->dim[3]);
    attr->pad_t = window.pad_t, attr->pad_l = window.pad_l;
    attr->pad_b = window.pad_b, attr->pad_r = window.pad_r;
}

static enum ls_status append_layer(struct reader *r, struct ls_yaml_layer *layer)
{
    struct ls_build *b = r->b;
    int in[LS_MAX_IN], n, y;
    LS_TRY(read_inputs(r, layer, in, &n));
    ls_yaml_at(&r->yaml, layer->node);
    if (n == 0)
        return ls_fail(LS_BAD_INPUT, "layer %s: 'from' names no input", layer->name);
    if (layer->same_padding)
        pad_same(&layer->attr, &b->g->tensors[in[0]].shape);
    const struct ls_init_rule *kind = layer->op == &ls_op_conv    ? &r->head.conv
                                      : layer->op == &ls_op_dense ? &r->head.dense
                                                                  : NULL;
    if (layer->has_bias_init && kind && !layer->attr.bias)
        return ls_fail(LS_BAD_INPUT, "layer %s: bias_init is given, but bias is false", layer->name);
    if (layer->has_init)
        kind = &layer->init;
    if (kind) {
        y = append_with_init(r, layer, kind, in, n);
    } else {
        y = ls_build_layer(b, layer->op, layer->name, &layer->attr, in, n);
        if (layer->has_bias_init)
            apply_rule(b, layer->name, "bias", &layer->bias_init.weight);
    }
    if (b->status != LS_OK)
        return b->status;
    r->places[r->n_places++] = (struct place){.name = layer->name, .line = ls_yaml_line(layer->node), .tensor = y};
    return LS_OK;
}

static enum ls_status check_logits(struct reader *r, const struct ls_yaml_layer *last)
{
    const struct ls_graph *g = r->b->g;
    const struct ls_shape *shape = &g->tensors[r->places[r->n_places - 1].tensor].shape;
    char text[64];
    ls_yaml_at(&r->yaml, last->node);
    if (shape->rank != 2)
        return ls_fail(LS_BAD_INPUT,
                       "layer %s: is the last and gives %s; end with a dense layer, {op: dense, out: classes}",
                       last->name, ls_shape_text(shape, text));
    if (shape->dim[1] != r->b->classes)
        return ls_fail(LS_BAD_INPUT,
                       "layer %s: is the last and gives %lld classes where %lld are needed; write `out: classes`",
                       last->name, (long long)shape->dim[1], (long long)r->b->classes);
    if (ls_graph_parameters(g, NULL) == 0)
        return ls_fail(LS_BAD_INPUT, "layer %s: is the last, and no layer has anything to train", last->name);
    return LS_OK;
}

static enum ls_status read_layers(struct reader *r, int *logits)
{
    const yaml_node_t *list = r->head.layers;
    int n = (int)(list->data.sequence.items.top - list->data.sequence.items.start);
    struct ls_yaml_layer layer;
    if (n > LS_YAML_LAYERS)
        return ls_fail(LS_BAD_INPUT, "%d layers; at most %d are possible", n, LS_YAML_LAYERS);
    r->places = ls_alloc((size_t)n + 1, sizeof *r->places);
    if (!r->places)
        return LS_FAILED;
    r->places[r->n_places++] = (struct place){.name = "images", .tensor = r->b->images};
    for (int i = 0; i < n; i++) {
        LS_TRY(ls_yaml_read_layer(&r->yaml, ls_yaml_node(&r->yaml, list->data.sequence.items.start[i]), r->b->classes,
                                  &layer));
        struct place *other = find_place(r, layer.name);
        if (other && other->line)
            return ls_fail(LS_BAD_INPUT, "layer %s: this name stands in line %d already", layer.name, other->line);
        LS_TRY(append_layer(r, &layer));
    }
    for (int i = 0; i < n; i++)
        if (!r->places[i].read) {
            ls_log_place("%s:%d: ", r->yaml.path, r->places[i].line);
            return ls_fail(LS_BAD_INPUT, "layer %s: nothing reads its output; name it in a later 'from' or remove it",
                           r->places[i].name);
        }
    LS_TRY(check_logits(r, &layer));
    *logits = r->places[n].tensor;
    return LS_OK;
}

/* --- entry points -------------------------------------------------------------------------------------------- */

enum ls_status ls_model_parse_yaml(const char *path, const char *text, size_t length, struct ls_build *b, int *logits)
{
    struct reader r = {.b = b};
    LS_TRY(b->status);
    LS_TRY(ls_yaml_load(&r.yaml, path, text, length));
    enum ls_status st = read_head(&r.yaml, &r.head);
    if (st == LS_OK)
        st = read_layers(&r, logits);
    ls_free(r.places);
    ls_yaml_release(&r.yaml);
    /* Every error that an op finds here is an error in the file. */
    b->status = st == LS_USAGE ? LS_BAD_INPUT : st;
    return b->status;
}

enum ls_status ls_model_read_text(const char *path, char **text)
{
    size_t length;
    LS_TRY(ls_file_read(path, LARGEST_FILE, text, &length));
    if (strlen(*text) == length)
        return LS_OK;
    ls_free(*text);
    return ls_fail(LS_BAD_INPUT, "%s: there is a zero byte in it; a model file is text in UTF-8", path);
}

enum ls_status ls_model_read_yaml(const char *path, struct ls_build *b, int *logits)
{
    char *text;
    LS_TRY(ls_model_read_text(path, &text));
    enum ls_status st = ls_model_parse_yaml(path, text, strlen(text), b, logits);
    ls_free(text);
    return st;
}

enum ls_status ls_model_parse_size(const char *path, const char *text, struct ls_model_size *size)
{
    struct ls_yaml y;
    struct head head;
    LS_TRY(ls_yaml_load(&y, path, text, strlen(text)));
    enum ls_status st = read_head(&y, &head);
    ls_yaml_release(&y);
    if (st == LS_OK)
        *size = head.size;
    return st;
}
