#include "export/onnx.h"
#include "base/log.h"
#include "checkpoint/weights.h"
#include "graph/ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Fields of NodeProto and AttributeProto, and values of AttributeProto.type. */
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5, GRAPH_NODE = 1 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_F = 2, ATTRIBUTE_I = 3, ATTRIBUTE_INTS = 8, ATTRIBUTE_TYPE = 20 };
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_INTS = 7 };

static void fail(struct onnx *x, enum ls_status status)
{
    if (x->status == LS_OK)
        x->status = status;
}

/* --- names and constants ------------------------------------------------------------------------------ */

const char *onnx_format(struct onnx *x, const char *format, ...)
{
    char text[2 * LS_MAX_DIMS * 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *copy = ls_arena_strdup(&x->strings, text);
    if (!copy)
        fail(x, LS_FAILED);
    return copy ? copy : "";
}

/* A hidden layer of a model file may have the name of the output. No layer has a colon in its name. */
const char *onnx_name(struct onnx *x, int tensor)
{
    const char *name = x->g->tensors[tensor].name;
    if (tensor == x->g->logits)
        return "logits";
    bool taken = strcmp(name, "logits") == 0 || strcmp(name, "probabilities") == 0;
    return taken ? onnx_format(x, "%s:layer", name) : name;
}

static struct onnx_tensor *new_tensor(struct onnx *x, const char *name, int rank, const int64_t *dim)
{
    if (x->status != LS_OK)
        return NULL;
    if (x->n_tensors == x->room) {
        int room = x->room ? 2 * x->room : 64;
        struct onnx_tensor *larger = ls_realloc(x->tensors, (size_t)x->n_tensors, (size_t)room, sizeof *larger);
        if (!larger) {
            fail(x, LS_FAILED);
            return NULL;
        }
        x->tensors = larger;
        x->room = room;
    }
    struct onnx_tensor *t = &x->tensors[x->n_tensors++];
    *t = (struct onnx_tensor){.name = name, .rank = rank};
    memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
    return t;
}

float *onnx_constant(struct onnx *x, const char *name, int rank, const int64_t *dim)
{
    size_t count = 1;
    struct onnx_tensor *t = new_tensor(x, name, rank, dim);
    for (int i = 0; i < rank; i++)
        count *= (size_t)dim[i];
    if (t && !(t->values = ls_alloc(count, sizeof(float))))
        fail(x, LS_FAILED);
    return t ? t->values : NULL;
}

const char *onnx_weight(struct onnx *x, int tensor)
{
    const struct ls_tensor *from = &x->g->tensors[tensor];
    struct onnx_tensor *t = new_tensor(x, from->name, from->shape.rank, from->shape.dim);
    if (t)
        t->stored = ls_safetensors_find(x->request->weights, from->name);
    return from->name;
}

float *onnx_values(struct onnx *x, int tensor)
{
    const struct ls_st_tensor *stored = ls_safetensors_find(x->request->weights, x->g->tensors[tensor].name);
    float *values = x->status == LS_OK ? ls_alloc((size_t)stored->count, sizeof *values) : NULL;
    enum ls_status st = values ? ls_weights_values(stored, x->request->weights_name, values) : LS_FAILED;
    if (st == LS_OK)
        return values;
    fail(x, st);
    ls_free(values);
    return NULL;
}

/* --- nodes -------------------------------------------------------------------------------------------- */

size_t onnx_begin(struct onnx *x, const char *op, const char *name, const char *const *in, int n_in, const char *out)
{
    size_t mark = ls_pb_open(&x->nodes, GRAPH_NODE);
    for (int i = 0; i < n_in; i++)
        ls_pb_text(&x->nodes, NODE_INPUT, in[i]);
    ls_pb_text(&x->nodes, NODE_OUTPUT, out);
    ls_pb_text(&x->nodes, NODE_NAME, name);
    ls_pb_text(&x->nodes, NODE_OP, op);
    x->n_nodes++;
    return mark;
}

void onnx_ints(struct onnx *x, const char *name, const int64_t *values, int n)
{
    size_t mark = ls_pb_open(&x->nodes, NODE_ATTRIBUTE);
    ls_pb_text(&x->nodes, ATTRIBUTE_NAME, name);
    for (int i = 0; i < n; i++)
        ls_pb_whole(&x->nodes, ATTRIBUTE_INTS, values[i]);
    ls_pb_whole(&x->nodes, ATTRIBUTE_TYPE, TYPE_INTS);
    ls_pb_close(&x->nodes, mark);
}

void onnx_int(struct onnx *x, const char *name, int64_t value)
{
    size_t mark = ls_pb_open(&x->nodes, NODE_ATTRIBUTE);
    ls_pb_text(&x->nodes, ATTRIBUTE_NAME, name);
    ls_pb_whole(&x->nodes, ATTRIBUTE_I, value);
    ls_pb_whole(&x->nodes, ATTRIBUTE_TYPE, TYPE_INT);
    ls_pb_close(&x->nodes, mark);
}

void onnx_float(struct onnx *x, const char *name, float value)
{
    size_t mark = ls_pb_open(&x->nodes, NODE_ATTRIBUTE);
    ls_pb_text(&x->nodes, ATTRIBUTE_NAME, name);
    ls_pb_float(&x->nodes, ATTRIBUTE_F, value);
    ls_pb_whole(&x->nodes, ATTRIBUTE_TYPE, TYPE_FLOAT);
    ls_pb_close(&x->nodes, mark);
}

void onnx_end(struct onnx *x, size_t mark)
{
    ls_pb_close(&x->nodes, mark);
}

void onnx_plain(struct onnx *x, const char *op, const char *name, const char *const *in, int n_in, const char *out)
{
    onnx_end(x, onnx_begin(x, op, name, in, n_in, out));
}

/* --- the whole ---------------------------------------------------------------------------------------- */

static void add_softmax(struct onnx *x)
{
    size_t mark = onnx_begin(x, "Softmax", "softmax", (const char *[]){"logits"}, 1, "probabilities");
    onnx_int(x, "axis", 1);
    onnx_end(x, mark);
}

static void release(struct onnx *x)
{
    for (int i = 0; i < x->n_tensors; i++)
        ls_free(x->tensors[i].values);
    ls_free(x->tensors);
    ls_free(x->folded);
    ls_pb_release(&x->nodes);
    ls_arena_release(&x->strings);
}

enum ls_status ls_onnx_write(const struct ls_onnx_request *request, const char *path, struct ls_onnx_result *result)
{
    struct onnx x = {.request = request, .g = request->graph};
    uint64_t bytes = 0;
    int bn = 0;
    onnx_find_folds(&x);
    for (int n = 0; n < x.g->n_nodes && x.status == LS_OK; n++) {
        bn += x.g->nodes[n].op == &ls_op_bn;
        onnx_translate(&x, n);
    }
    if (request->softmax)
        add_softmax(&x);
    if (x.nodes.failed)
        fail(&x, LS_FAILED);
    if (x.status == LS_OK)
        x.status = onnx_write_file(&x, path, &bytes);
    if (x.status == LS_OK)
        *result = (struct ls_onnx_result){bytes, x.n_nodes, bn, x.n_folded};
    release(&x);
    return x.status;
}
