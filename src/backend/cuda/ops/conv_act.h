/* A product of few channels together with the activation behind it, where that does not clip (kernels/conv/narrow.cu).
 *
 *   CONVACT-1  Where only the activation reads the result, which also means that no gradient passes it, the node of the product
 *              computes what the activation gives, and the node of the activation does nothing. The map between the two has no
 *              memory. */
#ifndef LS_BACKEND_CUDA_OPS_CONV_ACT_H
#define LS_BACKEND_CUDA_OPS_CONV_ACT_H

#include "backend/cuda/conv/conv_algorithm.h"

/* The node of the activation that the product `node` is computed with; LS_NONE: none. */
int conv_act_prepare(struct ls_program *p, int node, const struct linear *l);
void conv_act_run(const struct ls_program *p, int node, const struct linear *l, int act, const void *weights);

#endif
