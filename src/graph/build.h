/* Builds a forward graph layer by layer. Errors are sticky: after the first one every call is a no-op that returns
 * LS_NONE, and ls_build_finish reports the error. Model code therefore needs no error checks. */
#ifndef LS_GRAPH_BUILD_H
#define LS_GRAPH_BUILD_H

#include "graph/graph.h"
#include "graph/ops.h"

/* How weights are initialised. Biases follow PyTorch's rule for the same scheme. */
enum ls_scheme {
    LS_SCHEME_TORCH,           /* layer default: uniform(+-1/sqrt(fan_in)) for weight and bias */
    LS_SCHEME_KAIMING_OUT,     /* normal, sqrt(2/fan_out); bias 0 */
    LS_SCHEME_NORMAL_001,      /* normal(0, 0.01); bias 0 */
    LS_SCHEME_KAIMING_IN,      /* normal, sqrt(2/fan_in); bias 0 */
    LS_SCHEME_KAIMING_UNIFORM, /* uniform(+-sqrt(6/fan_in)); bias 0 */
    LS_SCHEME_XAVIER           /* uniform(+-sqrt(6/(fan_in+fan_out))); bias 0 */
};

struct ls_build {
    struct ls_graph *g; /* borrowed */
    enum ls_status status;
    enum ls_scheme conv_scheme, dense_scheme;
    float dropout;   /* < 0: as the model says; otherwise every dropout uses this p (--dropout) */
    float drop_path; /* < 0: as the model says; otherwise every drop_path uses this p (--drop-path) */
    int images;      /* the tensor that models read: the images, or views of them */
    struct ls_views views;
    float mixup, cutmix; /* parameters of Beta distributions; 0: none */
    uint32_t layers;     /* dropout and drop_path layers so far: each has a separate random stream */
    int64_t classes;     /* required number of logits */
};

struct ls_model_size {
    int64_t batch, channels, height, width, classes;
};

/* Starts a new graph with the inputs "images" and "labels". The function calls ls_graph_init; the caller releases
 * the graph, also after a failure. `training` determines the mode of bn and dropout and whether backward may follow. */
enum ls_status ls_build_begin(struct ls_build *b, struct ls_graph *g, const struct ls_model_size *size, bool training,
                              enum ls_dtype act_dtype);
/* Evaluates several views of each image and averages their logits; for graphs that do not train. Call before the model
 * appends layers. */
enum ls_status ls_build_views(struct ls_build *b, const struct ls_views *views);
/* Makes the logits the graph's output. With a loss op (softmax_xent or l2_loss) the loss is appended. */
enum ls_status ls_build_finish(struct ls_build *b, int logits, const struct ls_op *loss, float smoothing);

/* Appends a layer of any op over n_in activations and returns the layer's output. Parameters are made as the op
 * needs them, and are named "<name>.weight", ".bias", ".running_mean" ... A dropout or drop_path that drops nothing
 * adds no node and returns its input. Layer names are unique and have at most LS_LAYER_NAME bytes. */
#define LS_LAYER_NAME 200
int ls_build_layer(struct ls_build *b, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                   const int *in, int n_in);
/* A name formatted by printf. It is valid as long as the graph. */
const char *ls_build_name(struct ls_build *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Overrides the initialisation of an existing parameter, given by its full name ("fc6.bias"). */
void ls_build_init(struct ls_build *b, const char *param, enum ls_init_kind kind, float value);
/* The initialisation of a layer's weight (O, I/g, KH, KW) or (O, K) and of its bias under a scheme. */
void ls_scheme_init(enum ls_scheme scheme, const struct ls_shape *weight_shape, struct ls_init *weight,
                    struct ls_init *bias);

/* Attributes with every default of the op filled in. */
struct ls_attr ls_attr_default(const struct ls_op *op);
/* Field number `field` (0 .. key->fields-1) of an attribute. Bools are 0 or 1, activations are their enum value. */
double ls_attr_get(const struct ls_attr *attr, const struct ls_attr_key *key, int field);
void ls_attr_set(struct ls_attr *attr, const struct ls_attr_key *key, int field, double value);

/* Shorthands for common layers. The name is copied, so it may be a temporary string. */
int ls_conv(struct ls_build *b, const char *name, int x, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
            int64_t groups, bool bias);
int ls_dense(struct ls_build *b, const char *name, int x, int64_t out);
int ls_bn(struct ls_build *b, const char *name, int x);
int ls_bn_with(struct ls_build *b, const char *name, int x, float eps, float momentum);
int ls_act(struct ls_build *b, const char *name, int x, enum ls_act kind);
int ls_relu(struct ls_build *b, const char *name, int x);
int ls_relu6(struct ls_build *b, const char *name, int x);
int ls_maxpool(struct ls_build *b, const char *name, int x, int64_t kernel, int64_t stride, int64_t pad);
int ls_avgpool(struct ls_build *b, const char *name, int x, int64_t kernel, int64_t stride, int64_t pad);
int ls_adaptive_avgpool(struct ls_build *b, const char *name, int x, int64_t out_h, int64_t out_w);
int ls_dropout(struct ls_build *b, const char *name, int x, float p);
int ls_drop_path(struct ls_build *b, const char *name, int x, float p);
int ls_add(struct ls_build *b, const char *name, int a, int c);
/* a (N, C, H, W) times s (N, C, 1, 1). */
int ls_mul(struct ls_build *b, const char *name, int a, int s);
int ls_concat(struct ls_build *b, const char *name, int a, int c);
int ls_flatten(struct ls_build *b, const char *name, int x);
int ls_lrn(struct ls_build *b, const char *name, int x, int64_t size, float alpha, float beta, float k);
/* Max pooling with "same" padding. */
int ls_maxpool_same(struct ls_build *b, const char *name, int x, int64_t kernel, int64_t stride);
/* Max pooling without padding whose last windows may reach beyond the input, as ceil_mode in PyTorch. */
int ls_maxpool_ceil(struct ls_build *b, const char *name, int x, int64_t kernel, int64_t stride);
/* "Same" padding as in CNTK and TensorFlow: output = ceil(input / stride), and an odd pixel of padding goes to the
 * end. */
void ls_attr_same_padding(struct ls_attr *attr, int64_t height, int64_t width);

#endif
