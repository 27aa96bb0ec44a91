/* What the device computes besides cuDNN convolutions and cuBLASLt products: one .cu file a family in kernels/. Every function
 * only enqueues on a stream. None allocates, waits or touches host memory, so that all can be captured into a CUDA graph.
 * Results do not depend on the order in which blocks run: there are no floating-point atomics.
 *
 *   KERNEL-1  A map is stored NHWC, a matrix row by row. Channels (columns, entries) are padded with zeros to a multiple of
 *             LS_CUDA_LANE. Kernels read the padding and leave zeros there.
 *   KERNEL-2  Activations are of type `t` (f32, bf16 or f16) and are computed with in f32; parameters, gradients of parameters,
 *             statistics and optimizer state are f32.
 *   KERNEL-3  Values that change from pass to pass are read from a struct ls_cuda_run in device memory.
 *   KERNEL-4  All pointers are to device memory, at multiples of 256 bytes. They may be NULL where a comment says optional. */
#ifndef LS_BACKEND_CUDA_KERNELS_H
#define LS_BACKEND_CUDA_KERNELS_H

#include "base/crop.h"
#include "graph/graph.h"

#define LS_CUDA_LANE 8

#ifdef __cplusplus
extern "C" {
#endif

/* One pass's struct ls_run, as the device sees it, with where its input lies. */
struct ls_cuda_run {
    uint64_t seed, step;
    uint32_t replica;
    float grad_scale, stat_weight, lr;
    int64_t valid;
    const void *images;          /* of the pass: planes; with crops the bytes that they crop from */
    const struct ls_crop *crops; /* one a sample */
    const int32_t *labels;
};

/* For f16: gradients of activations are multiplied by `scale`; an update divides by it, and leaves everything as it is
 * when a gradient is not finite. Lives in device memory. */
struct ls_cuda_scale {
    float scale;
    int32_t overflow; /* 1: this step has an infinite or undefined gradient */
    int32_t good;     /* steps since the last overflow or growth */
    int32_t skipped;  /* steps skipped in all */
};

typedef struct CUstream_st *ls_cuda_stream;

/* run.cu: *to = *run, which is the host's; ordinary numbers to measure kernels with. */
void ls_cuda_set_run(ls_cuda_stream s, struct ls_cuda_run *to, const struct ls_cuda_run *run);
void ls_cuda_fill(ls_cuda_stream s, enum ls_dtype t, void *to, int64_t count);
/* Adds a number to *sum that depends on every bit of `data` and on its place. bytes: a multiple of 4. */
void ls_cuda_digest(ls_cuda_stream s, const void *data, int64_t bytes, uint64_t *sum);

/* A map: n samples of h x w pixels of c channels as stored, i.e. padded. */
struct ls_cuda_map {
    int64_t n, h, w, c;
};

/* --- bn*.cu -------------------------------------------------------------------------------------------------- */

/* Batch normalisation as graph/ops.h defines bn and bn_bwd. */
struct ls_cuda_bn {
    enum ls_dtype t;
    struct ls_cuda_map x, y; /* y: after the pooling, else as x */
    enum ls_act act;
    bool pool;
    int kernel_h, kernel_w, stride_h, stride_w, pad_t, pad_l; /* pool */
    float eps;
    float *scratch; /* ls_cuda_bn_scratch bytes; the first LS_CUDA_BN_ZEROS bytes are zero before and after each use */
};
#define LS_CUDA_BN_ZEROS 4096
size_t ls_cuda_bn_scratch(const struct ls_cuda_bn *b);

/* Statistics of the first run->valid samples: mean, rstd (c), stat (2, c). In padding rstd is 1 / sqrt(eps), harmless as
 * gamma and beta are 0 there. */
void ls_cuda_bn_stats(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *x,
                      float *mean, float *rstd, float *stat);
/* What forward keeps for backward to read instead of larger maps, in bytes; 0: nothing.
 *   a residual and an activation   a byte for each octet of y: bit i says that the gradient of channel i passes
 *   pool                           y's shape: the value of x that won its window */
size_t ls_cuda_bn_kept(const struct ls_cuda_bn *b, bool residual);
/* y = pool(act(gamma * (x - mean) * rstd + beta + residual)); residual optional; index (u8, y's shape) with pool: of the
 * first maximum, where a larger x counts as larger also when it makes no difference to y, unless the activation is why.
 * kept: ls_cuda_bn_kept bytes, optional. */
void ls_cuda_bn_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const void *x, const void *residual,
                      const float *gamma, const float *beta, const float *mean, const float *rstd, void *y,
                      uint8_t *index, void *kept);
/* Both, as one launch where the map is small. */
void ls_cuda_bn_forward(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *x,
                        const void *residual, const float *gamma, const float *beta, float *mean, float *rstd,
                        float *stat, void *y, uint8_t *index, void *kept);
/* As apply, with running statistics; no index. With pool too. */
void ls_cuda_bn_inference(ls_cuda_stream s, const struct ls_cuda_bn *b, const void *x, const void *residual,
                          const float *gamma, const float *beta, const float *running_mean, const float *running_var,
                          void *y);
/* A sparse dy2 stands for a map that is 0 but at every sparse-th pixel of every sparse-th row, and has those pixels alone:
 * (n, ceil(h / sparse), ceil(w / sparse), c). It is read by ls_cuda_bn_bwd, ls_cuda_bn_bwd_sums and ls_cuda_product_sums,
 * where ls_cuda_bn_takes_sparse, with dresidual and with an activation kept. */
struct ls_cuda_bn_grad {
    const void *dy, *dy2; /* y's shape; dy2 optional */
    int sparse;           /* of dy2; 0 or 1: it is not */
    const void *x, *y;    /* y optional: the mask comes from it when given, else it is computed again from x */
    const uint8_t *index; /* with pool */
    void *kept;           /* by apply; optional; with pool it is overwritten */
    const float *gamma, *beta, *mean, *rstd;
    void *dx, *dresidual; /* dx may lie on dy; dresidual optional */
    float *dgamma, *dbeta;
};
bool ls_cuda_bn_takes_sparse(const struct ls_cuda_bn *b);
void ls_cuda_bn_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                    const struct ls_cuda_bn_grad *g);

/* bn_twin.cu: two normalisations of maps of one shape whose sum is activated, y = act(bn a + bn b), which is what a bn
 * with a residual is when the residual is the output of another bn without activation. That output is never stored, and
 * so not rounded to t before the sum, unlike where the two are computed one after the other. */
bool ls_cuda_bn_twins(const struct ls_cuda_bn *b); /* can do, and is worth it */
struct ls_cuda_bn_twin {
    const void *x;
    const float *gamma, *beta, *mean, *rstd;
};
/* b: of the sum. kept: ls_cuda_bn_kept bytes with a residual, where there is an activation. */
void ls_cuda_bn_twin_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_bn_twin twin[2], void *y,
                           void *kept);
/* first: as for ls_cuda_bn_bwd, with dresidual and with an activation kept; y is not read. second: x, gamma, beta, mean,
 * rstd, dx, dgamma, dbeta; its dy is dresidual, on which its dx may lie. */
void ls_cuda_bn_twin_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                         const struct ls_cuda_bn_grad *first, const struct ls_cuda_bn_grad *second);

/* Kernels for the products below: product_wgmma.cu, which needs Hopper, and product.cu. The faster one comes first. */
enum ls_cuda_product_way { LS_CUDA_PRODUCT_WGMMA, LS_CUDA_PRODUCT_PLAIN, LS_CUDA_PRODUCT_WAYS };

/* product.cu: a 1x1 convolution (or its gradient) together with the first pass of the bn that reads its result:
 * y (rows, n) = x (rows, k) * w. */
struct ls_cuda_product {
    int64_t rows, k, n;
    bool turned; /* w is (k, n); else (n, k) */
    enum ls_cuda_product_way way;
};
/* b: that bn, without a pooling backward. */
bool ls_cuda_product_can(const struct ls_cuda_product *p, const struct ls_cuda_bn *b, bool residual);
/* y, and what ls_cuda_bn_stats makes of it. */
void ls_cuda_product_stats(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                           const struct ls_cuda_run *run, const void *x, const void *w, void *y, float *mean,
                           float *rstd, float *stat);
/* The product takes the place of g->dy, and is not stored: dz = (product + g->dy2) where the activation passed, into
 * g->dresidual, with dgamma and dbeta. g->y and g->dx are not used. In bf16 by Hopper's way, where an activation is kept, g->x
 * may be NULL: then dgamma is not computed. */
void ls_cuda_product_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                          const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g);
/* taps_wgmma.cu: a 3x3 convolution with stride 1 and one pixel of padding, or its gradient by data, together with the first
 * pass of the bn that reads its result. In 16-bit types, on Hopper. */
struct ls_cuda_taps {
    struct ls_cuda_map x; /* what it reads: the input, or the gradient of the output */
    int64_t out;          /* channels of the result */
    bool turned;          /* w is (x.c, 9, out), and the last tap counts as the first; else (out, 9, x.c) */
};
/* b: that bn, without a pooling backward. */
bool ls_cuda_taps_can(const struct ls_cuda_taps *c, const struct ls_cuda_bn *b, bool residual);
/* y, and what ls_cuda_bn_stats makes of it; bias optional. */
void ls_cuda_taps_stats(ls_cuda_stream s, const struct ls_cuda_taps *c, const struct ls_cuda_bn *b,
                        const struct ls_cuda_run *run, const void *x, const void *w, const float *bias, void *y,
                        float *mean, float *rstd, float *stat);
/* As ls_cuda_product_sums, with g->x, without dy2 and without an activation kept. */
void ls_cuda_taps_sums(ls_cuda_stream s, const struct ls_cuda_taps *c, const struct ls_cuda_bn *b,
                       const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g);
/* product_mapped.cu: the second pass of a bn or bn_bwd, the product that reads its result, and that product's sums as above.
 * from: of the second pass; b: of the sums, a bn, or a bn_bwd that reads the product alone and has no dresidual. */
bool ls_cuda_mapped_can(const struct ls_cuda_product *p, const struct ls_cuda_bn *from, const struct ls_cuda_bn *b);
struct ls_cuda_mapped {
    struct ls_cuda_bn_twin twin[2]; /* the second where there is no residual */
    const void *residual;
    void *y, *kept; /* kept: with an activation */
};
void ls_cuda_mapped_stats(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *from,
                          const struct ls_cuda_mapped *f, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                          const void *w, void *out, float *mean, float *rstd, float *stat);
/* f: as for ls_cuda_bn_bwd_rest. */
void ls_cuda_mapped_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn_grad *f,
                         const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *w,
                         const struct ls_cuda_bn_grad *g);
/* fold.cu: a 1x1 convolution, x = a * w', and the bn behind it, of whose statistics and gradients most follow from a.
 * In bf16, on Hopper. */
struct ls_cuda_fold {
    int64_t rows, area, k, n; /* area: rows of a sample; x has k channels and a has n */
    const void *dz, *a;       /* (rows, k), 0 for rows without a sample; (rows, n) */
    const float *w;           /* (k, n) */
    const void *half;         /* w as the products read it */
    const float *gamma, *mean, *rstd, *dbeta;
    float *dgamma, *dw, *dbeta_too; /* dbeta_too: gets dbeta; optional */
    float *gram;                    /* ls_cuda_fold_gram bytes */
    float *scratch;                 /* ls_cuda_fold_scratch bytes */
};
/* b: of x, or of a. */
bool ls_cuda_fold_can(const struct ls_cuda_fold *f, const struct ls_cuda_bn *b);
size_t ls_cuda_fold_scratch(const struct ls_cuda_fold *f);
size_t ls_cuda_fold_gram(const struct ls_cuda_fold *f);
/* The sums of a and of its products, into f->gram, which the others read. Reads a alone. */
void ls_cuda_fold_sums(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run);
/* What ls_cuda_bn_stats makes of x, but for the rounding of x. Reads half. */
void ls_cuda_fold_stats(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run, float eps,
                        float *mean, float *rstd, float *stat);
/* y = act(bn x + more) as the second pass of bn b makes it, with its mask; x is not stored, and that of m->twin[0] not
 * read. Reads a and half. */
struct ls_cuda_mapped;
void ls_cuda_fold_apply(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                        const struct ls_cuda_run *run, const struct ls_cuda_mapped *m);
/* dgamma, dw, and the weights of the product below, which stay in the scratch. */
void ls_cuda_fold(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run);
/* da, the gradient by a. With g it is not stored, but takes the place of the product in ls_cuda_product_sums, of a bn `b` that
 * has neither dy2 nor an activation kept. */
void ls_cuda_fold_product(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                          const struct ls_cuda_run *run, const struct ls_cuda_bn_grad *g, void *da);
/* The two passes of ls_cuda_bn_bwd by themselves: dz and the sums; dx from g->dy, which is dz, and the sums. With an
 * activation kept and dresidual, g->x may be NULL in the first one: then dgamma is not computed. With a pooling, where forward
 * keeps something, the first one leaves dz of the pooled map in g->kept. */
void ls_cuda_bn_bwd_sums(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                         const struct ls_cuda_bn_grad *g);
void ls_cuda_bn_bwd_rest(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                         const struct ls_cuda_bn_grad *g);

/* --- tree.cu ------------------------------------------------------------------------------------------------- */

enum { LS_CUDA_LEAVES = 8 };

/* Sums of a large dense layer's chunks of rows along their tree (SPLIT-1 in graph/split.h), the lowest of which are there as
 * leaves: leaf to[i] += leaf from[i], in this order. Part p is then leaf part[p]. */
struct ls_cuda_tree {
    int leaves, sums, parts;
    int to[LS_CUDA_LEAVES], from[LS_CUDA_LEAVES], part[LS_CUDA_LEAVES];
};
/* leaves: one after the other, `count` floats each, a multiple of LS_CUDA_LANE. The parts are written one after the other, in
 * type t. */
void ls_cuda_sum_tree(ls_cuda_stream s, const struct ls_cuda_tree *tree, enum ls_dtype t, const float *leaves,
                      int64_t count, void *parts);

/* --- maxpool.cu, avgpool.cu ---------------------------------------------------------------------------------- */

struct ls_cuda_pool {
    enum ls_dtype t;
    struct ls_cuda_map x, y;
    int kernel_h, kernel_w, stride_h, stride_w, pad_t, pad_l, pad_b, pad_r;
    bool include_pad;
    enum ls_act act; /* maxpool */
};
/* index (u8) optional. */
void ls_cuda_maxpool(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *x, void *y, uint8_t *index);
/* y: with act. Each pixel of dx is a sum over the windows that it is in. */
void ls_cuda_maxpool_bwd(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *dy, const uint8_t *index,
                         const void *y, void *dx);
void ls_cuda_avgpool(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *x, void *y);
void ls_cuda_avgpool_bwd(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *dy, void *dx);
/* Rows floor(o*H/OH) to ceil((o+1)*H/OH); also global pooling (y 1x1), which must be fast. */
void ls_cuda_adaptive(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *x, void *y);
void ls_cuda_adaptive_bwd(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *dy, void *dx);

/* --- pointwise.cu -------------------------------------------------------------------------------------------- */

/* count: stored elements, a multiple of LS_CUDA_LANE. */
void ls_cuda_act(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *x, void *y, int64_t count);
void ls_cuda_act_bwd(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *dy, const void *y, void *dx,
                     int64_t count);
void ls_cuda_add(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *a, const void *b, void *y,
                 int64_t count);
/* y = factor * x. */
void ls_cuda_multiply(ls_cuda_stream s, enum ls_dtype t, float factor, const void *x, void *y, int64_t count);
/* y = act(x + bias), bias (c) optional; y may be x. */
void ls_cuda_bias(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *x, const float *bias, void *y,
                  int64_t rows, int64_t c);
/* db[c] = sum over rows of dy, in a fixed order. scratch: ls_cuda_bias_scratch bytes, its first LS_CUDA_BN_ZEROS bytes as
 * for bn. */
size_t ls_cuda_bias_scratch(int64_t rows, int64_t c);
void ls_cuda_bias_bwd(ls_cuda_stream s, enum ls_dtype t, const void *dy, float *db, int64_t rows, int64_t c,
                      float *scratch);
/* The same, where the bits of a column do not depend on how many columns there are. */
void ls_cuda_bias_bwd_columns(ls_cuda_stream s, enum ls_dtype t, const void *dy, float *db, int64_t rows, int64_t c,
                              float *scratch);
/* Dropout of elements by their logical (N,C,H,W) number; `channels` without padding; a matrix has h = w = 1. bwd is the
 * same function applied to dy. */
void ls_cuda_dropout(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, uint32_t layer, float p,
                     const struct ls_cuda_map *x, int64_t channels, const void *from, void *to);
/* The factor 0 or 1/(1-p) for each sample; bwd is the same function applied to dy. */
void ls_cuda_drop_path(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, uint32_t layer, float p,
                       const struct ls_cuda_map *x, const void *from, void *to);
/* The activations that do not clip. c: stored channels of a row, of which the first `channels` are real. The gradient
 * reads x. */
void ls_cuda_smooth(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *x, void *y, int64_t count,
                    int64_t c, int64_t channels);
void ls_cuda_smooth_bwd(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *dy, const void *x, void *dx,
                        int64_t count);
/* y = a * s, s with one pixel a sample; da = dy * s, ds = the sum of dy * a over pixels, in a fixed order. */
void ls_cuda_mul(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_map *map, const void *a, const void *factors,
                 void *y);
void ls_cuda_mul_bwd(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_map *map, const void *dy, const void *a,
                     const void *factors, void *da, void *ds);
/* Mixup and cutmix as base/mix.h says; y is other memory than x. */
void ls_cuda_mix(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, const struct ls_mix_rule *rule,
                 const struct ls_cuda_map *map, const void *x, void *y);
/* Channels [from_first, from_first + channels) of rows of from_c into [to_first, ...) of rows of to_c; logical channels,
 * padded strides. `clear`: the padding of `to` beyond to_first + channels becomes zero. */
void ls_cuda_copy_channels(ls_cuda_stream s, enum ls_dtype t, const void *from, int64_t from_c, int64_t from_first,
                           void *to, int64_t to_c, int64_t to_first, int64_t channels, int64_t rows, bool clear);
/* (N,C,H,W) stored NHWC padded into rows of C*H*W in NCHW order padded to to_c columns, and back. */
void ls_cuda_flatten(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_map *x, int64_t channels, const void *from,
                     void *to, int64_t to_c);
void ls_cuda_unflatten(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_map *x, int64_t channels,
                       const void *from, int64_t from_c, void *to);
/* Across channels, as in PyTorch; `channels` without padding. */
void ls_cuda_lrn(ls_cuda_stream s, enum ls_dtype t, int64_t rows, int64_t c, int64_t channels, int64_t size,
                 float alpha, float beta, float k, const void *x, void *y);
void ls_cuda_lrn_bwd(ls_cuda_stream s, enum ls_dtype t, int64_t rows, int64_t c, int64_t channels, int64_t size,
                     float alpha, float beta, float k, const void *dy, const void *x, void *dx);
/* Values of one type into another (f32, bf16, f16). */
void ls_cuda_convert(ls_cuda_stream s, enum ls_dtype from_t, const void *from, enum ls_dtype to_t, void *to,
                     int64_t count);
/* to += from; to = from; over f32. */
void ls_cuda_sum(ls_cuda_stream s, const float *from, float *to, int64_t count);

/* --- parts.cu ------------------------------------------------------------------------------------------------ */

#define LS_CUDA_PARTS 16
/* n parts of a sum, each all of a gradients' memory, some of it another card's or process's (KERNEL-4 holds there, too). */
struct ls_cuda_parts {
    float *part[LS_CUDA_PARTS];
    int n;
    int8_t to[LS_CUDA_PARTS - 1], from[LS_CUDA_PARTS - 1]; /* n - 1 additions in order: part[to] += part[from] */
};
/* Of `count` values from `first` on, multiples of 4: the sum, as part 0 ends, into every part. */
void ls_cuda_sum_parts(ls_cuda_stream s, const struct ls_cuda_parts *p, int64_t first, int64_t count);

/* --- views.cu ------------------------------------------------------------------------------------------------ */

/* The views of the images of a map, one view of all images after the other; the mean of their logits, `count` as stored. */
void ls_cuda_views(ls_cuda_stream s, enum ls_dtype t, const struct ls_views *v, const struct ls_cuda_map *map,
                   const void *x, void *y);
void ls_cuda_views_mean(ls_cuda_stream s, enum ls_dtype t, const struct ls_views *v, int64_t count, const void *x,
                        void *y);

/* --- loss.cu ------------------------------------------------------------------------------------------------- */

/* logits: rows of c stored, `classes` of them real. labels: int32 through run->labels. prob optional. */
void ls_cuda_softmax_xent(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, int64_t n, int64_t c,
                          int64_t classes, float smoothing, const struct ls_mix_rule *mix, const void *logits,
                          float *loss, int32_t *rank, float *prob);
/* dlogits = (prob - q) * grad_scale * (scale ? scale->scale : 1), 0 where there is no sample. */
void ls_cuda_softmax_xent_bwd(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run,
                              const struct ls_cuda_scale *scale, int64_t n, int64_t c, int64_t classes, float smoothing,
                              const struct ls_mix_rule *mix, const float *prob, void *dlogits);
void ls_cuda_l2_loss(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, int64_t n, int64_t c,
                     int64_t classes, const void *x, float *loss, int32_t *rank);
void ls_cuda_l2_loss_bwd(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run,
                         const struct ls_cuda_scale *scale, int64_t n, int64_t c, int64_t classes, const void *x,
                         void *dx);

/* --- update.cu ----------------------------------------------------------------------------------------------- */

/* One tensor's update; the list lies in device memory. */
struct ls_cuda_update {
    float *param, *state[LS_MAX_STATES]; /* state: of the optimizer, optional */
    const void *grad;                    /* of type grad_t */
    void *half;                          /* the parameter as bf16 or f16 (half_t); optional */
    int64_t count;                       /* a multiple of LS_CUDA_LANE */
    int64_t rows, filters;               /* of the first dimension: as stored, with padding, and without */
    struct ls_hyper hyper;
    int32_t rule;  /* a launch function passes over tensors of other rules */
    int32_t norms; /* lars: the rate depends on norms */
    int32_t nesterov;
    int32_t grad_t, half_t; /* enum ls_dtype */
    int32_t first_block;    /* set by ls_cuda_update_number */
};
/* Deals the list's elements out to blocks: sets every first_block and returns the number of blocks, or -1 when they are
 * too many for one launch. To be called once, before the list is copied to the device; a part of the list can then be
 * run alone. Entries of count 0 are passed over. */
int ls_cuda_update_number(struct ls_cuda_update *host, int n);
/* *to = *update, with `to` on the device. */
void ls_cuda_set_update(ls_cuda_stream s, struct ls_cuda_update *to, const struct ls_cuda_update *update);
/* An optimizer's step on all tensors of a list whose rule it is, in as few launches as can be. With scale->overflow set
 * nothing changes. `updates` on the device, `host` the same list for sizing the grid. scratch: ls_cuda_update_scratch bytes,
 * only lars, lamb and muon need any. scale optional. */
typedef void ls_cuda_update_launch(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                                   const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n,
                                   int rule, float *scratch);
size_t ls_cuda_update_scratch(const struct ls_cuda_update *host, int n);
ls_cuda_update_launch ls_cuda_sgd; /* and lars */
ls_cuda_update_launch ls_cuda_adamw;
ls_cuda_update_launch ls_cuda_lamb;
ls_cuda_update_launch ls_cuda_ema;
ls_cuda_update_launch ls_cuda_muon;
/* Bytes of scratch that ls_cuda_muon needs, for the whole list. */
size_t ls_cuda_muon_scratch(const struct ls_cuda_update *host, int n, int rule);
/* Clips the gradients of a list's tensors with hyper.clip_norm > 0 by the norm of all of them (backend/core/clip.h). scratch:
 * ls_cuda_clip_scratch bytes, 0 where no tensor is clipped. */
size_t ls_cuda_clip_scratch(const struct ls_cuda_update *host, int n);
void ls_cuda_clip(ls_cuda_stream s, const struct ls_cuda_scale *scale, double limit,
                  const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n, float *scratch);
/* *sum += a number made of the bits and places of all parameters, or of the optimizer's state; the same in whatever order
 * they come. */
void ls_cuda_checksum(ls_cuda_stream s, const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n,
                      int optimizer, uint64_t *sum);
/* running = (1 - momentum) * running + momentum * stat, for a list in device memory; c of 0: an entry that is none. */
struct ls_cuda_running {
    const float *stat; /* (2, c) */
    float *mean, *var; /* (c) */
    int32_t c;
    float momentum;
};
void ls_cuda_bn_running(ls_cuda_stream s, const struct ls_cuda_running *list, int n);
/* scale->overflow |= any value that is not finite, over the updates' gradients; begin sets it to 0; end halves the scale
 * after an overflow or doubles it after `growth` good steps, between 1 and 2^24; growth 0: it stays. */
void ls_cuda_scale_begin(ls_cuda_stream s, struct ls_cuda_scale *scale);
void ls_cuda_scale_check(ls_cuda_stream s, struct ls_cuda_scale *scale, const struct ls_cuda_update *updates,
                         const struct ls_cuda_update *host, int n);
void ls_cuda_scale_end(ls_cuda_stream s, struct ls_cuda_scale *scale, int growth);

/* --- image.cu ------------------------------------------------------------------------------------------------ */

/* f32 planes (N,C,H,W) at run->images into an NHWC map of type t, channels padded. */
void ls_cuda_image_planes(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, const struct ls_cuda_map *y,
                          int64_t channels, void *to);
/* The same from bytes: sample i is run->crops[i] of the images at run->images, as base/crop.h defines it; pixels in device
 * memory. channels: 1 or 3, pixels->channels. */
void ls_cuda_image_crops(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run,
                         const struct ls_pixels *pixels, const struct ls_cuda_map *y, int64_t channels, void *to);

/* --- shrink.cu ----------------------------------------------------------------------------------------------- */

/* The part of an image that base/decoder.h describes, out of the whole with `pitch` bytes a row. */
struct ls_decoder_job;
void ls_cuda_shrink(ls_cuda_stream s, const struct ls_decoder_job *job, const void *from, int64_t pitch, void *to);

/* --- stem.cu ------------------------------------------------------------------------------------------------- */

/* Pixel (row, column) of y has as channels r * row + k * channels + c: channel c of the image (of height x width) at
 * row row * stride_h - border + r, for r < block, column column * stride_w - pad + k; zero beyond the image. The images are
 * run's planes, or with pixels its crops, as for ls_cuda_image_planes and _crops. */
struct ls_cuda_unfold {
    int channels, height, width, columns, block, row, stride_h, stride_w, border, pad;
    int from_channels; /* with pixels: theirs */
};
void ls_cuda_unfold(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, const struct ls_pixels *pixels,
                    const struct ls_cuda_unfold *u, const struct ls_cuda_map *y, void *to);
/* The gradient (out, kernel, c) of weights over such a map: zero for rows outside of the window of `rows` that begins
 * `shift` rows in, and beyond the `values` of one of the block's rows of `row` channels. */
void ls_cuda_cut_window(ls_cuda_stream s, float *w, int64_t out, int kernel, int64_t c, int values, int row, int block,
                        int shift, int rows);

/* stem_wgmma.cu, stem_gather.cu: a first convolution straight from the images, as they would be unfolded by ls_cuda_unfold.
 * For images of three channels and windows of 7x7 with stride 2 and padding 3 above, or of 3x3 with stride 1 or 2, on
 * Hopper. */
struct ls_cuda_stem {
    enum ls_dtype t;
    struct ls_cuda_unfold u;
    struct ls_cuda_map y; /* the result */
    int64_t c;            /* channels of the unfolded map */
    int kernel, shift;    /* the window over the unfolded map is kernel x 1; shift and rows: as ls_cuda_cut_window */
    int rows;
    enum ls_act act; /* forward; one that clips */
};
/* b: of which ls_cuda_stem is to compute the statistics; optional. */
bool ls_cuda_stem_can(const struct ls_cuda_stem *c, const struct ls_cuda_bn *b, bool residual);
/* y = act(convolution + bias), with bias optional, and with b what ls_cuda_bn_stats makes of y. pixels as ls_cuda_unfold. */
void ls_cuda_stem(ls_cuda_stream s, const struct ls_cuda_stem *c, const struct ls_cuda_run *run,
                  const struct ls_pixels *pixels, const void *w, const float *bias, void *y, const struct ls_cuda_bn *b,
                  float *mean, float *rstd, float *stat);
size_t ls_cuda_stem_scratch(const struct ls_cuda_stem *c); /* bytes; of the gradient */
/* The gradient of the weights, zero outside of the window. */
void ls_cuda_stem_bwd_weights(ls_cuda_stream s, const struct ls_cuda_stem *c, const struct ls_cuda_run *run,
                              const struct ls_pixels *pixels, const void *dy, float *dw, float *scratch);
/* stem_mapped.cu: the same, with the second pass of the bn_bwd with a pooling that would write dy. g: as for ls_cuda_bn_bwd, after
 * ls_cuda_bn_bwd_sums; dx is not written. */
bool ls_cuda_stem_mapped_can(const struct ls_cuda_stem *c, const struct ls_cuda_bn *b);
size_t ls_cuda_stem_mapped_scratch(const struct ls_cuda_stem *c); /* bytes */
void ls_cuda_stem_mapped_weights(ls_cuda_stream s, const struct ls_cuda_stem *c, const struct ls_cuda_run *run,
                                 const struct ls_pixels *pixels, const struct ls_cuda_bn *b,
                                 const struct ls_cuda_bn_grad *g, float *dw, float *scratch);

/* How weights (out, in, height, width) are stored: strides of the four dimensions; with a block, those of stem.c. */
struct ls_cuda_weights {
    int dim[4], block, shift, row;
    int64_t stride[4], count;
};
/* Weights of type t from one layout into another, whose padding becomes 0. */
void ls_cuda_move_weights(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_weights *from_layout,
                          const void *from, const struct ls_cuda_weights *to_layout, void *to);

/* --- direct.cu ----------------------------------------------------------------------------------------------- */

/* Convolutions that cuDNN has no good kernel for. Depthwise (groups = channels): weights (kh, kw, c) of type t, gradient
 * f32 in the same layout. General: any groups, any sizes, plainly, weights (o, kh, kw, i/groups padded), slow. */
struct ls_cuda_conv {
    enum ls_dtype t;
    struct ls_cuda_map x, y;
    int64_t channels, out, groups; /* without padding */
    int kernel_h, kernel_w, stride_h, stride_w, pad_t, pad_l, dilation_h, dilation_w;
    enum ls_act act; /* after bias; forward only */
};
size_t ls_cuda_depthwise_scratch(const struct ls_cuda_conv *c);
void ls_cuda_depthwise(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w, const float *bias,
                       void *y);
void ls_cuda_depthwise_bwd_data(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *w,
                                void *dx);
void ls_cuda_depthwise_bwd_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *x,
                                   float *dw, float *scratch);
void ls_cuda_direct(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w, const float *bias,
                    void *y);
void ls_cuda_direct_bwd_data(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *w, void *dx);
void ls_cuda_direct_bwd_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *x,
                                float *dw);
/* y = act(x w + bias) for few channels (narrow.cu), where ls_cuda_narrow_can and the convolution is a product; bias may be
 * NULL. */
bool ls_cuda_narrow_can(const struct ls_cuda_conv *c, enum ls_act act);
void ls_cuda_narrow(ls_cuda_stream s, const struct ls_cuda_conv *c, enum ls_act act, const void *x, const void *w,
                    const float *bias, void *y);
/* 3x3 convolutions of few channels (few.cu), forward and gradient of the weights, where ls_cuda_few_can. */
bool ls_cuda_few_can(const struct ls_cuda_conv *c);
size_t ls_cuda_few_scratch(const struct ls_cuda_conv *c); /* bytes; of the gradient */
void ls_cuda_few(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w, void *y);
void ls_cuda_few_bwd_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *x, float *dw,
                             float *scratch);
/* The same with a 2x2 max pooling behind it, where ls_cuda_few_pool_can: y, dy and index are the pooling's; index may be
 * NULL. */
bool ls_cuda_few_pool_can(const struct ls_cuda_conv *c, const struct ls_cuda_pool *p);
void ls_cuda_few_pool(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w, void *y,
                      uint8_t *index);
void ls_cuda_few_pool_bwd_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const uint8_t *index,
                                  const void *x, float *dw, float *scratch);
/* The gradient of the weights of a 3x3 convolution of many channels (taps_weights.cu), where ls_cuda_taps_weights_can and the
 * map is as large as x: padding is 1 on all sides. In 16-bit types, on Hopper. */
bool ls_cuda_taps_weights_can(const struct ls_cuda_conv *c);
size_t ls_cuda_taps_weights_scratch(const struct ls_cuda_conv *c); /* bytes */
void ls_cuda_taps_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *x, float *dw,
                          float *scratch);

#ifdef __cplusplus
}
#endif
#endif
