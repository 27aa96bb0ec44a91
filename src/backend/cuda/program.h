/* A graph prepared for a GPU: for each tensor a layout and a place, for each node a kernel with its state.
 *
 *   C1  Maps are stored NHWC, matrices row by row; channels and columns padded to a multiple of LS_CUDA_LANE with zeros.
 *   C2  Parameters are f32. With 16-bit activations, those that convolutions and dense layers read have a 16-bit copy
 *       behind them, in the same order, which every update and write renews. A convolution's weights lie (out, height,
 *       width, in), a dense layer's over a map likewise.
 *   C3  A gradient and a momentum are stored exactly like their parameter, in f32.
 *   C4  A range of nodes is captured as one CUDA graph the first time it runs, and launched as that from then on. What
 *       differs between passes is read by the kernels from `run` in device memory.
 *   C5  Gradients of weights are read by nobody before the updates. The short ones, which leave much of the card idle, are
 *       computed aside: beside what follows them, up to the next of them. What they read, write and scratch on lives as
 *       long. Long ones gain nothing by it, as their blocks leave no room beside them.
 *   C6  Kernels whose blocks take one tile after the other count the tiles in a word of their scratch, which cuDNN and
 *       cuBLASLt clear before each: for 4 us, as the card waits for the one before, for the clearing, and for the
 *       kernel. So small scratches are not shared, but lie side by side; a graph clears them all at its beginning, and
 *       the clearings that a node begins with are taken out of it. */
#ifndef LS_BACKEND_CUDA_PROGRAM_H
#define LS_BACKEND_CUDA_PROGRAM_H

#include "backend/core/program.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels.h"

/* Element (i, j, k, l) of `dim` lies at the sum of index times stride. With a block, `block` rows of dim 2 lie together
 * as further channels, each `row` channels with all of dim 3:
 *     (k + shift) / block * stride[2] + (k + shift) % block * row + l * dim[1] + j */
struct layout {
    int rank;
    int64_t dim[LS_MAX_DIMS], stride[LS_MAX_DIMS];
    int64_t count;             /* elements as stored, padding included */
    int64_t block, shift, row; /* 0: no blocks */
};

/* How a tensor is stored. */
struct tensor_layout {
    struct layout layout;
    enum ls_dtype t;
    char *half; /* C2; NULL: none */
};

struct kernel {
    const char *op;
    /* Decide layouts of outputs, choose an implementation, ask for scratch. */
    enum ls_status (*prepare)(struct ls_program *p, int node);
    /* Enqueue on p->device->compute. */
    enum ls_status (*run)(struct ls_program *p, int node);
    void (*release)(void *state); /* NULL: ls_free will do */
    bool moves;                   /* values change their order, so that no result lies on its input */
    bool joins;                   /* C5: a gradient of weights, or an update: waits for what runs aside */
};

struct node_exec {
    const struct kernel *kernel;
    void *state;        /* owned; the kernel's */
    size_t small_place; /* of its scratch among the small ones (C6) */
    int twin;           /* ops/bn.c: the node that it computes together with; LS_NONE: none */
    int early;          /* the node before it that makes its outputs, from this one on; LS_NONE: it does itself */
    int early_from;
    int sparse;    /* bn_bwd: its dy2 has every sparse-th pixel of every sparse-th row alone (ops/linear.c); 0: all */
    bool aside;    /* C5: nobody reads its outputs before the updates, and it leaves the card half idle */
    int join;      /* the first node that waits for it; LS_NONE: it does not run aside */
    char note[96]; /* implementation, for people */
};

/* A first convolution reads few channels, which no kernel likes. The images are unfolded for it: a pixel of the unfolded
 * map has as its channels `block` rows of the window with all their columns, and the convolution becomes one of more
 * channels with a window of `kernel` x 1, no stride and no padding. A small window is unfolded whole: a product of
 * matrices is left. */
struct stem {
    int images;      /* tensor: the map of them, where they are not unfolded; LS_NONE: none */
    int unfolded[2]; /* tensors: for the convolution, and made again for its gradient, instead of being kept */
    int conv;        /* node of the convolution as the model has it */
    int64_t block, kernel;
    int64_t
        row; /* channels of a block's row: as many as it has values, or, where that costs no channel, a multiple of 8 */
    int64_t border; /* rows of zeros before the image's first that the first pixel begins with */
    int64_t shift;  /* of them, rows before the window's first */
};

struct fronts {
    cudaGraphNode_t *nodes; /* owned */
    size_t n, room;
};

struct captured {
    int first, last;
    cudaGraphExec_t graph;
};

#define SLOTS 2 /* passes whose input or results are under way */

struct ls_program {
    struct ls_program_core core;
    struct device *device;
    struct tensor_layout *layouts; /* one a tensor; owned */
    struct node_exec *execs;       /* one a node; owned */
    size_t sums_bytes;             /* sums: for the compute stream; as many again for what runs aside */
    struct tuner *tuner;           /* while preparing; owned */

    struct stem stem;

    struct ls_cuda_run *run;     /* device; owned */
    struct ls_cuda_scale *scale; /* device; owned; NULL: no f16 */
    uint64_t scaled_step;        /* the step that it is for */
    char *small;                 /* device; owned; scratches (C6) */
    size_t small_bytes;
    struct fronts *fronts;          /* of the graph that is being captured; NULL: none is */
    char *sums;                     /* device; owned; scratch for sums over rows, which begins with zeros */
    struct ls_cuda_update *updates; /* device and host; owned; one a node, only those of updates are filled */
    struct ls_cuda_update *host_updates;
    struct ls_cuda_running *running; /* device; owned; likewise */
    float *norms;                    /* device; owned; lars's scratch */
    uint64_t *checksum;              /* device; owned */

    /* The pass under way. */
    const void *images, *labels, *crops; /* the host's; NULL: none come, or they are held */
    char *input[SLOTS];                  /* device; images; owned */
    size_t input_room;                   /* of each, in bytes; made when it is known in what form images come */
    char *notes[SLOTS];                  /* device; labels, then crops; owned */
    size_t crop_offset;
    struct ls_pixels *pixels; /* device; owned; NULL: images come as planes of f32 */
    int pixel_channels;       /* stored */
    size_t pixel_bytes;       /* of a batch's stored images, where they are not held */
    const void *held;         /* device; borrowed; the images that are cropped from */
    cudaEvent_t fed[SLOTS], used[SLOTS], asked[SLOTS];
    float *loss[SLOTS]; /* pinned; owned */
    int32_t *rank[SLOTS];
    int slot;
    cudaEvent_t fork, joined; /* C5 */
    cudaEvent_t here, marks[LS_QUEUE_MARKS];

    struct collective *collective; /* owned; NULL: none */

    struct captured *captured; /* owned */
    int n_captured, captured_room;
};

static inline char *data_of(const struct ls_program *p, int tensor)
{
    return tensor == LS_NONE ? NULL : p->core.places[tensor].data;
}
/* What a product reads of a parameter. */
static inline char *weights_of(const struct ls_program *p, int tensor)
{
    return tensor == LS_NONE ? NULL : p->layouts[tensor].half ? p->layouts[tensor].half : p->core.places[tensor].data;
}
static inline float *floats(const struct ls_program *p, int tensor)
{
    return (float *)(void *)data_of(p, tensor);
}
static inline enum ls_dtype type_of(const struct ls_program *p)
{
    return p->core.g->act_dtype;
}
static inline cudaStream_t stream_of(const struct ls_program *p)
{
    return p->device->compute;
}
static inline int64_t padded(int64_t n)
{
    return (n + LS_CUDA_LANE - 1) / LS_CUDA_LANE * LS_CUDA_LANE;
}
/* Elements as stored, padding included. */
static inline int64_t stored_count(const struct ls_program *p, int tensor)
{
    return p->layouts[tensor].layout.count;
}
/* Without padding. */
static inline int64_t channels_of(const struct ls_program *p, int tensor)
{
    return p->core.g->tensors[tensor].shape.dim[1];
}
/* A kernel needs so much of `sums`. */
static inline void want_sums(struct ls_program *p, size_t bytes)
{
    p->sums_bytes = bytes > p->sums_bytes ? bytes : p->sums_bytes;
}
/* A 4-d tensor, or a matrix as a map of 1x1. */
struct ls_cuda_map map_of(const struct ls_program *p, int tensor);

/* ops/stem.c: the node that makes a map of the images, or unfolds them, at the graph's beginning. */
enum ls_status stem_insert(struct ls_program *p);
static inline bool is_unfolded(const struct ls_program *p, int tensor)
{
    return tensor != LS_NONE && (tensor == p->stem.unfolded[0] || tensor == p->stem.unfolded[1]);
}
struct layout stem_weights_layout(const struct ls_program *p, const struct ls_shape *weights);

/* layout.c */
struct layout layout_default(const struct ls_shape *s);
/* Weights (out, in, height, width) as (out, height, width, in), both ends padded; depthwise (height, width, channel). */
struct layout layout_weights(int64_t out, int64_t in, int64_t height, int64_t width);
struct layout layout_depthwise(int64_t channels, int64_t height, int64_t width);
/* Between plain rows and memory as stored, of type t, on the host. */
float layout_value(enum ls_dtype t, const void *stored, int64_t at);
void layout_gather(const struct layout *l, enum ls_dtype t, const void *stored, void *plain);
void layout_scatter(const struct layout *l, enum ls_dtype t, const void *plain, void *stored);

/* Give a tensor a layout if it has none yet; PARAM and STATE get their memory in the store, with room for a 16-bit copy
 * where `half`. */
enum ls_status place_default(struct ls_program *p, int tensor);
enum ls_status place_as(struct ls_program *p, int tensor, const struct layout *layout, bool half);
/* All outputs of a node by C1. */
enum ls_status place_outputs(struct ls_program *p, int node);

/* queue.c */
enum ls_status program_open_queue(struct ls_program *p);
void program_close_queue(struct ls_program *p);
/* What the next range of nodes reads: the run, and with `input` the batch. */
enum ls_status program_feed(struct ls_program *p, const struct ls_run *run, bool input);
void program_fed(struct ls_program *p);
/* Point the images at planes. */
enum ls_status program_input_planes(struct ls_program *p, const void *planes);
/* program.c: forget what was captured, as kernels' arguments change. */
void program_forget(struct ls_program *p);

/* collective/collective.c: until the event has come to pass; with peers only as long as they may still come. */
enum ls_status program_await(const struct ls_program *p, cudaEvent_t event);
/* All nodes, with sums over processes between them. */
enum ls_status program_enqueue_shared(struct ls_program *p);

/* C6: is a scratch of so many bytes a small one? */
static inline bool is_small_scratch(size_t bytes)
{
    return bytes <= (size_t)64 << 10;
}
/* memset_elision.c: what a stream that is being captured stands at, where a node of the program is about to begin. */
enum ls_status fronts_add(struct fronts *f, cudaStream_t stream);
/* Of a graph that begins by clearing those bytes, drop later nodes that clear some of them: each but once, and before
 * anything else of their node (fronts NULL: anywhere). */
enum ls_status drop_clears(cudaGraph_t graph, const char *from, size_t bytes, const struct fronts *fronts);

/* capture.c: nodes as they are; ls_backend's run and profile. */
enum ls_status program_enqueue(struct ls_program *p, int first, int last);
enum ls_status program_run(struct ls_program *p, int first, int last, const struct ls_run *run);
enum ls_status program_profile(struct ls_program *p, int first, int last, const struct ls_run *run, double *seconds);

/* A kernel for each op; the lists of ops/list.def end with a NULL op. */
#define X(name) extern const struct kernel ls_cuda_ops_##name[];
#include "backend/cuda/ops/list.def"

#endif
