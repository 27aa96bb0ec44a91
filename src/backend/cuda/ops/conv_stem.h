/* The first convolution straight from the images (kernels/conv/stem_wgmma.cu, stem_gather.cu, stem_mapped.cu). */
#ifndef LS_BACKEND_CUDA_OPS_CONV_STEM_H
#define LS_BACKEND_CUDA_OPS_CONV_STEM_H

#include "backend/cuda/conv/conv_algorithm.h"

struct conv_stem {
    bool here; /* the node reads the images itself */
    int bn;    /* STEM-2: the node of the bn whose statistics it computes; LS_NONE: none */
};

/* Is this convolution over unfolded images (forward, or its gradient by weights) faster straight from the images than with
 * `algorithm`? Then *stem says so, and the nodes around it are prepared for it. */
enum ls_status conv_stem_prepare(struct ls_program *p, int node, const struct linear *l,
                                 const struct conv_algorithm *algorithm, struct conv_stem *stem);
/* Forward, with weights in the layout of unfolded images; the gradient by weights. */
void conv_stem_run(const struct ls_program *p, int node, const struct linear *l, const struct conv_stem *stem,
                   const void *weights);
void conv_stem_weights_run(const struct ls_program *p, int node, const struct linear *l);
/* STEM-4, of a bn_bwd: does its node compute the gradient of the weights behind it? Then `gathers` says so. Runs it, after the
 * first pass. */
enum ls_status conv_stem_mapped_prepare(struct ls_program *p, int node);
void conv_stem_mapped_run(const struct ls_program *p, int node, const struct ls_cuda_bn *b,
                          const struct ls_cuda_bn_grad *g);

#endif
