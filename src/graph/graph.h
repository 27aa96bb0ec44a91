/* The training step as data: tensors and nodes in two arrays, identified by integer ids.
 *
 * Named passes make a graph, each in a separate file:
 *   build     a model appends forward nodes                        (src/model, graph/build.h)
 *   loss      softmax_xent or l2_loss on the logits                (graph/build.h)
 *   fuse      rewrites of the forward nodes                        (graph/fuse.c)
 *   backward  autodiff: every op has a gradient rule               (graph/backward.c, graph/ops/)
 *   update    optimizer nodes, one for each parameter              (src/optim)
 *   prepare   a backend picks layouts and kernels, adds reorders   (src/backend)
 *   plan      liveness: an offset in one arena for each activation (graph/plan.c)
 * The graph does not change after that. A step executes the nodes in array order.
 *
 * Invariants (tests cite them by number):
 *  G1  Nodes are in execution order: a node's inputs are produced before it.
 *  G2  A tensor is written by one node, except PARAM, STATE and OPTIMIZER, which update nodes write in place.
 *  G3  Shapes are logical (N, C, H, W), whatever layout a backend stores; dim 0 of every activation is the batch.
 *  G4  An unused slot holds LS_NONE; slot numbers mean the same for every node of an op (graph/ops.h). */
#ifndef LS_GRAPH_GRAPH_H
#define LS_GRAPH_GRAPH_H

#include "base/memory.h"
#include "base/mix.h"
#include "base/status.h"
#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

/* Functions that kernels of a GPU call as well. */
#ifdef __CUDACC__
#define LS_GRAPH_FUNCTION static __host__ __device__ __forceinline__
#else
#define LS_GRAPH_FUNCTION static inline
#endif

#define LS_NONE (-1)
#define LS_MAX_DIMS 4
#define LS_MAX_IN 12
#define LS_MAX_OUT 6
#define LS_MAX_STATES 4 /* state tensors that an optimizer keeps for a parameter */

enum ls_dtype { LS_F32, LS_BF16, LS_F16, LS_I32, LS_U8 };

enum ls_role {
    LS_ROLE_INPUT,     /* images and labels, written by the caller */
    LS_ROLE_PARAM,     /* trained */
    LS_ROLE_GRAD,      /* gradient of a parameter, or BN's batch statistics: summed over replicas */
    LS_ROLE_STATE,     /* BN running statistics: part of the model, kept from step to step */
    LS_ROLE_OPTIMIZER, /* state of the optimizer, such as a momentum: kept from step to step, not part of the model */
    LS_ROLE_ACT        /* lives within one pass */
};
/* Whether a tensor of this role is kept from step to step. */
static inline bool ls_role_kept(enum ls_role role)
{
    return role == LS_ROLE_PARAM || role == LS_ROLE_STATE || role == LS_ROLE_OPTIMIZER;
}

/* Activation functions. Those that clip (ls_act_clips) are fused into conv, dense, bn, add and maxpool as attr.act; those
 * that keep 0 (ls_act_keeps_zero) into a bn with neither residual nor pooling. */
enum ls_act {
    LS_ACT_NONE,
    LS_ACT_RELU,
    LS_ACT_RELU6,
    LS_ACT_SILU,        /* x * sigmoid(x) */
    LS_ACT_HARDSWISH,   /* x * hardsigmoid(x) */
    LS_ACT_SIGMOID,     /* 1 / (1 + exp(-x)) */
    LS_ACT_HARDSIGMOID, /* x / 6 + 1/2, clipped to 0 .. 1 */
    LS_ACT_GELU,        /* x * (1 + erf(x / sqrt(2))) / 2 */
    LS_ACTS
};
/* Whether the function only clips its input. Then its gradient needs only the output, and max commutes with it. */
static inline bool ls_act_clips(enum ls_act act)
{
    return act <= LS_ACT_RELU6;
}
/* Whether the function maps 0 to 0. Then channels that are padding stay 0. */
static inline bool ls_act_keeps_zero(enum ls_act act)
{
    return act != LS_ACT_SIGMOID && act != LS_ACT_HARDSIGMOID;
}

enum ls_init_kind {
    LS_INIT_CONST,
    LS_INIT_UNIFORM,
    LS_INIT_NORMAL,
    LS_INIT_IDENTITY, /* filters (O, I, H, W): filter i < I passes channel i on, the others are uniform */
    LS_INIT_WHITEN,   /* filters over images: the principal components of their patches (train/whiten.h); not trained */
    LS_INITS
};

/* Initialisation of a parameter or state. `value` is the constant, the bound (+-), the standard deviation, or what is added
 * to the variances of patches. */
struct ls_init {
    enum ls_init_kind kind;
    float value;
};

struct ls_shape {
    int rank;
    int64_t dim[LS_MAX_DIMS];
};

struct ls_tensor {
    const char *name; /* owned by graph->strings; for PARAM and STATE torchvision's name, for
                         OPTIMIZER PARAMETER.STATE */
    enum ls_role role;
    enum ls_dtype dtype;
    struct ls_shape shape;
    struct ls_init init; /* PARAM, STATE, OPTIMIZER */
    int grad;            /* PARAM: its GRAD tensor after the backward pass was made, else LS_NONE */
    bool no_decay;       /* PARAM: BN scale or shift, or a bias */
    bool frozen;         /* PARAM: it has no update (graph/freeze.c) */
    double lr_factor;    /* PARAM: its learning rate is that of the run times this; 0: 1 */
    double decay_factor; /* PARAM: its weight decay is that of the run times this, where has_decay_factor */
    double momentum;     /* PARAM: in place of the run's, where has_momentum */
    bool has_decay_factor, has_momentum;
    /* PARAM, OPTIMIZER: the caller gives it memory (ls_backend.point), which may hold only the windows of its update. */
    bool apart;
};

/* The part of its tensors that an update changes. Floats are counted as a backend stores them. */
struct ls_window {
    bool on;             /* false: all of them */
    size_t first, count; /* of the parameter and its gradient; count 0: it only clips (backend/core/clip.h) */
    size_t at;           /* of each state tensor: the values of this window begin here */
    float *apart;        /* those of the parameter begin there, too, in this memory; NULL: the parameter is whole */
};
static inline bool ls_window_is_empty(const struct ls_window *w)
{
    return w->on && w->count == 0;
}

/* The hyperparameters of all optimizers. Each optimizer reads some of them. */
struct ls_hyper {
    double lr_factor; /* of the tensor's learning rate; 0: 1, so that a zeroed struct is the plain rate */
#define X(field) double field;
#include "config/lists/hyperparameters.def"
};

/* The learning rate of one tensor. */
static inline float ls_hyper_lr(const struct ls_hyper *h, float lr)
{
    return h->lr_factor > 0 ? (float)(h->lr_factor * (double)lr) : lr;
}

/* Several views of each image, whose logits are averaged (--tta). */
struct ls_views {
    bool mirror;   /* each view also mirrored left to right */
    int32_t shift; /* besides the image, it moved by so many pixels up and left, and down and right; 0: not moved */
};
/* The number of views. View v is mirrored where there are mirrored ones and v is odd; the others are moved in order. */
LS_GRAPH_FUNCTION int ls_views_count(const struct ls_views *v)
{
    return (v->mirror ? 2 : 1) * (v->shift > 0 ? 3 : 1);
}
/* How far view number v is moved, its first row and column, and what its logits count in the average. */
LS_GRAPH_FUNCTION int32_t ls_views_offset(const struct ls_views *v, int view)
{
    int move = v->mirror ? view / 2 : view;
    return move == 0 ? 0 : move == 1 ? -v->shift : v->shift;
}
LS_GRAPH_FUNCTION float ls_views_weight(const struct ls_views *v, int view)
{
    float share = v->shift == 0 ? 1.0f : ls_views_offset(v, view) == 0 ? 0.5f : 0.25f;
    return v->mirror ? share / 2 : share;
}

/* One struct for the attributes of all ops. The attribute list of an op (graph/ops/NAME.c) names the fields it
 * reads. */
struct ls_attr {
    int64_t out;                                    /* conv, dense: output channels */
    int64_t kernel_h, kernel_w, stride_h, stride_w; /* conv, pools */
    int64_t pad_t, pad_l, pad_b, pad_r;             /* conv, pools */
    int64_t dilation_h, dilation_w, groups;         /* conv; 1 = dense */
    int64_t out_h, out_w;                           /* adaptive_avgpool */
    int64_t offset;                                 /* slice: first channel */
    bool bias;                                      /* conv, dense */
    bool scale;                                     /* bn: its scale is trained; false: it stays 1 */
    float factor;                                   /* scale */
    struct ls_views views;                          /* views, views_mean */
    bool include_pad;                               /* avgpool: padding counts in the mean */
    bool ceil;                                      /* maxpool: the output size is rounded up */
    bool training;                                  /* bn, dropout, maxpool, losses */
    enum ls_act act;                                /* the fused activation, or the function of op `act` */
    bool pool;                                      /* bn: a max pooling (kernel, stride, pad) follows act */
    float eps, momentum;                            /* bn: momentum is the weight of the new value */
    float p;                                        /* dropout, drop_path */
    int64_t size;                                   /* lrn: channels in the window */
    float alpha, beta, k;                           /* lrn, as in PyTorch */
    float smoothing;                                /* softmax_xent */
    struct ls_mix_rule mix;                         /* mix, softmax_xent: mixup and cutmix of the batch */
    struct ls_hyper hyper;                          /* ops of optimizers */
    bool nesterov;                                  /* sgd */
    int64_t whole_rows, first_row; /* dense: the weights are rows of so many, from first_row on (split.h); 0: all */
    uint32_t layer;                /* dropout, drop_path: number of the layer, which selects the random stream */
};

enum ls_phase { LS_FORWARD, LS_BACKWARD, LS_UPDATE };

struct ls_node {
    const struct ls_op *op;
    const char *name; /* the layer's name; owned by graph->strings */
    enum ls_phase phase;
    struct ls_attr attr;
    int in[LS_MAX_IN];       /* tensor ids or LS_NONE */
    int out[LS_MAX_OUT];     /* tensor ids or LS_NONE */
    struct ls_window window; /* update; the caller sets it before each run */
};

struct ls_graph {
    struct ls_tensor *tensors; /* owned */
    int n_tensors, tensor_room;
    struct ls_node *nodes; /* owned */
    int n_nodes, node_room;
    struct ls_arena strings;
    enum ls_dtype act_dtype; /* of activations: LS_F32, LS_BF16 or LS_F16 */
    bool training;
    int input, label;     /* tensor ids: images (N, C, H, W) f32 and labels (N) i32, -1 = no sample */
    int logits;           /* the model's output (N, classes) */
    int loss, label_rank; /* per sample: loss (N) f32; number of classes that score above the label (N) i32 */
};

/* --- construction ------------------------------------------------------------------------------------------ */

void ls_graph_init(struct ls_graph *g);
void ls_graph_release(struct ls_graph *g);

/* Appends a tensor. Returns LS_NONE when memory is exhausted. The name is copied. */
int ls_graph_tensor(struct ls_graph *g, const char *name, enum ls_role role, enum ls_dtype dtype,
                    struct ls_shape shape);
/* Appends a node with its inputs. The name and in[0 .. n_in-1] are copied, and the other slots become LS_NONE.
 * op->infer then checks shapes and appends the output tensors. Errors name the layer. */
enum ls_status ls_graph_node(struct ls_graph *g, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                             const int *in, int n_in, int *node);

/* --- queries ----------------------------------------------------------------------------------------------- */

int64_t ls_shape_count(const struct ls_shape *s);
bool ls_shape_equal(const struct ls_shape *a, const struct ls_shape *b);
struct ls_shape ls_shape_make(int rank, int64_t a, int64_t b, int64_t c, int64_t d);
/* Writes the shape as "64x3x7x7" into text. */
const char *ls_shape_text(const struct ls_shape *s, char text[64]);
size_t ls_dtype_size(enum ls_dtype t);
const char *ls_dtype_name(enum ls_dtype t);
const char *ls_act_name(enum ls_act act);         /* "none" "relu" "relu6" ... */
const char *ls_init_name(enum ls_init_kind kind); /* "constant" "uniform" "normal" ... */
/* Sets how a parameter starts. LS_INIT_WHITEN also freezes it. */
void ls_graph_set_init(struct ls_graph *g, int tensor, struct ls_init init);
/* The function of that name, or LS_ACTS. */
enum ls_act ls_act_find(const char *name);
/* The tensor of that name, or LS_NONE. */
int ls_graph_find(const struct ls_graph *g, const char *name);
/* The first node that writes the tensor, or LS_NONE; the number of nodes that read it. */
int ls_graph_producer(const struct ls_graph *g, int tensor);
int ls_graph_readers(const struct ls_graph *g, int tensor);
/* The number of trained parameters, and of their tensors; the multiply-accumulates of one sample's forward pass. */
int64_t ls_graph_parameters(const struct ls_graph *g, int *n_tensors);
int64_t ls_graph_macs(const struct ls_graph *g);

/* --- passes ------------------------------------------------------------------------------------------------ */

/* dense_1x1: the backend is fastest on 1x1 convolutions without a stride. */
enum ls_status ls_graph_fuse(struct ls_graph *g, bool dense_1x1);
/* Freezes the parameters whose names match the POSIX extended regular expression: they get no update, and no gradient
 * unless one is computed with that of another parameter. Call before ls_graph_fuse, on a graph for training. A BN that no
 * trained parameter stands below computes with its running statistics and leaves them as they are. LS_USAGE if the
 * expression is wrong, or matches none or all of the parameters. */
enum ls_status ls_graph_freeze(struct ls_graph *g, const char *pattern);
/* Compiles an expression that must match some parameter. `option` is for messages. On success the caller calls regfree. */
enum ls_status ls_graph_regex(const struct ls_graph *g, const char *option, const char *pattern, regex_t *regex);
/* Sets trained[t] for each tensor that depends on a trained parameter through nodes 0 .. n_nodes-1. */
void ls_graph_find_trained(const struct ls_graph *g, int n_nodes, bool *trained);
enum ls_status ls_graph_backward(struct ls_graph *g);
/* Before fuse: the last BN of every residual block, which ends with an add, gets the initial scale 0. Returns their number. */
int ls_graph_zero_residuals(struct ls_graph *g);

#endif
