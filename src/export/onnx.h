/* An ONNX graph in the making. onnx_ops.c translates ops, onnx_fold.c folds BN, onnx_file.c writes the file. Numbers of
 * fields are those of onnx.proto. Errors are sticky: `status` is the first one. */
#ifndef LS_EXPORT_ONNX_H
#define LS_EXPORT_ONNX_H

#include "base/protobuf.h"
#include "export/export.h"

/* A constant of the file. Its values are those of the weights file, or computed. */
struct onnx_tensor {
    const char *name;
    int rank;
    int64_t dim[LS_MAX_DIMS];
    const struct ls_st_tensor *stored; /* values in the weights file; NULL: `values` */
    float *values;                     /* owned; NULL: `stored` */
};

struct onnx {
    const struct ls_onnx_request *request; /* borrowed */
    const struct ls_graph *g;              /* borrowed, that of the request */
    enum ls_status status;
    struct ls_pb nodes; /* NodeProto messages, each with the key that it has in GraphProto */
    int n_nodes;
    struct onnx_tensor *tensors; /* owned */
    int n_tensors, room;
    struct ls_arena strings;
    /* Owned; of each node: the BN that a convolution takes in, the convolution that takes in a BN, or LS_NONE. */
    int *folded;
    int n_folded;
};

/* The name of a tensor of the graph in the file. */
const char *onnx_name(struct onnx *x, int tensor);
/* printf into memory that lasts as long as x. */
const char *onnx_format(struct onnx *x, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a constant of count = the product of dim values. The caller fills the memory that is returned; NULL: see status. */
float *onnx_constant(struct onnx *x, const char *name, int rank, const int64_t *dim);
/* Adds a parameter or running statistic of the graph from the weights file, and returns its name. */
const char *onnx_weight(struct onnx *x, int tensor);
/* Reads its values instead. The caller frees them with ls_free; NULL: see status. */
float *onnx_values(struct onnx *x, int tensor);

/* A node: begin, then attributes, then end. in[] holds n_in names. */
size_t onnx_begin(struct onnx *x, const char *op, const char *name, const char *const *in, int n_in, const char *out);
void onnx_ints(struct onnx *x, const char *name, const int64_t *values, int n);
void onnx_int(struct onnx *x, const char *name, int64_t value);
void onnx_float(struct onnx *x, const char *name, float value);
void onnx_end(struct onnx *x, size_t mark);
/* A node without attributes. */
void onnx_plain(struct onnx *x, const char *op, const char *name, const char *const *in, int n_in, const char *out);

/* onnx_ops.c: appends the nodes of one node of the graph. An op without a translation is an error. */
void onnx_translate(struct onnx *x, int node);

/* onnx_fold.c: fills x->folded. */
void onnx_find_folds(struct onnx *x);
/* Adds the weights and the bias of a convolution with its BN taken in, and returns their names. */
void onnx_fold(struct onnx *x, int conv, int bn, const char **weight, const char **bias);

/* onnx_file.c */
enum ls_status onnx_write_file(struct onnx *x, const char *path, uint64_t *bytes);

#endif
