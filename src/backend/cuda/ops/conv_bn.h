/* Convolutions that compute the sums of a normalisation: products (kernels/conv/product.cu, product_wgmma.cu) and 3x3
 * convolutions (kernels/conv/taps_wgmma.cu). */
#ifndef LS_BACKEND_CUDA_OPS_CONV_BN_H
#define LS_BACKEND_CUDA_OPS_CONV_BN_H

#include "backend/cuda/conv/conv_algorithm.h"

/* The kernel: that of 3x3 convolutions, or one for products. */
struct conv_sums {
    bool is_taps;
    union {
        struct ls_cuda_taps taps;
        struct ls_cuda_product product;
    };
};

struct conv_bn {
    int node; /* of the bn or bn_bwd; LS_NONE: none */
    struct conv_sums kernel;
};

/* Is this convolution (forward, or its gradient by data) faster together with the first pass of a bn or bn_bwd than with
 * `algorithm`? Then *bn says with which, and its node is prepared for it. */
enum ls_status conv_bn_prepare(struct ls_program *p, int node, const struct linear *l,
                               const struct conv_algorithm *algorithm, struct conv_bn *bn);
struct ls_cuda_product conv_bn_product(const struct linear *l, enum ls_cuda_product_way way);
/* What the kernel takes of the bn_bwd `bn` that reads its result as `tensor`. */
struct ls_cuda_bn_grad conv_bn_grad(const struct ls_program *p, int bn, int tensor);
void conv_bn_run(const struct ls_program *p, int node, const struct linear *l, const struct conv_bn *bn);

/* conv_mapped.c: may the node of the bn or bn_bwd before it compute it? Then `with` of both nodes says so. */
enum ls_status conv_mapped_prepare(struct ls_program *p, int node, const struct linear *l, const struct conv_bn *bn);
void conv_mapped_run(const struct ls_program *p, int node, const struct linear *l, const struct conv_bn *bn);
/* linear.c: runs the product of a node. */
void linear_run_mapped(const struct ls_program *p, int node);

#endif
