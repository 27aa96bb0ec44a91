/* Writes a trained model as an ONNX file, for ONNX Runtime and other programs. */
#ifndef LS_EXPORT_EXPORT_H
#define LS_EXPORT_EXPORT_H

#include "checkpoint/safetensors.h"
#include "graph/graph.h"

/* Of the ONNX operators that the file uses, and of the file format. ONNX Runtime reads both since 1.11. */
enum { LS_ONNX_OPSET = 17, LS_ONNX_IR = 8 };

struct ls_onnx_request {
    const struct ls_graph *graph; /* a forward graph for evaluation, without a loss, not fused */
    /* Has every parameter and running statistic of the graph (ls_weights_check). */
    const struct ls_safetensors *weights;
    const char *weights_name;          /* for messages */
    const struct ls_st_pair *metadata; /* becomes metadata_props */
    int n_metadata;
    const char *version; /* of Lockstep */
    bool fold_bn;        /* a BN behind a convolution becomes part of that convolution's weights */
    bool softmax;        /* the output is "probabilities" instead of "logits" */
};

struct ls_onnx_result {
    uint64_t bytes;
    int nodes;
    int bn, folded; /* BN layers of the model, and those that became part of a convolution */
};

/* Writes the file atomically. Its input "images" is float32 (batch, channels, height, width), its output float32 (batch,
 * classes); the batch is free. A file of 2 GiB or more is refused, because protobuf ends there. On failure nothing is
 * written. */
enum ls_status ls_onnx_write(const struct ls_onnx_request *request, const char *path, struct ls_onnx_result *result);

#endif
