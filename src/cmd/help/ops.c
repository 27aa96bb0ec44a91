/* lockstep help ops [OP]: explains model files and the ops of their layers. */
#include "base/text/help.h"
#include "base/log.h"
#include "base/text/nearest.h"
#include "cmd/help/help.h"
#include "model/model.h"

#include <ctype.h>
#include <string.h>

#define MAX_OPS 64
#define MAX_ATTRS 16

/* Formats the allowed values of an attribute and its default: "whole number from 1, or [height, width] (1)". */
static void describe_value(const struct ls_attr_key *key, char *text, size_t room)
{
    char range[64], missing[32];
    const char *more = key->fields == 2 ? ", or [height, width]"
                       : key->fields == 4
                           ? ", or [height, width], or [top, left, bottom, right], or same: as much as keeps the size"
                           : "";
    const char *classes = key->offset == offsetof(struct ls_attr, out) ? ", or classes" : "";
    if (key->required)
        snprintf(missing, sizeof missing, "required");
    else if (key->type == LS_ATTR_BOOL)
        snprintf(missing, sizeof missing, "%s", key->missing != 0 ? "true" : "false");
    else if (key->type == LS_ATTR_ACT)
        snprintf(missing, sizeof missing, "%s", ls_act_name((enum ls_act)key->missing));
    else
        snprintf(missing, sizeof missing, "%g", key->missing);
    ls_attr_range(key, range);
    range[0] = (char)toupper((unsigned char)range[0]);
    snprintf(text, room, "%s. %s%s%s (%s)", key->help, range, classes, more, missing);
}

static void print_attrs(const struct ls_op *op, FILE *out)
{
    struct ls_help_row rows[MAX_ATTRS + 1];
    char texts[MAX_ATTRS][256];
    int n = 0;
    for (const struct ls_attr_key *key = op->attrs; key && key->key && n < MAX_ATTRS; key++, n++) {
        describe_value(key, texts[n], sizeof texts[n]);
        rows[n] = (struct ls_help_row){key->key, texts[n]};
    }
    rows[n] = (struct ls_help_row){NULL, NULL};
    ls_help_rows(rows, 4, out);
}

static void print_op(const struct ls_op *op, FILE *out)
{
    fprintf(out, "  %s\n    ", op->name);
    char text[256];
    if (op->weights || op->max_in == 1)
        snprintf(text, sizeof text, "%s", op->help);
    else if (op->min_in == op->max_in)
        snprintf(text, sizeof text, "%s; from: [%d layers]", op->help, op->min_in);
    else
        snprintf(text, sizeof text, "%s; from: [%d to %d layers]", op->help, op->min_in, op->max_in);
    ls_help_text(text, 4, out);
    print_attrs(op, out);
}

/* Prints a layer with the required attributes. */
static void print_example(const struct ls_op *op, FILE *out)
{
    fprintf(out, "\nAs a line of a model file\n  - {name: %s1, op: %s", op->name, op->name);
    if (!op->weights && op->min_in > 1)
        fprintf(out, ", from: [conv2, relu1]");
    for (const struct ls_attr_key *key = op->attrs; key && key->key; key++)
        if (key->required)
            fprintf(out, ", %s: %d", key->key, key->fields == 1 ? 64 : 3);
    fprintf(out, "}\n");
}

static void print_one(const struct ls_op *op, FILE *out)
{
    print_op(op, out);
    fprintf(out, "\nOf every layer\n");
    ls_help_rows(ls_layer_keys, 4, out);
    if (op->weights) {
        fprintf(out, "\nOf layers with weights\n");
        ls_help_rows(ls_weights_keys, 4, out);
        fprintf(out, "\nWays in which weights start\n");
        ls_help_rows(ls_init_rules, 4, out);
    }
    print_example(op, out);
}

static void print_all(FILE *out)
{
    ls_help_text(
        "A model file is YAML: a head and a list of layers. `lockstep models show resnet18 --yaml` prints one, "
        "`lockstep train --model FILE.yaml` trains it, `lockstep help ops OP` explains one op.",
        0, out);
    fprintf(out, "\nThe file\n");
    ls_help_rows(ls_head_keys, 2, out);
    fprintf(out, "\nA layer, such as {name: conv1, op: conv, out: 64, kernel: 3}\n");
    for (const struct ls_help_row *row = ls_layer_keys; row->name; row++)
        ls_help_row(row->name, row->text, 2, 13, out);
    for (const struct ls_help_row *row = ls_weights_keys; row->name; row++)
        ls_help_row(row->name, row->text, 2, 13, out);
    fprintf(out, "\nWays in which weights start\n");
    ls_help_rows(ls_init_rules, 2, out);
    fprintf(out, "\nOps and their attributes (defaults in brackets)\n");
    for (const struct ls_op *const *op = ls_ops; *op; op++)
        if ((*op)->layer)
            print_op(*op, out);
    ls_help_rows(ls_op_shorts, 2, out);
}

enum ls_status ls_help_ops(const char *what, FILE *out)
{
    const char *known[MAX_OPS];
    char all[512] = "";
    size_t used = 0;
    int n = 0;
    if (!what) {
        print_all(out);
        return LS_OK;
    }
    for (const struct ls_op *const *op = ls_ops; *op && n < MAX_OPS; op++) {
        if (!(*op)->layer)
            continue;
        if (strcmp((*op)->name, what) == 0) {
            print_one(*op, out);
            return LS_OK;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, " %s", (*op)->name);
        known[n++] = (*op)->name;
    }
    for (const struct ls_help_row *row = ls_op_shorts; row->name; row++)
        if (strcmp(row->name, what) == 0) {
            ls_help_row(row->name, row->text, 2, 10, out);
            putc('\n', out);
            print_one(&ls_op_act, out);
            return LS_OK;
        }
    const char *near = ls_nearest_word(what, known, n);
    return ls_fail(LS_USAGE, "unknown op '%s'%s%s%s there are%s", what, near ? "; did you mean " : "", near ? near : "",
                   near ? "?" : ";", all);
}
