/* product_wgmma.cu, as product.cu calls it: the functions of kernels.h for the ways of Hopper. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_PRODUCT_WGMMA_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_PRODUCT_WGMMA_CUH

#include "backend/cuda/kernels/conv/product_ends.cuh"

namespace ls_product
{

bool wgmma_can(const struct ls_cuda_product *p, const struct ls_cuda_bn *b, bool residual);
void wgmma_stats(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                 const struct ls_cuda_run *run, const void *x, const void *w, void *y, float *mean, float *rstd,
                 float *stat);
void wgmma_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g);
/* wgmma_sums without x (product_dz.cu), with the rows divided among `down` blocks of `groups` warpgroups; false: it cannot. */
bool wgmma_dz(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
              const struct ls_cuda_run *run, const void *dy, const void *w, const struct ls_cuda_bn_grad *g, int groups,
              int64_t down);
/* fold.cu: y = act(bn (a * w') + more) (fold_apply.cu). */
void wgmma_apply(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                 const struct ls_cuda_run *run, const struct ls_cuda_mapped *of);
bool wgmma_can_fold(const struct ls_cuda_fold *f, const struct ls_cuda_bn *b);
/* da = dz * weights + a * (what lies behind them) + shift, and then the sums of g, or with g NULL into da. */
void wgmma_folded(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                  const struct ls_cuda_run *run, const void *weights, const float *shift,
                  const struct ls_cuda_bn_grad *g, void *da);

} // namespace ls_product

#endif
