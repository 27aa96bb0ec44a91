/* Native kernels for operations that oneDNN lacks or computes in too many passes over memory. Every file of this
 * folder is compiled once for each instruction set and activation type. A table has the functions of one such build.
 * ls_kernels_pick fills it with the best build that this processor supports.
 *
 * Activations are blocked: [n][channel block][row][column][B channels], B = table->block (16 with AVX-512, else 8).
 * oneDNN calls this nChw16c and nChw8c. Channels beyond C in the last block hold zeros, and every kernel keeps them
 * zero. Vectors with a value for each channel (scale, mean ...) have room for whole blocks and are zero beyond C.
 *
 *   LOOP-1  Results do not depend on the number of threads: work is divided into parts by shape alone, and partial sums
 *           are added in the order of the parts.
 *   LOOP-2  Samples at or beyond `valid` neither enter a statistic nor receive a gradient. */
#ifndef LS_BACKEND_ONEDNN_KERNELS_H
#define LS_BACKEND_ONEDNN_KERNELS_H

#include "graph/graph.h"
#include "graph/split.h"

/* One dimension of a window. Output o reads the inputs [from[o], to[o]) inside the image; origin[o] is the start
 * before clipping, and share[o] is 1 / window length. Input i belongs to the windows of outputs first[i] .. last[i]. */
struct ls_axis {
    int64_t in, out, kernel;
    int32_t *from, *to, *origin, *first, *last; /* owned */
    float *share;                               /* owned */
};
enum ls_status ls_axis_window(struct ls_axis *a, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                              int64_t pad_end, bool include_pad);
enum ls_status ls_axis_adaptive(struct ls_axis *a, int64_t in, int64_t out);
void ls_axis_release(struct ls_axis *a);

/* Geometry of a blocked map and of the window over it. Axes are NULL where there is no window. */
struct ls_map {
    int64_t n, valid, blocks, h, w;
    const struct ls_axis *y, *x;
};

struct ls_bn {
    struct ls_map map; /* of x; its axes are set when a max pooling follows */
    int64_t channels;
    enum ls_act act;
    float eps;
    const void *x, *residual;
    const float *gamma, *beta;
    float *mean, *rstd; /* training: results; inference: running mean and variance, read only */
    float *stat;        /* training: 2 x channels, multiplied by stat_weight */
    float stat_weight;
    void *y;
    uint8_t *index;
    double *partial; /* scratch of ls_bn_scratch bytes */
};

struct ls_bn_bwd {
    struct ls_map map;
    int64_t channels;
    enum ls_act act;
    const void *dy, *dy2, *x, *y; /* y: output, set only with a residual and an activation */
    const uint8_t *index;
    const float *gamma, *beta, *mean, *rstd;
    void *dx, *dresidual;
    float *dgamma, *dbeta;
    double *partial;
};
/* The number of partial sums per channel block. It does not depend on the number of threads (LOOP-1). */
enum { LS_BN_PARTS = 16 };
static inline size_t ls_bn_scratch(int64_t blocks)
{
    return (size_t)blocks * LS_BN_PARTS * 2 * 16 * sizeof(double);
}

/* A depthwise convolution. Weights are [channel block][tap][B]. A row of the kernel reaches over LS_DEPTHWISE_REACH pixels at
 * most. */
enum { LS_DEPTHWISE_REACH = 256 };
struct ls_depthwise {
    struct ls_map in, out;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_t, pad_l, dilation_h, dilation_w;
    const void *x, *dy;
    float *dw, *db; /* db may be NULL */
};

/* A pass of a convolution by one of our own methods. Weights and their gradient are f32,
 * [out block][in block][tap][B in][B out], with in and out as in the forward pass.
 *   FORWARD  in, weights, bias -> out
 *   DATA     in: gradient of the results, weights -> out: gradient of the inputs; out_blocks counts the inputs' blocks
 *   WEIGHTS  in: the inputs, out: gradient of the results -> weights, bias
 * Padding is that of the forward pass. */
enum ls_conv_pass { LS_CONV_FORWARD, LS_CONV_DATA, LS_CONV_WEIGHTS };
enum ls_conv_method {
    LS_CONV_LIBRARY,  /* oneDNN's, none of ours */
    LS_CONV_WINOGRAD, /* 3x3, stride 1; in bf16 with AVX512-BF16 alone */
    LS_CONV_AMX,      /* bf16, with the matrix unit of recent Xeons: any kernel, equal strides */
    LS_CONV_IMAGES,   /* bf16, AMX: reads plain images of few channels; weights are [out][in][tap]; no DATA pass */
    LS_CONV_GROUPS,   /* groups of 2, 4 or 8 channels, less than a block; weights are [out][in of a group][tap] */
    LS_CONV_METHODS
};
struct ls_conv {
    enum ls_conv_method method;
    enum ls_conv_pass pass;
    int threads;
    int64_t n, in_blocks, in_h, in_w, out_blocks, out_h, out_w, kernel_h, kernel_w, stride, pad_t, pad_l;
    int64_t group, channels; /* GROUPS: channels of a group, and in all; IMAGES: channels of the images */
    int64_t results;         /* IMAGES: channels of the results */
    enum ls_act act;         /* FORWARD */
    const void *in;
    void *out;
    float *weights, *bias; /* bias may be NULL */
    void *scratch;
};
/* The most taps of a kernel that the method for AMX takes. */
enum { LS_AMX_TAPS = 49 };
struct ls_conv_kernel {
    size_t (*scratch)(const struct ls_conv *); /* bytes */
    void (*run)(const struct ls_conv *);       /* NULL where this processor or type has none */
};

/* A pass of a large dense layer (kernels/dense.c, dense_bf16.c). Inputs, results and their gradients have the type of
 * activations.
 *   FORWARD  in: inputs, w, bias -> out: [sample][row]
 *   DATA     in: gradient of the results, w -> out: gradient of the inputs; with `sums` the parts of it that are here,
 *            which are f32: [part][sample][input]
 *   WEIGHTS  in: inputs, dy: gradient of the results -> out: f32, like w, which is not read; out_bias */
enum { LS_DENSE_STRETCH = 512 };
struct ls_dense {
    enum ls_conv_pass pass;
    int threads;
    int64_t n, rows, inputs; /* samples; rows of the weights that are here; values of a sample as stored */
    struct ls_split_range range;
    int64_t block; /* weights are [row / block][input][block]; 0: [row][input]; in bf16 64 or 0 */
    bool sums;
    const float *w, *bias; /* bias NULL: none */
    const void *in, *dy;
    enum ls_act act;
    void *out;
    float *out_bias;
    void *scratch;
};
struct ls_dense_kernel {
    size_t (*scratch)(const struct ls_dense *); /* bytes */
    void (*run)(const struct ls_dense *);       /* NULL where this processor or type has none */
};

/* Weights in blocks, f32, [out block][in block][tap][B in][B out], become pairs in bf16: [B in / 2][B out][2], or of_results:
 * [B out / 2][B in][2]. ins_first: blocks become [in block][out block][tap]. */
struct ls_pairs {
    int64_t outs, ins, taps;
    bool of_results, ins_first;
    const float *from;
    void *to;
};

struct ls_sgd {
    float *w, *m; /* m NULL: no momentum */
    const float *g;
    int64_t count;
    float lr, momentum, decay;
    bool nesterov;
};

struct ls_loss {
    int64_t n, classes;
    const void *scores; /* logits; bwd: probabilities (f32) or outputs */
    const int32_t *label;
    float *loss, smoothing, scale;
    float weight;  /* of the own label, 1 without mixup and cutmix; the rest is for the partner's */
    int64_t valid; /* samples among which partners are */
    int32_t *rank;
    void *out; /* probabilities (f32); bwd: the gradient */
};

enum { LS_LRN_CHANNELS = 4096 };

struct ls_kernels {
    const char *isa;
    int block;
    enum ls_dtype dtype;
    void (*bn_train)(const struct ls_bn *);
    void (*bn_infer)(const struct ls_bn *);
    void (*bn_bwd)(const struct ls_bn_bwd *);
    void (*maxpool)(const struct ls_map *, enum ls_act, const void *x, void *y, uint8_t *index);
    void (*maxpool_bwd)(const struct ls_map *, enum ls_act, const void *dy, const uint8_t *index, const void *y,
                        void *dx);
    void (*avgpool)(const struct ls_map *, const void *x, void *y);
    void (*avgpool_bwd)(const struct ls_map *, const void *dy, void *dx);
    /* Elementwise over `count` stored elements, including padding. */
    void (*act)(enum ls_act, const void *x, void *y, int64_t count);
    void (*act_bwd)(enum ls_act, const void *dy, const void *y, void *dx, int64_t count);
    void (*add)(enum ls_act, const void *a, const void *b, void *y, int64_t count);
    void (*scale)(float factor, const void *x, void *y, int64_t count);
    void (*from_f32)(const float *x, void *y, int64_t count);
    /* The activations that do not clip. smooth_bwd reads x. Padding of y is what the function makes of 0. */
    void (*smooth)(enum ls_act, const void *x, void *y, int64_t count);
    void (*smooth_bwd)(enum ls_act, const void *dy, const void *x, void *dx, int64_t count);
    /* Zeroes the channels of a map behind the last. */
    void (*clear_padding)(const struct ls_map *, int64_t channels, void *y);
    /* y = a * s, s with one pixel a sample; da = dy * s, ds = the sum of dy * a over pixels. */
    void (*mul)(const struct ls_map *, const void *a, const void *s, void *y);
    void (*mul_bwd)(const struct ls_map *, const void *dy, const void *a, const void *s, void *da, void *ds);
    /* Images: x and y are plain. */
    void (*mix)(const struct ls_map *, int64_t channels, const struct ls_mix *, const float *x, void *y);
    /* Views of plain images of shape s, and the mean of `count` plain logits of all views. */
    void (*views)(const struct ls_shape *s, const struct ls_views *, const float *x, void *y);
    void (*views_mean)(int64_t count, const struct ls_views *, const void *x, void *y);
    /* `size` stored elements a sample. */
    void (*drop_path)(int64_t samples, int64_t size, float p, uint64_t seed, uint64_t stream, const void *x, void *y);
    /* `shape` is the logical shape. `blocked`: the tensor has 4 dimensions and is stored blocked; otherwise it is
     * plain rows. */
    void (*dropout)(const struct ls_shape *shape, bool blocked, float p, uint64_t seed, uint64_t stream, const void *x,
                    void *y);
    /* At most LS_LRN_CHANNELS channels. */
    void (*lrn)(const struct ls_map *, int64_t channels, int64_t size, float alpha, float beta, float k, const void *x,
                void *y);
    void (*lrn_bwd)(const struct ls_map *, int64_t channels, int64_t size, float alpha, float beta, float k,
                    const void *dy, const void *x, void *dx);
    /* Copies channels [from, from + channels) of a map to channels [to, ...) of another. Also zeroes the padding
     * after the last channel of the other map. */
    void (*copy_channels)(const struct ls_map *, const void *x, int64_t from, void *y, int64_t y_blocks, int64_t to,
                          int64_t channels);
    /* (N, C, H, W) blocked <-> (N, C*H*W) rows. */
    void (*flatten)(const struct ls_map *, int64_t channels, const void *x, void *y);
    void (*unflatten)(const struct ls_map *, int64_t channels, const void *x, void *y);
    void (*depthwise_bwd_weights)(const struct ls_depthwise *);
    struct ls_conv_kernel conv[LS_CONV_METHODS];
    struct ls_dense_kernel dense, dense_amx; /* by vectors, and in bf16 by AMX */
    void (*pairs)(const struct ls_pairs *);  /* NULL: none in this type and set */
    void (*softmax)(const struct ls_loss *);
    void (*softmax_bwd)(const struct ls_loss *);
    void (*l2)(const struct ls_loss *);
    void (*l2_bwd)(const struct ls_loss *);
    void (*sgd)(const struct ls_sgd *);
    /* The sum of squares, computed in parts (LOOP-1). */
    double (*norm2)(const float *x, int64_t count);
    /* Of rows [first, first + rows) of weights that have `block` rows side by side; first is a multiple of the vectors. */
    double (*norm2_rows)(const float *x, int64_t cols, int64_t block, int64_t first, int64_t rows);
};

/* Can this process use AMX? Asks the system for it first. */
bool ls_amx_usable(void);

/* Fills *k with the best table for this processor and activation type. isa is NULL, or the name of the instruction
 * set to use. Returns false when there is no such table. */
bool ls_kernels_pick(enum ls_dtype dtype, const char *isa, struct ls_kernels *k);

#endif
