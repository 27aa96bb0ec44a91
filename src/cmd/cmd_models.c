/* lockstep models [show NAME]: lists the built-in models, or shows one model (built-in or file) layer by layer. */
#include "base/log.h"
#include "base/text/utf8.h"
#include "cmd/cmd.h"
#include "cmd/json.h"
#include "model/model.h"
#include "report/formats/table.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* Formats 25557032 as "25,557,032". */
static const char *group_digits(int64_t value, char text[32])
{
    char plain[32];
    int length = snprintf(plain, sizeof plain, "%" PRId64, value), used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = plain[i];
    }
    text[used] = 0;
    return text;
}

/* Formats a count as three digits and k, M or G. */
static const char *round_count(int64_t value, char text[32])
{
    static const char units[] = " kMG";
    double v = (double)value;
    int unit = 0;
    while (v >= 1000 && unit < 3) {
        v /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(text, 32, "%" PRId64, value);
    else
        snprintf(text, 32, "%.*f %c", v < 10 ? 2 : v < 100 ? 1 : 0, v, units[unit]);
    return text;
}

/* Formats a shape without the batch dimension. */
static const char *sample_shape(const struct ls_shape *s, char text[64])
{
    struct ls_shape sample = {.rank = s->rank - 1};
    memcpy(sample.dim, s->dim + 1, sizeof *s->dim * (size_t)sample.rank);
    return ls_shape_text(&sample, text);
}

static enum ls_status build(const char *model, const struct ls_model_size *size, struct ls_graph *g)
{
    struct ls_model_request request = {.model = model,
                                       .size = *size,
                                       .training = true,
                                       .dtype = LS_F32,
                                       .loss = "xent",
                                       .dropout = -1,
                                       .drop_path = -1};
    return ls_model_build(&request, g);
}

/* The number of parameters that belong to a layer. */
static int64_t layer_parameters(const struct ls_graph *g, const struct ls_node *n)
{
    int64_t count = 0;
    for (int i = 0; i < LS_MAX_IN; i++)
        if (n->in[i] != LS_NONE && g->tensors[n->in[i]].role == LS_ROLE_PARAM)
            count += ls_shape_count(&g->tensors[n->in[i]].shape);
    return count;
}

static int64_t layer_macs(const struct ls_graph *g, const struct ls_node *n)
{
    return n->op->macs ? n->op->macs(g, n) : 0;
}

static const char *layer_op(const struct ls_node *n)
{
    return n->op == &ls_op_act ? ls_act_name(n->attr.act) : n->op->name;
}

/* --- JSON ---------------------------------------------------------------------------------------------------- */

static enum ls_status print_json(json_t *value)
{
    /* When memory runs out, jansson returns NULL, and json_pack returns NULL for a NULL value. */
    int failed = !value || ls_json_print(value, JSON_INDENT(2)) != 0;
    json_decref(value);
    if (failed)
        return ls_fail(LS_FAILED, "the JSON cannot be written");
    putchar('\n');
    return LS_OK;
}

static json_t *describe(const char *name, const struct ls_graph *g)
{
    char text[64];
    int tensors;
    json_int_t parameters = ls_graph_parameters(g, &tensors);
    return json_pack("{s:s, s:s, s:I, s:I, s:i, s:I}", "name", name, "input",
                     sample_shape(&g->tensors[g->input].shape, text), "classes",
                     (json_int_t)g->tensors[g->logits].shape.dim[1], "parameters", parameters, "tensors", tensors,
                     "macs", (json_int_t)ls_graph_macs(g));
}

static json_t *describe_layers(const struct ls_graph *g)
{
    json_t *layers = json_array();
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ls_node *n = &g->nodes[i];
        char text[64];
        if (n->op->layer)
            json_array_append_new(layers,
                                  json_pack("{s:s, s:s, s:s, s:I, s:I}", "name", n->name, "op", layer_op(n), "output",
                                            sample_shape(&g->tensors[n->out[0]].shape, text), "parameters",
                                            (json_int_t)layer_parameters(g, n), "macs", (json_int_t)layer_macs(g, n)));
    }
    return layers;
}

/* --- the list ------------------------------------------------------------------------------------------------ */

static void list_row(struct ls_table *t, const struct ls_model *m, const struct ls_graph *g)
{
    char text[64];
    int tensors;
    int64_t parameters = ls_graph_parameters(g, &tensors);
    ls_table_row(t);
    ls_table_cell(t, "%s", m->name);
    ls_table_cell(t, "%s", group_digits(parameters, text));
    ls_table_cell(t, "%d", tensors);
    ls_table_cell(t, "%s", round_count(ls_graph_macs(g), text));
    ls_table_cell(t, "%s", sample_shape(&g->tensors[g->input].shape, text));
    ls_table_cell(t, "%" PRId64, g->tensors[g->logits].shape.dim[1]);
    ls_table_cell(t, "%s", m->summary);
}

/* Lists every model at its default size, or at the size in the options. */
static enum ls_status list_models(const struct ls_options *o, const struct ls_model_size *size)
{
    static const char *const headings[] = {"model", "parameters", "tensors", "MACs", "input", "classes", "summary"};
    struct ls_table table;
    json_t *array = json_array();
    enum ls_status st = LS_OK;
    ls_table_init(&table, "lrrrrrl", headings);
    for (const struct ls_model *const *m = ls_models; *m && st == LS_OK; m++) {
        struct ls_graph g;
        st = build((*m)->name, size, &g);
        if (st == LS_OK) {
            json_t *model = describe((*m)->name, &g);
            json_object_set_new(model, "summary", json_string((*m)->summary));
            json_array_append_new(array, model);
            list_row(&table, *m, &g);
        }
        ls_graph_release(&g);
    }
    if (st == LS_OK)
        st = o->json ? print_json(json_incref(array)) : ls_table_print(&table, stdout);
    json_decref(array);
    ls_table_release(&table);
    return st;
}

/* --- one model ----------------------------------------------------------------------------------------------- */

static enum ls_status show_layers(const char *name, const struct ls_graph *g)
{
    static const char *const headings[] = {"layer", "op", "output", "parameters", "MACs"};
    struct ls_table table;
    char input[64], count[32], macs[32], shown[LS_PRINTABLE_SIZE];
    int tensors;
    int64_t parameters = ls_graph_parameters(g, &tensors);
    printf("%s: input %s, %" PRId64 " classes, %s parameters in %d tensors, %s MACs\n",
           ls_utf8_printable(name, shown, sizeof shown), sample_shape(&g->tensors[g->input].shape, input),
           g->tensors[g->logits].shape.dim[1], group_digits(parameters, count), tensors,
           round_count(ls_graph_macs(g), macs));
    ls_table_init(&table, "llrrr", headings);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ls_node *n = &g->nodes[i];
        if (!n->op->layer)
            continue;
        int64_t own = layer_parameters(g, n), work = layer_macs(g, n);
        ls_table_row(&table);
        ls_table_cell(&table, "%s", n->name);
        ls_table_cell(&table, "%s", layer_op(n));
        ls_table_cell(&table, "%s", sample_shape(&g->tensors[n->out[0]].shape, input));
        ls_table_cell(&table, "%s", own ? group_digits(own, count) : "");
        ls_table_cell(&table, "%s", work ? round_count(work, macs) : "");
    }
    enum ls_status st = ls_table_print(&table, stdout);
    ls_table_release(&table);
    return st;
}

static enum ls_status show_json(const char *name, const struct ls_graph *g)
{
    json_t *model = describe(name, g);
    json_object_set_new(model, "layers", describe_layers(g));
    return print_json(model);
}

static enum ls_status show_model(const struct ls_options *o, const char *name, const struct ls_model_size *size)
{
    struct ls_graph g;
    enum ls_status st = build(name, size, &g);
    if (st == LS_OK)
        st = o->yaml ? ls_model_write_yaml(&g, name, stdout) : o->json ? show_json(name, &g) : show_layers(name, &g);
    ls_graph_release(&g);
    return st;
}

enum ls_status ls_cmd_models(struct ls_options *o)
{
    struct ls_model_size size = {.batch = 1, .classes = o->classes};
    if (o->input)
        LS_TRY(ls_parse_input("input", o->input, &size.channels, &size.height, &size.width));
    if (o->yaml && o->json)
        return ls_fail(LS_USAGE, "models: --yaml and --json are two forms; give one");
    if (o->n_args == 0)
        return list_models(o, &size);
    if (o->n_args != 2 || strcmp(o->args[0], "show") != 0)
        return ls_fail(LS_USAGE, "models takes nothing or `show NAME`, such as `lockstep models show resnet50`");
    return show_model(o, o->args[1], &size);
}
