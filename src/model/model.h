/* Models: one file a family, each only appending nodes. A built-in can be printed as a YAML layer list, edited, and
 * built from that file again. */
#ifndef LS_MODEL_MODEL_H
#define LS_MODEL_MODEL_H

#include "base/help.h"
#include "graph/build.h"
#include <stdio.h>

/* To add a model: write build() in its family's file, a const struct ls_model after it, and a line in
 * config/lists/models.def. */
struct ls_model {
    const char *name, *summary;
    struct ls_model_size size; /* used where options and data name no size; batch is not used */
    /* Append the layers from the images x to the logits (returned). Errors stick in b. */
    int (*build)(struct ls_build *b, int x, int64_t classes);
};

extern const struct ls_model *const ls_models[]; /* ends with NULL */
/* NULL when there is none of that name. */
const struct ls_model *ls_model_find(const char *name);

/* Everything that decides a forward graph. */
struct ls_model_request {
    const char *model;         /* built-in name, or the path of a model file (.yaml, .yml, or with a /) */
    const char *yaml;          /* the text of that file, NULL: it is read */
    struct ls_model_size size; /* channels, height, width, classes: 0 = the model's own */
    bool training;
    enum ls_dtype dtype; /* of activations */
    const char *loss;    /* "xent", "l2", or NULL: logits only */
    float smoothing;     /* of labels, xent */
    float dropout;       /* < 0: as the model says */
};

/* Build the forward graph, loss included. The graph is new; the caller releases it, also after a failure. An
 * unknown name, and a size too small for a built-in, are LS_USAGE; mistakes in a file LS_BAD_INPUT. */
enum ls_status ls_model_build(const struct ls_model_request *request, struct ls_graph *g);
/* The model's own size (batch is set to 1). yaml: as in a request. */
enum ls_status ls_model_default_size(const char *model, const char *yaml, struct ls_model_size *size);
/* Does the name mean a file? */
bool ls_model_is_file(const char *model);

/* --- model files ---------------------------------------------------------------------------------------------
 *
 *   input: 3x32x32                             what it is made for; --input and the data override it
 *   classes: 10
 *   init: {conv: kaiming_out, dense: torch}    how weights start: torch (default), kaiming_out, xavier,
 *                                              'normal DEVIATION', 'uniform BOUND', 'constant VALUE'
 *   layers:
 *     - {name: conv1, op: conv, out: 64, kernel: 3, pad: 1, bias: false}
 *     - {name: bn1, op: bn}
 *     - {name: relu1, op: relu}
 *     - {name: conv2, op: conv, out: 64, kernel: 3, pad: same, init: 'normal 0.01', bias_init: 'constant 0.1'}
 *     - {name: sum, op: add, from: [conv2, relu1]}
 *     - {name: fc, op: dense, out: classes}
 *
 * A layer reads the one before it, or what `from` names ("images" is the input); the last gives the logits.
 * Attributes are those of the op (graph/ops/). Names become the names of parameters: conv1.weight. */

/* The same for `lockstep help ops`: the head, every layer, layers with weights, ops that are short for another, and the
 * ways in which weights start. */
extern const struct ls_help_row ls_head_keys[], ls_layer_keys[], ls_weights_keys[], ls_op_shorts[], ls_init_rules[];

/* A forward graph as a model file: one layer a line, defaults left out; name goes into a comment. Only for graphs
 * not yet fused; LS_FAILED when out cannot be written. */
enum ls_status ls_model_write_yaml(const struct ls_graph *g, const char *name, FILE *out);
/* Append the layers of the file to the builder's graph. Mistakes name the line, what was found and expected.
 * ls_model_parse_yaml: the same from text; path is for messages. */
enum ls_status ls_model_read_yaml(const char *path, struct ls_build *b, int *logits);
enum ls_status ls_model_parse_yaml(const char *path, const char *text, size_t length, struct ls_build *b, int *logits);
/* The size a model file names in its head; what it leaves out is 0. */
enum ls_status ls_model_parse_size(const char *path, const char *text, struct ls_model_size *size);
/* The text of a model file, which must be UTF-8; freed by ls_free. */
enum ls_status ls_model_read_text(const char *path, char **text);

#endif
