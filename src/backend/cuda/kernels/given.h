/* What processes that have parts of the gradients give each other before an update: squares of them (clip.cu), and
 * whether one is not finite (update.cu). */
#ifndef LS_BACKEND_CUDA_KERNELS_GIVEN_H
#define LS_BACKEND_CUDA_KERNELS_GIVEN_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The scratch of ls_cuda_clip begins with it, zero at first. Behind it lie the sums of ls_cuda_squares. */
struct ls_cuda_clip_head {
    double squares; /* of all gradients, where that is given from outside */
    int32_t given;
    float factor; /* that gradients are multiplied by */
};

/* sums[i] behind the head: the squares of the gradient of entry i of the list, added up in an order that depends on this tensor
 * alone; 0 where it is not clipped. */
void ls_cuda_squares(ls_cuda_stream s, const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n,
                     float *scratch);
/* From now on ls_cuda_clip takes this for the squares of all gradients. */
void ls_cuda_clip_give(ls_cuda_stream s, double squares, float *scratch);
/* Sets scale->overflow. */
void ls_cuda_scale_overflow(ls_cuda_stream s, struct ls_cuda_scale *scale);

#ifdef __cplusplus
}
#endif

#endif
