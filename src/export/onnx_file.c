/* The file: a ModelProto. Nodes and descriptions are small and encoded in memory. Constants go from the weights file to the
 * new one; the lengths in front of the messages around them are computed first. */
#include "base/files/file.h"
#include "base/log.h"
#include "checkpoint/weights.h"
#include "export/onnx.h"

#include <string.h>

enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_VERSION = 3, MODEL_GRAPH = 7, MODEL_OPSET = 8, MODEL_METADATA = 14 };
enum { OPSET_VERSION = 2, PAIR_KEY = 1, PAIR_VALUE = 2 };
enum { GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9, FLOAT_TENSOR = 1 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2, SHAPE_DIM = 1 };
enum { DIM_VALUE = 1, DIM_NAME = 2 };

/* protobuf's limit. */
#define MOST_BYTES ((uint64_t)0x7fffffff)

static uint64_t value_bytes(const struct onnx_tensor *t)
{
    uint64_t bytes = sizeof(float);
    for (int i = 0; i < t->rank; i++)
        bytes *= (uint64_t)t->dim[i];
    return bytes;
}

/* Everything of a TensorProto but its values, with their key and length. */
static void put_description(struct ls_pb *pb, const struct onnx_tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        ls_pb_whole(pb, TENSOR_DIMS, t->dim[i]);
    ls_pb_whole(pb, TENSOR_TYPE, FLOAT_TENSOR);
    ls_pb_text(pb, TENSOR_NAME, t->name);
    ls_pb_head(pb, TENSOR_RAW, value_bytes(t));
}

/* An input or output: (batch, ...) with a batch of any size. */
static void put_value(struct ls_pb *pb, int field, const char *name, const struct ls_shape *shape)
{
    size_t value = ls_pb_open(pb, field);
    ls_pb_text(pb, VALUE_NAME, name);
    size_t type = ls_pb_open(pb, VALUE_TYPE), tensor = ls_pb_open(pb, TYPE_TENSOR);
    ls_pb_whole(pb, TENSOR_ELEMENT, FLOAT_TENSOR);
    size_t dims = ls_pb_open(pb, TENSOR_SHAPE);
    for (int i = 0; i < shape->rank; i++) {
        size_t dim = ls_pb_open(pb, SHAPE_DIM);
        if (i == 0)
            ls_pb_text(pb, DIM_NAME, "batch");
        else
            ls_pb_whole(pb, DIM_VALUE, shape->dim[i]);
        ls_pb_close(pb, dim);
    }
    ls_pb_close(pb, dims);
    ls_pb_close(pb, tensor);
    ls_pb_close(pb, type);
    ls_pb_close(pb, value);
}

/* What stands behind the constants in the graph. */
static void put_graph_end(struct onnx *x, struct ls_pb *pb)
{
    const struct ls_graph *g = x->g;
    ls_pb_text(pb, GRAPH_NAME, "lockstep");
    put_value(pb, GRAPH_INPUT, onnx_name(x, g->input), &g->tensors[g->input].shape);
    put_value(pb, GRAPH_OUTPUT, x->request->softmax ? "probabilities" : "logits", &g->tensors[g->logits].shape);
}

static void put_model_begin(const struct onnx *x, struct ls_pb *pb)
{
    ls_pb_whole(pb, MODEL_IR, LS_ONNX_IR);
    ls_pb_text(pb, MODEL_PRODUCER, "lockstep");
    ls_pb_text(pb, MODEL_VERSION, x->request->version);
    size_t opset = ls_pb_open(pb, MODEL_OPSET);
    ls_pb_whole(pb, OPSET_VERSION, LS_ONNX_OPSET);
    ls_pb_close(pb, opset);
    for (int i = 0; i < x->request->n_metadata; i++) {
        size_t pair = ls_pb_open(pb, MODEL_METADATA);
        ls_pb_text(pb, PAIR_KEY, x->request->metadata[i].key);
        ls_pb_text(pb, PAIR_VALUE, x->request->metadata[i].value);
        ls_pb_close(pb, pair);
    }
}

/* The bytes of all constants in the graph, with their keys and lengths. */
static uint64_t constants_bytes(const struct onnx *x, struct ls_pb *pb)
{
    uint64_t total = 0;
    for (int i = 0; i < x->n_tensors; i++) {
        ls_pb_clear(pb);
        put_description(pb, &x->tensors[i]);
        uint64_t size = pb->size + value_bytes(&x->tensors[i]);
        ls_pb_clear(pb);
        ls_pb_head(pb, GRAPH_INITIALIZER, size);
        total += pb->size + size;
    }
    return total;
}

/* Values that are not f32 in the weights file are converted. */
static enum ls_status put_values(struct onnx *x, struct ls_file_writer *file, const struct onnx_tensor *t)
{
    if (t->values)
        return ls_file_writer_put(file, t->values, value_bytes(t));
    float *values = ls_alloc((size_t)t->stored->count, sizeof *values);
    enum ls_status st = values ? ls_weights_values(t->stored, x->request->weights_name, values) : LS_FAILED;
    if (st == LS_OK)
        st = ls_file_writer_put(file, values, value_bytes(t));
    ls_free(values);
    return st;
}

static enum ls_status put_constant(struct onnx *x, struct ls_file_writer *file, const struct onnx_tensor *t)
{
    struct ls_pb description = {0}, head = {0};
    put_description(&description, t);
    ls_pb_head(&head, GRAPH_INITIALIZER, description.size + value_bytes(t));
    enum ls_status st = description.failed || head.failed ? LS_FAILED : LS_OK;
    if (st == LS_OK)
        st = ls_file_writer_put(file, head.bytes, head.size);
    if (st == LS_OK)
        st = ls_file_writer_put(file, description.bytes, description.size);
    if (st == LS_OK)
        st = put_values(x, file, t);
    ls_pb_release(&description);
    ls_pb_release(&head);
    return st;
}

static enum ls_status put_all(struct onnx *x, struct ls_file_writer *file, const struct ls_pb *begin,
                              const struct ls_pb *end)
{
    LS_TRY(ls_file_writer_put(file, begin->bytes, begin->size));
    LS_TRY(ls_file_writer_put(file, x->nodes.bytes, x->nodes.size));
    for (int i = 0; i < x->n_tensors; i++)
        LS_TRY(put_constant(x, file, &x->tensors[i]));
    return ls_file_writer_put(file, end->bytes, end->size);
}

static enum ls_status write_parts(struct onnx *x, const char *path, const struct ls_pb *begin, const struct ls_pb *end)
{
    struct ls_file_writer file;
    LS_TRY(ls_file_writer_open(&file, path));
    enum ls_status st = put_all(x, &file, begin, end);
    if (st == LS_OK)
        return ls_file_writer_commit(&file);
    ls_file_writer_cancel(&file);
    return st;
}

enum ls_status onnx_write_file(struct onnx *x, const char *path, uint64_t *bytes)
{
    struct ls_pb begin = {0}, end = {0}, scratch = {0};
    enum ls_status st = LS_OK;
    put_graph_end(x, &end);
    uint64_t graph = x->nodes.size + constants_bytes(x, &scratch) + end.size;
    put_model_begin(x, &begin);
    ls_pb_head(&begin, MODEL_GRAPH, graph);
    *bytes = begin.size + graph;
    if (begin.failed || end.failed || scratch.failed)
        st = LS_FAILED;
    else if (x->status != LS_OK)
        st = x->status;
    else if (*bytes > MOST_BYTES)
        st = ls_fail(LS_FAILED,
                     "%s: the model takes %.1f GB; an ONNX file holds less than 2.1 GB, so nothing is written", path,
                     (double)*bytes / 1e9);
    else
        st = write_parts(x, path, &begin, &end);
    ls_pb_release(&begin);
    ls_pb_release(&end);
    ls_pb_release(&scratch);
    return st;
}
