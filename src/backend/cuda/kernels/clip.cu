/* Clipping of gradients by their norm (backend/core/clip.h). */
#include "backend/cuda/kernels/update.cuh"

using namespace ls_device;

static bool clips(const struct ls_cuda_update *host, int n)
{
    for (int i = 0; i < n; i++)
        if (host[i].hyper.clip_norm > 0)
            return true;
    return false;
}

/* squares[block]: the sum over the block's chunk, 0 where the tensor is not clipped. */
template <typename G> static __device__ __forceinline__ float chunk_squares(const struct ls_cuda_update &u)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        float g[4];
        if (at >= u.count / 4)
            break;
        widen_quad<G>(load_quad<G>(u.grad, at), g);
        for (int i = 0; i < 4; i++)
            sum += g[i] * g[i];
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS)
    squares_kernel(const struct ls_cuda_update *updates, int n, float *squares)
{
    __shared__ float warps[THREADS / 32];
    const struct ls_cuda_update u = tensor_at(updates, tensor_of_block(updates, n));
    float sum = 0;
    if (u.hyper.clip_norm > 0) {
        if (u.grad_t == LS_F32)
            sum = chunk_squares<float>(u);
        else if (u.grad_t == LS_BF16)
            sum = chunk_squares<__nv_bfloat16>(u);
        else
            sum = chunk_squares<__half>(u);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int i = 1; i < THREADS / 32; i++)
        sum += warps[i];
    squares[blockIdx.x] = sum;
}

/* One block: *factor is what gradients are multiplied by. With a loss scale their norm is that much too large. */
static __global__ void __launch_bounds__(THREADS)
    factor_kernel(const struct ls_cuda_scale *scale, double limit, const float *squares, int blocks, float *factor)
{
    __shared__ double sums[THREADS];
    double sum = 0;
    for (int i = (int)threadIdx.x; i < blocks; i += THREADS)
        sum += squares[i];
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x != 0)
        return;
    double norm = sqrt(sums[0]) / (scale ? scale->scale : 1), wanted = limit / (norm + 1e-6);
    *factor = wanted < 1 ? (float)wanted : 1;
}

template <typename G>
static __device__ __forceinline__ void multiply_chunk(const struct ls_cuda_update &u, G *grad, float factor)
{
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        float g[4];
        if (at >= u.count / 4)
            return;
        widen_quad<G>(load_quad<G>(grad, at), g);
        for (int i = 0; i < 4; i++)
            g[i] *= factor;
        store_quad(grad, at, narrow_quad<G>(g));
    }
}

static __global__ void __launch_bounds__(THREADS)
    multiply_kernel(const struct ls_cuda_update *updates, int n, const float *factor)
{
    float by = *factor;
    if (by == 1)
        return;
    const struct ls_cuda_update u = tensor_at(updates, tensor_of_block(updates, n));
    void *grad = const_cast<void *>(u.grad);
    if (!(u.hyper.clip_norm > 0))
        return;
    if (u.grad_t == LS_F32)
        multiply_chunk<float>(u, static_cast<float *>(grad), by);
    else if (u.grad_t == LS_BF16)
        multiply_chunk<__nv_bfloat16>(u, static_cast<__nv_bfloat16 *>(grad), by);
    else
        multiply_chunk<__half>(u, static_cast<__half *>(grad), by);
}

size_t ls_cuda_clip_scratch(const struct ls_cuda_update *host, int n)
{
    return clips(host, n) ? ((size_t)blocks_of(host, n) + 1) * sizeof(float) : 0;
}

void ls_cuda_clip(ls_cuda_stream s, const struct ls_cuda_scale *scale, double limit,
                  const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n, float *scratch)
{
    int blocks = blocks_of(host, n);
    if (!blocks)
        return;
    squares_kernel<<<blocks, THREADS, 0, s>>>(updates, n, scratch + 1);
    factor_kernel<<<1, THREADS, 0, s>>>(scale, limit, scratch + 1, blocks, scratch);
    multiply_kernel<<<blocks, THREADS, 0, s>>>(updates, n, scratch);
}
