/* Products that make a normalisation's sums on their way (kernels/conv/product.cu). */
#ifndef LS_BACKEND_CUDA_OPS_CONV_BN_H
#define LS_BACKEND_CUDA_OPS_CONV_BN_H

#include "backend/cuda/conv/conv_algorithm.h"

/* Is node `node`, a convolution forward or its gradient by data that `algorithm` would compute, better computed together with
 * the first pass of a bn (or bn_bwd)? *bn is that node then, whose step knows, else LS_NONE. */
enum ls_status conv_bn_prepare(struct ls_program *p, int node, const struct linear *l,
                               const struct conv_algorithm *algorithm, int *bn);
void conv_bn_run(const struct ls_program *p, int node, const struct linear *l, int bn);

#endif
