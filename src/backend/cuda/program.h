/* A graph prepared for a GPU: a layout and a place for each tensor, a kernel with its state for each node. docs/cuda.md
 * explains the design.
 *
 *   CUDA-1  Maps are stored NHWC, matrices row by row. Channels and columns are padded with zeros to a multiple of
 *           LS_CUDA_LANE.
 *   CUDA-2  Parameters are f32. With 16-bit activations, a parameter that a convolution or dense layer reads has a 16-bit
 *           copy behind it, in the same order, or, of one that is apart (graph.h), where `point` says. Every update and every
 *           write renews the copy, but the update of a window that is elsewhere. The weights of a convolution
 *           lie (out, height, width, in); those of a dense layer over a map likewise.
 *   CUDA-3  Gradients and optimizer state are stored exactly like their parameter, in f32.
 *   CUDA-4  The first run of a range of nodes enqueues them, the second captures them as one CUDA graph, and later runs
 *           launch that graph. Kernels read what differs between passes from `run` in device memory.
 *   CUDA-5  Only updates read gradients of weights. A short gradient, which leaves much of the GPU idle, runs aside: on a
 *           second stream, beside the nodes up to the next gradient of weights. Its inputs, outputs and scratch live that
 *           long. A long gradient fills the GPU and gains nothing by running aside.
 *   CUDA-6  Persistent kernels count tiles in a word of their scratch, which cuDNN and cuBLASLt clear before each launch.
 *           Such a memset costs 4 us, as the GPU drains before and after it. So small scratches do not share memory. A graph
 *           clears all of them at its beginning, and the memsets at the beginnings of nodes are removed from the graph. */
#ifndef LS_BACKEND_CUDA_PROGRAM_H
#define LS_BACKEND_CUDA_PROGRAM_H

#include "backend/core/program.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels.h"

/* Element (i, j, k, l) lies at the sum of index times stride. With a block, `block` rows of dim 2 lie together as further
 * channels, each of them `row` channels wide with all of dim 3:
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
    char *half;  /* CUDA-2; NULL: none */
    bool halved; /* it has such a copy, whose memory may come later, from point */
};

struct kernel {
    const char *op;
    /* Decide layouts of outputs, choose an implementation, ask for scratch. */
    enum ls_status (*prepare)(struct ls_program *p, int node);
    /* Enqueue on p->device->compute. */
    enum ls_status (*run)(struct ls_program *p, int node);
    void (*release)(void *state); /* NULL: ls_free will do */
    bool moves;                   /* values change their order: the result cannot lie on the input */
    bool joins;                   /* CUDA-5: gradient of weights or update: waits for the node that runs aside */
};

struct node_exec {
    const struct kernel *kernel;
    void *state;        /* owned; the kernel's */
    size_t small_place; /* offset of its scratch among the small ones (CUDA-6) */
    int twin;           /* ops/bn.c: the node that it is computed together with; LS_NONE: none */
    int with; /* ops/conv_mapped.c, conv_fold.c, conv_stem.c: the product that this bn computes, or the bn that computes it */
    int early; /* an earlier node that writes its outputs from early_from on; LS_NONE: none */
    int early_from;
    bool gathers;  /* bn_bwd: ops/conv_stem.c computes the gradient of the first convolution's weights with it */
    bool folded;   /* bn, bn_bwd: ops/conv_fold.c computes it with the convolution before it, or its gradients */
    int sparse;    /* bn_bwd: dy2 holds only every sparse-th pixel of every sparse-th row (ops/linear.c); 0: all */
    bool aside;    /* CUDA-5: it may run aside */
    int join;      /* the first node that waits for it; LS_NONE: it does not run aside */
    char note[96]; /* implementation, for people */
};

/* The first convolution reads few channels, which makes every kernel slow. So the images are unfolded: the channels of a
 * pixel of the unfolded map are `block` rows of the window with all their columns. The convolution gets more channels, a
 * window of `kernel` x 1, no stride and no padding. A small window is unfolded whole, which leaves a matrix product. */
struct stem {
    int images;      /* tensor: the map of the images where they are not unfolded; LS_NONE: none */
    int unfolded[2]; /* tensors: for the convolution, and again for its gradient (not kept) */
    int conv;        /* the node of the convolution */
    int64_t block, kernel;
    /* Channels of a block's row: as many as it has values, or, where that costs no channel, a multiple of 8. */
    int64_t row;
    int64_t border; /* rows of zeros above the image in the first pixel */
    int64_t shift;  /* rows of the border that lie above the window */
};

struct fronts {
    cudaGraphNode_t *nodes; /* owned */
    size_t n, room;
};

struct captured {
    int first, last;
    cudaGraphExec_t graph;
};

/* Which large dense layers are divided, and how (struct ls_split_way). */
enum { LS_CUDA_TOGETHER = 2, LS_CUDA_SPLIT_WEIGHTS = 8000000 };

#define SLOTS 2 /* passes whose input or results are in flight */

struct ls_program {
    struct ls_program_core core;
    struct device *device;
    struct tensor_layout *layouts; /* one a tensor; owned */
    struct node_exec *execs;       /* one a node; owned */
    size_t sums_bytes;             /* of `sums` for the compute stream; the stream aside has as many again */
    struct tuner *tuner;           /* while preparing; owned */

    struct stem stem;

    struct ls_cuda_run *run;     /* device; owned */
    struct ls_cuda_scale *scale; /* device; of the store, as programs of a run have the same one; NULL: no f16 */
    uint64_t *scaled_step;       /* of the store: the step that the scale is for */
    char *small;                 /* device; owned; scratches (CUDA-6) */
    size_t small_bytes;
    struct fronts *fronts;          /* of the graph that is being captured; NULL: no capture */
    char *sums;                     /* device; owned; scratch for sums over rows; starts as zeros */
    struct ls_cuda_update *updates; /* device and host; owned; one a node, only those of updates are filled */
    struct ls_cuda_update *host_updates;
    struct ls_cuda_update *window;   /* device; owned; update of the window under way; NULL: no state is apart */
    struct ls_cuda_running *running; /* device; owned; likewise */
    float *clip; /* device; owned; scratch of clipping, which begins with what is given; NULL: none */
    struct ls_cuda_update *clipped,
        *host_clipped;    /* device and host; owned; what is clipped, with `clip` (updates.c) */
    int *first_clipped;   /* owned; of each node, and the number of all behind the last */
    float *norms;         /* device; owned; scratch of lars, lamb and muon */
    double *host_squares; /* owned; of each entry of clipped, as updates_inspect found them */
    uint64_t *checksum;   /* device; owned */

    /* The pass in flight. */
    const void *images, *labels, *crops; /* host memory; NULL: none, or the data set is on the device */
    char *input[SLOTS];                  /* device; images; owned */
    size_t input_room;                   /* bytes of each; allocated when the form of the images is known */
    char *notes[SLOTS];                  /* device; labels, then crops; owned */
    size_t crop_offset;
    struct ls_pixels *pixels; /* device; owned; NULL: images come as planes of f32 */
    int pixel_channels;       /* stored */
    size_t pixel_bytes;       /* of a batch of stored images that comes from the host */
    const void *held;         /* device; borrowed; the data set, where it is on the device */
    cudaEvent_t fed[SLOTS], used[SLOTS], asked[SLOTS];
    float *loss[SLOTS]; /* pinned; owned */
    int32_t *rank[SLOTS];
    int slot;
    cudaEvent_t fork, joined; /* CUDA-5 */
    cudaEvent_t here, marks[LS_QUEUE_MARKS];

    struct collective *collective; /* owned; NULL: none */
    struct wires *wires;           /* owned; likewise */

    struct captured *captured; /* owned */
    int n_captured, captured_room;
};

static inline char *data_of(const struct ls_program *p, int tensor)
{
    return tensor == LS_NONE ? NULL : p->core.places[tensor].data;
}
/* The copy of a parameter that a product reads. */
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
/* A kernel needs so many bytes of `sums`. */
static inline void want_sums(struct ls_program *p, size_t bytes)
{
    p->sums_bytes = bytes > p->sums_bytes ? bytes : p->sums_bytes;
}
/* A 4-d tensor, or a matrix as a map of 1x1. */
struct ls_cuda_map map_of(const struct ls_program *p, int tensor);

/* ops/stem.c: insert the node that turns the images into a map, or unfolds them, at the beginning of the graph. */
enum ls_status stem_insert(struct ls_program *p);
static inline bool is_unfolded(const struct ls_program *p, int tensor)
{
    return tensor != LS_NONE && (tensor == p->stem.unfolded[0] || tensor == p->stem.unfolded[1]);
}
/* Of a pass, where images are unfolded. */
struct ls_cuda_unfold stem_unfolding(const struct ls_program *p);
struct layout stem_weights_layout(const struct ls_program *p, const struct ls_shape *weights);

/* layout.c */
struct layout layout_default(const struct ls_shape *s);
/* Weights (out, in, height, width) as (out, height, width, in), both ends padded; depthwise (height, width, channel). */
struct layout layout_weights(int64_t out, int64_t in, int64_t height, int64_t width);
struct layout layout_depthwise(int64_t channels, int64_t height, int64_t width);
/* Convert between plain rows and stored memory of type t, on the host. */
float layout_value(enum ls_dtype t, const void *stored, int64_t at);
void layout_gather(const struct layout *l, enum ls_dtype t, const void *stored, void *plain);
void layout_scatter(const struct layout *l, enum ls_dtype t, const void *plain, void *stored);

/* Give a tensor a layout if it has none yet. PARAM and STATE get their memory in the store, with a 16-bit copy where `half`
 * is set. */
enum ls_status place_default(struct ls_program *p, int tensor);
enum ls_status place_as(struct ls_program *p, int tensor, const struct layout *layout, bool half);
/* Place all outputs of a node (CUDA-1, CUDA-3). */
enum ls_status place_outputs(struct ls_program *p, int node);

/* queue.c */
enum ls_status program_open_queue(struct ls_program *p);
void program_close_queue(struct ls_program *p);
/* input.c. open and close: memory and events. source and crops as struct ls_backend_queue has them. */
enum ls_status program_open_input(struct ls_program *p);
void program_close_input(struct ls_program *p);
enum ls_status program_source(struct ls_program *p, const struct ls_pixels *pixels, const void *held);
enum ls_status program_input_crops(struct ls_program *p, const struct ls_crop *list, const uint8_t *bytes);
/* The next batch comes as planes of f32. */
enum ls_status program_input_planes(struct ls_program *p, const void *planes);
/* Enqueues what the next range of nodes reads: the run, and with `input` the batch. program_fed: the range is enqueued. */
enum ls_status program_feed(struct ls_program *p, const struct ls_run *run, bool input);
void program_fed(struct ls_program *p);
/* loss_scale.c, for fp16. open: when memory is bound. get and set as struct ls_backend_queue has them. */
enum ls_status program_open_scale(struct ls_program *p);
enum ls_status program_get_scale(struct ls_program *p, struct ls_loss_scale *scale);
enum ls_status program_set_scale(struct ls_program *p, const struct ls_loss_scale *scale);
/* Before each range of nodes. The scale changes only between steps, so that all passes of a step have the same one. A step
 * begins with its first range of nodes: with the updates, where this process has no samples. */
void program_settle_scale(struct ls_program *p, const struct ls_run *run);
/* updates.c: waits for the gradients and looks at them; the squares of one (struct ls_backend). */
enum ls_status updates_inspect(struct ls_program *p, const struct ls_run *run, bool *overflow);
int updates_squares(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS]);
/* program.c: drop captured graphs, as arguments of kernels change. */
void program_forget(struct ls_program *p);

/* collective/collective.c: wait for the event. Where the device has a watch, fail when a rank is lost. */
enum ls_status program_await(const struct ls_program *p, cudaEvent_t event);
/* Enqueue all nodes with the sums over processes between them. */
enum ls_status program_enqueue_shared(struct ls_program *p);

/* CUDA-6: is a scratch of so many bytes a small one? */
static inline bool is_small_scratch(size_t bytes)
{
    return bytes <= (size_t)64 << 10;
}
/* memset_elision.c: record the graph nodes after which a node of the program begins on a stream that is being captured. */
enum ls_status fronts_add(struct fronts *f, cudaStream_t stream);
/* The graph begins with a memset of these bytes. Remove later memsets of parts of them, where a part is cleared only once
 * and before everything else of its node (fronts NULL: anywhere). */
enum ls_status drop_clears(cudaGraph_t graph, const char *from, size_t bytes, const struct fronts *fronts);

/* capture.c: enqueue nodes; make a graph of them, or of a whole step (CUDA-4); run and profile of struct ls_backend. */
enum ls_status program_enqueue(struct ls_program *p, int first, int last);
enum ls_status program_capture(struct ls_program *p, int first, int last, cudaGraphExec_t *exec);
enum ls_status program_run(struct ls_program *p, int first, int last, const struct ls_run *run);
enum ls_status program_profile(struct ls_program *p, int first, int last, const struct ls_run *run, double *seconds);

/* A kernel for each op; the lists of ops/list.def end with a NULL op. */
#define X(name) extern const struct kernel ls_cuda_ops_##name[];
#include "backend/cuda/ops/list.def"

#endif
