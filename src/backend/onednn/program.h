/* A graph prepared for the CPU: a layout and a place for each tensor, a kernel with its state for each node.
 *
 *   DNN-1  4-d activations are stored blocked by table.block channels. Everything else is plain, except weights: the
 *          convolution or dense layer that reads them decides their layout.
 *   DNN-2  Gradients and optimizer state are stored exactly like their parameter.
 *   DNN-3  A reorder is always a node of its own, so that `lockstep plan` shows it.
 *   DNN-4  Stored bytes are multiples of LS_ALIGN; padding channels hold zeros. */
#ifndef LS_BACKEND_ONEDNN_PROGRAM_H
#define LS_BACKEND_ONEDNN_PROGRAM_H

#include "backend/core/program.h"
#include "backend/onednn/dnn.h"
#include "backend/onednn/kernels/kernels.h"

/* How a tensor is stored. */
struct tensor_layout {
    struct dnn_md md;
    bool blocked; /* by channels, as DNN-1 says */
};

struct node_exec;

struct kernel {
    const char *op;
    /* Decide layouts of outputs, choose an implementation, ask for scratch. */
    enum ls_status (*prepare)(struct ls_program *p, int node);
    /* Addresses are known. NULL: nothing to do. */
    void (*bind)(struct ls_program *p, int node);
    enum ls_status (*run)(struct ls_program *p, int node, const struct ls_run *run);
};

struct node_exec {
    const struct kernel *kernel;
    struct dnn_prim prim;  /* or: */
    struct ls_conv own;    /* our own convolution, when its method is set */
    struct ls_dense dense; /* a large dense layer, when it has samples */
    struct ls_pairs pairs; /* a reorder by our own kernel, when it has taps */
    struct ls_axis y, x;   /* pools */
    char note[80];         /* implementation, for people */
};

struct ls_program {
    struct ls_program_core core;
    struct dnn dnn;
    struct ls_kernels k;
    struct tensor_layout *layouts; /* one a tensor; owned */
    int layout_room;
    struct node_exec *execs; /* one a node; owned */
    int exec_room;
    struct tuner *tuner; /* while preparing; owned */
    int clip_node;       /* gradients are clipped before it; LS_NONE: they are not */
};

static inline char *tensor_data(const struct ls_program *p, int tensor)
{
    return tensor == LS_NONE ? NULL : p->core.places[tensor].data;
}
static inline const struct ls_shape *tensor_shape(const struct ls_program *p, int tensor)
{
    return &p->core.g->tensors[tensor].shape;
}
/* Elements as stored, padding channels included. */
int64_t tensor_stored(const struct ls_program *p, int tensor);
/* The blocked geometry of a 4-d tensor; valid from run or, when NULL, the whole batch. */
struct ls_map tensor_map(const struct ls_program *p, int tensor, const struct ls_run *run);

/* Give a tensor the layout that DNN-1 says, if it has none yet. */
enum ls_status place_default(struct ls_program *p, int tensor);
/* Give a tensor this layout; PARAM and STATE get their memory in the store. */
enum ls_status place_as(struct ls_program *p, int tensor, const struct dnn_md *md);

/* Insert a node that copies `tensor` into layout `md` before node *node (which moves up by one); *copy is the new
 * tensor. */
enum ls_status insert_reorder_before(struct ls_program *p, int *node, int tensor, const struct dnn_md *md, int *copy);
/* Let output `slot` of the node be written in layout md, followed by a reorder into the tensor it had there. */
enum ls_status insert_reorder_after(struct ls_program *p, int node, int slot, const struct dnn_md *md);

/* Make execs as long as n nodes need. */
enum ls_status ensure_execs(struct ls_program *p, int n);

/* values.c: for struct ls_backend. */
enum ls_status read_tensor(const struct ls_program *p, int tensor, void *values);
enum ls_status write_tensor(struct ls_program *p, int tensor, const void *values);
bool tensor_matrix(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block);

/* tune.c: the implementation for a spec. fixed: the weights' layout if they have one, else NULL. */
struct choice {
    struct dnn_pd pd; /* of our own methods only the name is set */
    enum ls_conv_method own;
    struct dnn_md wei; /* the layout its weights (or their gradient) have */
    double ms;         /* measured, 0: not */
};
enum ls_status tune_open(struct ls_program *p);
enum ls_status tune_pick(struct ls_program *p, const char *layer, const struct dnn_spec *spec,
                         const struct dnn_md *fixed, struct choice *choice);
/* Keep what was measured and what was chosen; free all. */
enum ls_status tune_close(struct ls_program *p);
void choice_release(struct choice *c);

/* own_conv.c: can our own method compute this convolution here; the method whose layout the weights are stored in, or
 * LS_CONV_LIBRARY; the layout of its weights; the geometry of the pass; its operands, named as oneDNN names them. */
bool own_conv_fits(const struct ls_program *p, const struct dnn_spec *s, enum ls_conv_method method);
enum ls_conv_method own_conv_placing(const struct ls_program *p, const struct dnn_spec *s);
enum ls_status own_conv_layout(const struct ls_program *p, const struct dnn_spec *s, enum ls_conv_method method,
                               struct dnn_md *wei);
void own_conv_shape(const struct ls_program *p, const struct dnn_spec *s, enum ls_conv_method method,
                    struct ls_conv *w);
void own_conv_point(struct ls_conv *w, char *src, char *wei, char *bias, char *dst, char *scratch);

/* own_dense.c: dense layers whose bits are those of SPLIT-1. Does our own kernel compute this layer; the layout of its weights;
 * prepare, bind and run any pass of it. */
bool own_dense_fits(const struct ls_program *p, const struct ls_node *n);
enum ls_status own_dense_layout(const struct ls_program *p, int src, int64_t rows, struct dnn_md *wei);
enum ls_status own_dense_prepare(struct ls_program *p, int node);
void own_dense_bind(struct ls_program *p, int node);
void own_dense_run(const struct ls_program *p, int node);

/* A kernel for each op; the lists of ops/list.def end with a NULL op. */
#define X(name) extern const struct kernel ls_onednn_ops_##name[];
#include "backend/onednn/ops/list.def"
enum ls_status kernel_find(struct ls_program *p, int node, const struct kernel **kernel);

#endif
