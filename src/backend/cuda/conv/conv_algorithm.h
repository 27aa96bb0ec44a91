/* Convolutions and dense layers in one of their three directions, and the algorithms that compute them: cuDNN engines,
 * cuBLASLt products, native kernels. tune.c chooses among them. */
#ifndef LS_BACKEND_CUDA_CONV_CONV_ALGORITHM_H
#define LS_BACKEND_CUDA_CONV_CONV_ALGORITHM_H

#include "backend/cuda/program.h"

enum pass { FORWARD, BWD_DATA, BWD_WEIGHTS };

/* A dense layer is a convolution of maps of 1x1. */
struct linear {
    enum pass pass;
    struct ls_cuda_conv conv; /* act: FORWARD only */
    int pad_b, pad_r;
    bool bias; /* FORWARD */
    bool tf32, fast;
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
    enum ls_status (*run)(struct device *d, const struct linear *l, const struct conv_algorithm *algorithm,
                          const struct operands *o);
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
