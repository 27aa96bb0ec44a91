/* Products that compute the sums of a normalisation (kernels/conv/product.cu). */
#ifndef LS_BACKEND_CUDA_OPS_CONV_BN_H
#define LS_BACKEND_CUDA_OPS_CONV_BN_H

#include "backend/cuda/conv/conv_algorithm.h"

/* Is this convolution (forward, or its gradient by data) faster together with the first pass of a bn or bn_bwd than with
 * `algorithm`? Then *bn is the node of the bn, which is prepared for it; else LS_NONE. */
enum ls_status conv_bn_prepare(struct ls_program *p, int node, const struct linear *l,
                               const struct conv_algorithm *algorithm, int *bn);
void conv_bn_run(const struct ls_program *p, int node, const struct linear *l, int bn);

#endif
