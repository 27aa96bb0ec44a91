/* Nodes of batch normalisation, for conv_bn.c, which computes part of one. */
#ifndef LS_BACKEND_CUDA_OPS_BN_H
#define LS_BACKEND_CUDA_OPS_BN_H

#include "backend/cuda/program.h"

/* Slots of bn and bn_bwd (graph/ops.h). */
enum { BN_X, BN_GAMMA, BN_BETA, BN_RUNNING_MEAN, BN_RUNNING_VAR, BN_RESIDUAL };
enum { BN_Y, BN_MEAN, BN_RSTD, BN_STAT, BN_INDEX };
enum { DY, DY2, B_X, B_GAMMA, B_BETA, B_MEAN, B_RSTD, B_Y, B_INDEX };
enum { DX, DGAMMA, DBETA, DRESIDUAL };

/* The node's shapes and attributes, x and y being its maps' tensors; what its kernels read and write backward. */
struct ls_cuda_bn bn_of(const struct ls_program *p, int node, int x, int y);
struct ls_cuda_bn_grad bn_grad_of(const struct ls_program *p, int node);
struct ls_cuda_bn_twin bn_twin_of(const struct ls_program *p, int node);

#endif
