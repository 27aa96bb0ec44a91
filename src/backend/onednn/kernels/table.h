/* The parts of a table. Each file of a build (one instruction set and activation type) fills in its part. */
#ifndef LS_KERNELS_TABLE_H
#define LS_KERNELS_TABLE_H

#include "backend/onednn/kernels/kernels.h"

#define LS_KERNEL_PASTE_(a, b, c, d) ls_##a##_##b##_##c##d
#define LS_KERNEL_PASTE(a, b, c, d) LS_KERNEL_PASTE_(a, b, c, d)
#if LS_KERNEL_BF16
#define LS_KERNEL_NAME(what) LS_KERNEL_PASTE(what, LS_KERNEL_ISA, bf, 16)
#else
#define LS_KERNEL_NAME(what) LS_KERNEL_PASTE(what, LS_KERNEL_ISA, f, 32)
#endif

void LS_KERNEL_NAME(fill_bn)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_pool)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_elementwise)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_smooth)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_channels)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_depthwise)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_winograd)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_winograd_bf16)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_amx)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_amx_images)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_groups)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_dense)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_loss)(struct ls_kernels *k);
void LS_KERNEL_NAME(fill_pairs)(struct ls_kernels *k);

#endif
