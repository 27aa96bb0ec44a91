/* A convolution of few channels together with the 2x2 max pooling behind it (kernels/conv/few_pool.cu). The map between the two
 * has no memory.
 *
 *   CONVPOOL-1  Forward, where only the pooling reads the result: the node of the convolution computes what the pooling gives,
 *               and the node of the pooling does nothing.
 *   CONVPOOL-2  Backward, where only the gradient of the weights reads that of the result: the node of the pooling computes the
 *               gradient of the weights, and the node of the latter does nothing. */
#ifndef LS_BACKEND_CUDA_OPS_CONV_POOL_H
#define LS_BACKEND_CUDA_OPS_CONV_POOL_H

#include "backend/cuda/conv/conv_algorithm.h"

/* The node of the pooling that the convolution `node` is computed with; LS_NONE: none. */
int conv_pool_prepare(struct ls_program *p, int node, const struct linear *l);
void conv_pool_run(const struct ls_program *p, int node, const struct linear *l, int pool, const void *weights);
/* Whether the gradient of the weights, `node`, is computed by the node of the pooling, which gets a copy of l to free. */
enum ls_status conv_pool_weights_prepare(struct ls_program *p, int node, const struct linear *l, bool *together);
/* Of the node of the pooling. */
void conv_pool_weights_run(const struct ls_program *p, int pool);

/* ops/pool.c */
struct ls_cuda_pool pool_of(const struct ls_program *p, int node, int x, int y);

#endif
