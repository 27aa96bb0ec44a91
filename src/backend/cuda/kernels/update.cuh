/* Helpers of the update kernels of all optimizers. One launch covers a whole list of tensors. Each block handles
 * CHUNK elements of one tensor. It finds the tensor by counting the tensors that begin at or before it. */
#ifndef LS_BACKEND_CUDA_KERNELS_UPDATE_CUH
#define LS_BACKEND_CUDA_KERNELS_UPDATE_CUH

#include "backend/cuda/kernels.h"
#include "backend/cuda/kernels/quad.cuh"

#define THREADS 256
#define QUADS 4 /* per thread; all are loaded before the first is used */
#define CHUNK (THREADS * QUADS * 4)

namespace ls_device
{

static inline int64_t chunks(const struct ls_cuda_update *u)
{
    return (u->count + CHUNK - 1) / CHUNK;
}

/* Blocks of a numbered list, or of a part of one. */
static inline int blocks_of(const struct ls_cuda_update *host, int n)
{
    return n ? host[n - 1].first_block + (int)chunks(host + n - 1) - host[0].first_block : 0;
}

/* The number of this block in the list. A list may be part of a longer one, which was numbered as a whole. */
__device__ __forceinline__ int block_number(const struct ls_cuda_update *updates)
{
    return (int)blockIdx.x + updates[0].first_block;
}

/* The tensor of this block, the same in all threads. */
__device__ __forceinline__ int tensor_of_block(const struct ls_cuda_update *updates, int n)
{
    int begun = 0, block = block_number(updates);
    for (int first = 0; first < n; first += THREADS) {
        int i = first + (int)threadIdx.x;
        begun += __syncthreads_count(i < n && updates[i].first_block <= block);
    }
    return begun - 1;
}

/* The tensor, with its blocks numbered from the first block of this list. */
__device__ __forceinline__ struct ls_cuda_update tensor_at(const struct ls_cuda_update *updates, int i)
{
    struct ls_cuda_update u = updates[i];
    u.first_block -= updates[0].first_block;
    return u;
}

/* The index of this thread's k-th quad in the block's chunk. */
__device__ __forceinline__ int64_t quad_at(const struct ls_cuda_update &u, int k)
{
    return (int64_t)((int)blockIdx.x - u.first_block) * (CHUNK / 4) + k * THREADS + (int)threadIdx.x;
}

/* ls_hyper_lr (graph/graph.h) on the device. */
__device__ __forceinline__ float tensor_lr(const struct ls_hyper &h, float lr)
{
    return h.lr_factor > 0 ? (float)(h.lr_factor * (double)lr) : lr;
}

/* The sum over the threads of a block, returned in all of them. */
__device__ __forceinline__ float2 block_sum(float2 v)
{
    __shared__ float2 warps[THREADS / 32];
    v = make_float2(warp_sum(v.x), warp_sum(v.y));
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = v;
    __syncthreads();
    float2 sum = warps[0];
    for (int i = 1; i < THREADS / 32; i++) {
        sum.x += warps[i].x;
        sum.y += warps[i].y;
    }
    return sum;
}

/* Stores the 16-bit copy of a parameter, which the next pass reads. */
__device__ __forceinline__ void store_half(const struct ls_cuda_update &u, int64_t at, const float (&w)[4])
{
    if (u.half && u.half_t == LS_BF16)
        store_quad(u.half, at, narrow_quad<__nv_bfloat16>(w));
    else if (u.half)
        store_quad(u.half, at, narrow_quad<__half>(w));
}

} // namespace ls_device

#endif
