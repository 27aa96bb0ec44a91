/* A 1x1 convolution and the normalisation behind it without what lies between them (kernels/conv/fold.cu). */
#ifndef LS_BACKEND_CUDA_OPS_CONV_FOLD_H
#define LS_BACKEND_CUDA_OPS_CONV_FOLD_H

#include "backend/cuda/conv/conv_algorithm.h"

/* Decides, when called first, whether the node of a bn_bwd is folded into the gradients of the convolution before it; then
 * `folded` of the node says so. Calls for other nodes do nothing. */
enum ls_status conv_fold_prepare(struct ls_program *p, int node);
/* What follows the sums of a folded bn_bwd. */
void conv_fold_run(const struct ls_program *p, int node);
/* The same for a bn, whose node backward is `back`. Its convolution has been prepared. */
enum ls_status conv_fold_forward_prepare(struct ls_program *p, int node, int back);
void conv_fold_forward_run(const struct ls_program *p, int node);
/* linear.c: a node's convolution with maps x and y. */
void linear_describe(const struct ls_program *p, int node, enum pass pass, int x, int y, struct linear *l);

#endif
