/* Products that compute the sums of a normalisation (kernels/conv/product.cu, product_wgmma.cu). */
#ifndef LS_BACKEND_CUDA_OPS_CONV_BN_H
#define LS_BACKEND_CUDA_OPS_CONV_BN_H

#include "backend/cuda/conv/conv_algorithm.h"

struct conv_bn {
    int node; /* of the bn or bn_bwd; LS_NONE: none */
    enum ls_cuda_product_way way;
};

/* Is this convolution (forward, or its gradient by data) faster together with the first pass of a bn or bn_bwd than with
 * `algorithm`? Then *bn says with which, and its node is prepared for it. */
enum ls_status conv_bn_prepare(struct ls_program *p, int node, const struct linear *l,
                               const struct conv_algorithm *algorithm, struct conv_bn *bn);
void conv_bn_run(const struct ls_program *p, int node, const struct linear *l, const struct conv_bn *bn);

#endif
