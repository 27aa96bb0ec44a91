/* Models. Each family has one file, whose functions only append nodes. A built-in model can be printed as a YAML
 * layer list, edited, and built from that file again. */
#ifndef LS_MODEL_MODEL_H
#define LS_MODEL_MODEL_H

#include "base/text/help.h"
#include "graph/build.h"
#include <stdio.h>

/* To add a model, write build() and a const struct ls_model in the file of its family, and add a line to
 * config/lists/models.def. */
struct ls_model {
    const char *name, *summary;
    struct ls_model_size size; /* default size, where options and data give none; batch is unused */
    /* Appends the layers after the images x and returns the logits. Errors are recorded in b. */
    int (*build)(struct ls_build *b, int x, int64_t classes);
};

extern const struct ls_model *const ls_models[]; /* ends with NULL */
/* Returns NULL when there is no model of that name. */
const struct ls_model *ls_model_find(const char *name);

/* Everything that determines a forward graph. */
struct ls_model_request {
    const char *model;         /* built-in name, or the path of a model file (.yaml, .yml, or with a /) */
    const char *yaml;          /* text of that file; NULL: the file is read */
    struct ls_model_size size; /* channels, height, width, classes; 0: the model's default */
    bool training;
    enum ls_dtype dtype;   /* type of activations */
    const char *loss;      /* "xent", "l2", or NULL: logits only */
    float smoothing;       /* label smoothing, for xent */
    float dropout;         /* < 0: as the model specifies */
    float drop_path;       /* likewise */
    struct ls_views views; /* evaluation: of each image; zero: the image alone */
    float mixup, cutmix;   /* training: parameters of Beta distributions; 0: none */
};

/* Builds the forward graph with its loss. The graph is new; the caller releases it, also after a failure. Returns
 * LS_USAGE for an unknown name and for a size too small for a built-in model, and LS_BAD_INPUT for an error in a
 * file. */
enum ls_status ls_model_build(const struct ls_model_request *request, struct ls_graph *g);
/* The default size of the model, with batch 1. yaml is as in a request. */
enum ls_status ls_model_default_size(const char *model, const char *yaml, struct ls_model_size *size);
/* True when the name is the path of a file. */
bool ls_model_is_file(const char *model);

/* --- model files ---------------------------------------------------------------------------------------------
 *
 *   input: 3x32x32                             default size; --input and the data override it
 *   classes: 10
 *   init: {conv: kaiming_out, dense: torch}    initialisation: torch (default), kaiming_out, kaiming_in,
 *                                              kaiming_uniform, xavier,
 *                                              'normal DEVIATION', 'uniform BOUND', 'constant VALUE',
 *                                              'identity BOUND', 'whiten EPS'
 *   layers:
 *     - {name: conv1, op: conv, out: 64, kernel: 3, pad: 1, bias: false}
 *     - {name: bn1, op: bn}
 *     - {name: relu1, op: relu}
 *     - {name: conv2, op: conv, out: 64, kernel: 3, pad: same, init: 'normal 0.01', bias_init: 'constant 0.1'}
 *     - {name: sum, op: add, from: [conv2, relu1]}
 *     - {name: fc, op: dense, out: classes}
 *
 * A layer reads the previous layer, or the layers in `from` ("images" is the input). The last layer gives the logits.
 * The op defines the attributes (graph/ops/). The name of a layer is part of its parameter names: conv1.weight. */

/* The rows of `lockstep help ops`: keys of the head, keys of every layer, keys of layers with weights, ops that are
 * short for another op, and initialisation rules. */
extern const struct ls_help_row ls_head_keys[], ls_layer_keys[], ls_weights_keys[], ls_op_shorts[], ls_init_rules[];

/* Writes a forward graph as a model file: one layer per line, without defaults, with name in a comment. The graph
 * must not be fused. Returns LS_FAILED when out cannot be written. */
enum ls_status ls_model_write_yaml(const struct ls_graph *g, const char *name, FILE *out);
/* Appends the layers of the file to the builder's graph. An error gives the line, what was found and what was
 * expected. ls_model_parse_yaml does the same from text; path is for messages. */
enum ls_status ls_model_read_yaml(const char *path, struct ls_build *b, int *logits);
enum ls_status ls_model_parse_yaml(const char *path, const char *text, size_t length, struct ls_build *b, int *logits);
/* Reads the size in the head of a model file. Values that the head leaves out are 0. */
enum ls_status ls_model_parse_size(const char *path, const char *text, struct ls_model_size *size);
/* Reads the text of a model file, which must be UTF-8. The caller frees it with ls_free. */
enum ls_status ls_model_read_text(const char *path, char **text);

#endif
