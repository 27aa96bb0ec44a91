/* Convolutions and dense layers in one of their three directions, and the algorithms that compute them: cuDNN engines,
 * cuBLASLt products, native kernels. tune.c chooses among them. */
#ifndef LS_BACKEND_CUDA_CONV_CONV_ALGORITHM_H
#define LS_BACKEND_CUDA_CONV_CONV_ALGORITHM_H

#include "backend/cuda/program.h"
#include "graph/split.h"

enum pass { FORWARD, BWD_DATA, BWD_WEIGHTS };

/* A dense layer is a convolution of maps of 1x1. A large one is computed in chunks of rows (graph/split.h), so that processes
 * that divide its rows compute the bits of one:
 *
 *   CHUNK-1  Its algorithm is chosen for the whole layer, without its activation. Whoever has some of the rows computes
 *            them with the same algorithm, which gives the bits of the whole layer: tuning compares them.
 *   CHUNK-2  The gradient by data is a product for each chunk, in f32. They are added along the tree of SPLIT-1.
 *
 * A chunk is here LS_CUDA_TOGETHER chunks of SPLIT-1, which stay on one worker: what is between chunks goes through
 * memory. */
struct linear {
    enum pass pass;
    struct ls_cuda_conv conv; /* act: FORWARD only */
    int pad_b, pad_r;
    bool bias; /* FORWARD */
    bool tf32, fast;
    struct ls_split_range range; /* a large dense layer's chunks that are here; range.chunks 0: it is not in chunks */
    int64_t whole;               /* then: its rows, here and elsewhere */
    bool sums;                   /* BWD_DATA then: x is the sums of the parts that are here (SPLIT-2), in f32 */
};

/* BWD_DATA writes x, BWD_WEIGHTS writes w (f32). bias: f32, and in the type that products read. */
struct operands {
    void *x, *w, *y;
    const void *bias, *half_bias;
    char *workspace;
};

struct conv_algorithm;
struct conv_library {
    /* List candidates with their names, the likely fastest first; at most `room`. */
    int (*list)(struct device *d, const struct linear *l, struct conv_algorithm *algorithms, int room);
    /* Make it ready to run; false: it cannot run here. */
    bool (*build)(struct device *d, const struct linear *l, struct conv_algorithm *algorithm);
    /* Builds those of n candidates that take long, side by side, so that `build` finds them ready. NULL: none takes long. */
    void (*build_ahead)(struct device *d, const struct linear *l, struct conv_algorithm *algorithms, int n);
    enum ls_status (*run)(struct device *d, const struct linear *l, const struct conv_algorithm *algorithm,
                          const struct operands *o);
    /* CHUNK-1: makes *part compute l, some rows of the layer that an algorithm was built for, or all of them with an
     * activation. False: it cannot. NULL: the same algorithm does. */
    bool (*fit)(const struct linear *l, const struct conv_algorithm *algorithm, struct conv_algorithm *part);
    void (*release)(struct conv_algorithm *algorithm); /* NULL: nothing to do */
};

struct conv_algorithm {
    const struct conv_library *library;
    char name[96];
    size_t workspace;
    bool last_resort;
    bool after;   /* a further kernel adds bias and act, or converts a 16-bit gradient */
    void *state;  /* of the library */
    void *shared; /* of the library */
    double ms;
    uint64_t digest; /* of its result for a fixed input */
};

extern const struct conv_library ls_cuda_cudnn, ls_cuda_cublas, ls_cuda_native;

static inline void conv_algorithm_release(struct conv_algorithm *w)
{
    if (w->library && w->library->release)
        w->library->release(w);
    *w = (struct conv_algorithm){0};
}

static inline bool conv_algorithm_fit(const struct linear *l, const struct conv_algorithm *algorithm,
                                      struct conv_algorithm *part)
{
    *part = *algorithm;
    part->state = part->shared = NULL;
    return !algorithm->library->fit || algorithm->library->fit(l, algorithm, part);
}

static inline bool linear_in_chunks(const struct linear *l)
{
    return l->range.chunks > 0;
}
/* CHUNK-1: the whole of a layer that is computed in chunks; the rows of worker `place` of `workers`. */
struct linear linear_whole(const struct linear *l);
struct linear linear_part(const struct linear *whole, int place, int workers);
int64_t linear_first_row(const struct linear *whole, int place, int workers);
/* Chunks of SPLIT-1 become chunks. */
void linear_join_chunks(struct ls_split_range *r);
/* CHUNK-2: how the products of the chunks that are here are added. */
struct ls_cuda_tree linear_tree(const struct linear *l);

/* Is it a product of matrices (rows of pixels by channels)? */
static inline bool linear_is_product(const struct linear *l)
{
    const struct ls_cuda_conv *c = &l->conv;
    return c->kernel_h == 1 && c->kernel_w == 1 && c->stride_h == 1 && c->stride_w == 1 && c->groups == 1 &&
           !c->pad_t && !c->pad_l && !l->pad_b && !l->pad_r;
}
static inline bool linear_is_depthwise(const struct linear *l)
{
    const struct ls_cuda_conv *c = &l->conv;
    return c->groups > 1 && c->groups == c->channels && c->groups == c->out;
}
static inline int64_t map_count(const struct ls_cuda_map *m)
{
    return m->n * m->h * m->w * m->c;
}
/* Stored elements of the weights. */
static inline int64_t weights_count(const struct linear *l)
{
    const struct ls_cuda_conv *c = &l->conv;
    int64_t area = (int64_t)c->kernel_h * c->kernel_w;
    return linear_is_depthwise(l) ? area * c->x.c : c->y.c * area * padded(c->channels / c->groups);
}

#endif
