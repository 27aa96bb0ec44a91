/* The sweep file: a YAML map. `train` and `grid` hold options of train; an option with a list is varied. The same options
 * may also stand at the top, so that the config.yaml of a run is a sweep file as well. `random` holds options that are drawn.
 * All else are options of the sweep itself. */
#include "cmd/sweep/sweep.h"
#include "base/files/file.h"
#include "base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define LIMIT ((size_t)1 << 20)

struct reader {
    struct ls_sweep *s;
    const char *name; /* of the file, for messages */
    yaml_document_t document;
    uint64_t given[LS_OPTION_WORDS]; /* options that the command line or the environment has set */
    int n_axes;                      /* lists of the command line */
    int first[LS_OPTION_ROWS];       /* line where an option stands; 0: nowhere yet */
};

typedef enum ls_status take_pair(struct reader *r, const char *key, const yaml_node_t *at, const yaml_node_t *value);

static int line_of(const yaml_node_t *node)
{
    return (int)node->start_mark.line + 1;
}

static const char *kind_of(const yaml_node_t *node)
{
    return node->type == YAML_MAPPING_NODE    ? "a map"
           : node->type == YAML_SEQUENCE_NODE ? "a list"
           : node->type == YAML_SCALAR_NODE   ? "a single value"
                                              : "nothing";
}

/* Returns the text of a scalar, or NULL after an error. `place` is for the message. */
static const char *text_of(const struct reader *r, const yaml_node_t *node, const char *key)
{
    const char *text = node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
    if (!text)
        ls_fail(LS_USAGE, "%s:%d: %s: expected a single value, found %s", r->name, line_of(node), key, kind_of(node));
    else if (strlen(text) != node->data.scalar.length) {
        ls_fail(LS_USAGE, "%s:%d: %s: the value has a zero byte in it", r->name, line_of(node), key);
        return NULL;
    }
    return text;
}

static bool is_null(const yaml_node_t *node)
{
    const char *text = node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "-";
    return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static enum ls_status each_pair(struct reader *r, const char *what, const yaml_node_t *map, take_pair *take)
{
    if (is_null(map))
        return LS_OK;
    if (map->type != YAML_MAPPING_NODE)
        return ls_fail(LS_USAGE, "%s:%d: %s: expected a map such as {batch: [64, 128]}, found %s", r->name,
                       line_of(map), what, kind_of(map));
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(&r->document, p->key);
        const char *name = text_of(r, key, what);
        if (!name)
            return LS_USAGE;
        LS_TRY(take(r, name, key, yaml_document_get_node(&r->document, p->value)));
    }
    return LS_OK;
}

/* --- options ------------------------------------------------------------------------------------------ */

static enum ls_status find_option(struct reader *r, const char *key, const yaml_node_t *at,
                                  const struct ls_option **option)
{
    *option = ls_option_find(key);
    if (!*option) {
        const char *near = ls_option_nearest(key, LS_CMD_SWEEP);
        return ls_fail(LS_USAGE, "%s:%d: unknown option '%.64s'%s%s%s", r->name, line_of(at), key,
                       near ? "; did you mean " : "", near ? near : "",
                       near ? "?" : "; a sweep file has train, grid, random, and options of `lockstep sweep --help`");
    }
    int *first = &r->first[*option - ls_option_table];
    if (*first)
        return ls_fail(LS_USAGE, "%s:%d: %s stands here a second time (first in line %d)", r->name, line_of(at), key,
                       *first);
    *first = line_of(at);
    return LS_OK;
}

/* Whether the command line or the environment has set the option, which then counts alone. */
static bool is_overridden(const struct reader *r, const struct ls_option *option)
{
    const struct ls_axis *axis = ls_sweep_axis(r->s, option);
    return ls_option_given(r->given, option) || (axis && axis - r->s->axes < r->n_axes);
}

static enum ls_status read_values(struct reader *r, const char *where, const yaml_node_t *list, struct ls_axis *axis)
{
    const yaml_node_item_t *item = list->data.sequence.items.start, *end = list->data.sequence.items.top;
    axis->values = ls_arena_take(&r->s->strings, sizeof *axis->values * ((size_t)(end - item) + 1));
    if (!axis->values)
        return LS_FAILED;
    if (item == end)
        return ls_fail(LS_USAGE, "%s: the list is empty", where);
    for (; item < end; item++) {
        const char *text = text_of(r, yaml_document_get_node(&r->document, *item), axis->option->name);
        if (!text)
            return LS_USAGE;
        LS_TRY(ls_sweep_check_value(r->s, axis->option, where, text, &axis->values[axis->n++]));
    }
    return LS_OK;
}

static enum ls_status set_fixed(struct reader *r, const struct ls_option *option, const char *where,
                                const yaml_node_t *node)
{
    const char *text = text_of(r, node, option->name), *value = text;
    if (!text)
        return LS_USAGE;
    if (is_null(node) && !option->missing)
        return LS_OK;
    LS_TRY(ls_sweep_takes(option, where));
    if (option->commands & LS_CMD_TRAIN)
        LS_TRY(ls_sweep_check_value(r->s, option, where, is_null(node) ? "" : text, &value));
    LS_TRY(ls_option_set(&r->s->o, option, where, value));
    ls_option_mark(&r->s->o, option);
    return LS_OK;
}

static enum ls_status take_option(struct reader *r, const char *key, const yaml_node_t *at, const yaml_node_t *value)
{
    const struct ls_option *option;
    char where[512];
    LS_TRY(find_option(r, key, at, &option));
    snprintf(where, sizeof where, "%s:%d: %s", r->name, line_of(value), option->name);
    if (strcmp(option->name, "written-in") == 0 || is_overridden(r, option))
        return LS_OK;
    if (value->type != YAML_SEQUENCE_NODE)
        return set_fixed(r, option, where, value);
    struct ls_axis axis = {.option = option};
    LS_TRY(read_values(r, where, value, &axis));
    return ls_sweep_add_axis(r->s, where, &axis);
}

/* --- random ------------------------------------------------------------------------------------------- */

static enum ls_status read_range(struct reader *r, const char *where, const yaml_node_t *list, struct ls_axis *axis)
{
    bool is_number = axis->option->type == LS_OPTION_WHOLE || axis->option->type == LS_OPTION_REAL;
    if (!is_number)
        return ls_fail(LS_USAGE, "%s: only numbers are drawn from a range; use choice: [A, B]", where);
    LS_TRY(read_values(r, where, list, axis));
    if (axis->n != 2)
        return ls_fail(LS_USAGE, "%s: a range has two ends, such as [0.1, 1]; found %d", where, axis->n);
    axis->low = strtod(axis->values[0], NULL);
    axis->high = strtod(axis->values[1], NULL);
    if (axis->low >= axis->high)
        return ls_fail(LS_USAGE, "%s: the range %g to %g is empty", where, axis->low, axis->high);
    if (axis->kind == LS_AXIS_LOG && axis->low <= 0)
        return ls_fail(LS_USAGE, "%s: a logarithmic range begins above 0, not at %g", where, axis->low);
    return LS_OK;
}

static enum ls_status take_random(struct reader *r, const char *key, const yaml_node_t *at, const yaml_node_t *value)
{
    static const char *const names[] = {"", "uniform", "log", "choice"};
    struct ls_axis axis = {.kind = LS_AXIS_LIST};
    const yaml_node_t *range = NULL;
    char where[512];
    LS_TRY(find_option(r, key, at, &axis.option));
    snprintf(where, sizeof where, "%s:%d: %s", r->name, line_of(value), axis.option->name);
    if (is_overridden(r, axis.option))
        return LS_OK;
    if (value->type == YAML_MAPPING_NODE && value->data.mapping.pairs.top - value->data.mapping.pairs.start == 1) {
        const yaml_node_pair_t *p = value->data.mapping.pairs.start;
        const char *kind = text_of(r, yaml_document_get_node(&r->document, p->key), key);
        range = yaml_document_get_node(&r->document, p->value);
        for (int i = 1; i < 4 && kind; i++)
            if (strcmp(kind, names[i]) == 0)
                axis.kind = (enum ls_axis_kind)i;
    }
    if (axis.kind == LS_AXIS_LIST || range->type != YAML_SEQUENCE_NODE)
        return ls_fail(LS_USAGE, "%s: expected {uniform: [LOW, HIGH]}, {log: [LOW, HIGH]} or {choice: [A, B]}", where);
    LS_TRY(axis.kind == LS_AXIS_CHOICE ? read_values(r, where, range, &axis) : read_range(r, where, range, &axis));
    return ls_sweep_add_axis(r->s, where, &axis);
}

/* --- target and asha: a map is another form of the option's text ----------------------------------------- */

static const yaml_node_t *member(struct reader *r, const yaml_node_t *map, const char *name)
{
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(&r->document, p->key);
        if (key->type == YAML_SCALAR_NODE && strcmp((const char *)key->data.scalar.value, name) == 0)
            return yaml_document_get_node(&r->document, p->value);
    }
    return NULL;
}

static const char *member_text(struct reader *r, const yaml_node_t *map, const char *name, const char *otherwise)
{
    const yaml_node_t *node = member(r, map, name);
    return node ? text_of(r, node, name) : otherwise;
}

static enum ls_status take_text(struct reader *r, const char *key, const yaml_node_t *map, const char *text, int known)
{
    const struct ls_option *option;
    char where[512];
    LS_TRY(find_option(r, key, map, &option));
    snprintf(where, sizeof where, "%s:%d: %s", r->name, line_of(map), key);
    if (map->data.mapping.pairs.top - map->data.mapping.pairs.start != known)
        return ls_fail(LS_USAGE, "%s: expected %s", where,
                       *key == 't' ? "{top1: X}, {top5: X} or {loss: X}" : "{metric: loss, grace: 1, factor: 3}");
    if (is_overridden(r, option))
        return LS_OK;
    LS_TRY(ls_option_set(&r->s->o, option, where, text));
    ls_option_mark(&r->s->o, option);
    return LS_OK;
}

static enum ls_status take_target(struct reader *r, const yaml_node_t *map)
{
    static const char *const names[] = {"top1", "top5", "loss"};
    char text[96] = "";
    int known = 0;
    for (int i = 0; i < 3; i++) {
        const char *value = member_text(r, map, names[i], "");
        if (!value)
            return LS_USAGE;
        known += *value != 0;
        if (*value)
            snprintf(text, sizeof text, "%s:%.60s", names[i], value);
    }
    return take_text(r, "target", map, text, known == 1 ? 1 : -1);
}

static enum ls_status take_asha(struct reader *r, const yaml_node_t *map)
{
    char text[96];
    const char *metric = member_text(r, map, "metric", "loss"), *grace = member_text(r, map, "grace", "1");
    const char *factor = member_text(r, map, "factor", "3");
    if (!metric || !grace || !factor)
        return LS_USAGE;
    int known =
        (member(r, map, "metric") != NULL) + (member(r, map, "grace") != NULL) + (member(r, map, "factor") != NULL);
    snprintf(text, sizeof text, "%.20s:%.20s:%.20s", metric, grace, factor);
    return take_text(r, "asha", map, text, known);
}

static enum ls_status take_top(struct reader *r, const char *key, const yaml_node_t *at, const yaml_node_t *value)
{
    if (strcmp(key, "layers") == 0)
        return ls_fail(LS_USAGE, "%s: expected a sweep, found a model (a list of layers); give it as --model %s",
                       r->name, r->name);
    if (strcmp(key, "train") == 0 || strcmp(key, "grid") == 0)
        return each_pair(r, key, value, take_option);
    if (strcmp(key, "random") == 0)
        return each_pair(r, key, value, take_random);
    if (strcmp(key, "target") == 0 && value->type == YAML_MAPPING_NODE)
        return take_target(r, value);
    if (strcmp(key, "asha") == 0 && value->type == YAML_MAPPING_NODE)
        return take_asha(r, value);
    return take_option(r, key, at, value);
}

/* --- the file ----------------------------------------------------------------------------------------- */

static enum ls_status not_yaml(const struct reader *r, const yaml_parser_t *parser)
{
    return ls_fail(LS_USAGE, "%s:%zu: not YAML: %s", r->name, parser->problem_mark.line + 1,
                   parser->problem ? parser->problem : "out of memory");
}

/* On failure no document is left to delete. */
static enum ls_status load(struct reader *r, const char *text, size_t size)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return ls_fail(LS_FAILED, "%s: out of memory", r->name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    enum ls_status st = LS_OK;
    bool loaded = yaml_parser_load(&parser, &r->document);
    if (!loaded)
        st = not_yaml(r, &parser);
    yaml_document_t second;
    if (st == LS_OK && yaml_parser_load(&parser, &second)) {
        const yaml_node_t *root = yaml_document_get_root_node(&second);
        if (root)
            st = ls_fail(LS_USAGE, "%s:%d: a second document starts here; a sweep file is one", r->name, line_of(root));
        yaml_document_delete(&second);
    } else if (st == LS_OK) {
        st = not_yaml(r, &parser);
    }
    yaml_parser_delete(&parser);
    if (loaded && st != LS_OK)
        yaml_document_delete(&r->document);
    return st;
}

enum ls_status ls_sweep_file_read(struct ls_sweep *s, const char *path)
{
    struct reader *r = ls_alloc(1, sizeof *r);
    char *text = NULL;
    size_t size;
    if (!r)
        return LS_FAILED;
    *r = (struct reader){.s = s, .name = path, .n_axes = s->n_axes};
    memcpy(r->given, s->o.given, sizeof r->given);
    enum ls_status st = ls_file_read(path, LIMIT, &text, &size);
    if (st == LS_OK)
        st = load(r, text, size);
    if (st == LS_OK) {
        const yaml_node_t *root = yaml_document_get_root_node(&r->document);
        if (root && (root->type != YAML_MAPPING_NODE))
            st = ls_fail(LS_USAGE, "%s:%d: expected lines such as `grid: {batch: [64, 128]}`, found %s", path,
                         line_of(root), kind_of(root));
        else if (root)
            st = each_pair(r, path, root, take_top);
        yaml_document_delete(&r->document);
    }
    ls_free(text);
    ls_free(r);
    return st;
}
