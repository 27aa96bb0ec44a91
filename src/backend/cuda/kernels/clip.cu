/* Clipping of gradients by their norm (backend/core/clip.h). */
#include "backend/cuda/kernels/given.h"
#include "backend/cuda/kernels/update.cuh"

using namespace ls_device;

static bool clips(const struct ls_cuda_update *host, int n)
{
    for (int i = 0; i < n; i++)
        if (host[i].hyper.clip_norm > 0)
            return true;
    return false;
}

/* Behind the head: a sum for each entry of the list, then one for each block. */
static __host__ __device__ double *sums_in(float *scratch)
{
    return (double *)((char *)scratch + sizeof(struct ls_cuda_clip_head));
}

static __host__ __device__ float *squares_in(float *scratch, int n)
{
    return (float *)(sums_in(scratch) + n);
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

/* One block for each entry of the list. A tensor's sum depends on the tensor alone, so that any process comes to the same. */
static __global__ void __launch_bounds__(THREADS)
    tensor_kernel(const struct ls_cuda_update *updates, int n, int blocks, const float *squares, double *sums)
{
    __shared__ double all[THREADS];
    int i = (int)blockIdx.x, before = updates[0].first_block;
    int end = i + 1 < n ? updates[i + 1].first_block - before : blocks;
    double sum = 0;
    for (int block = updates[i].first_block - before + (int)threadIdx.x; block < end; block += THREADS)
        sum += squares[block];
    all[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            all[threadIdx.x] += all[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        sums[i] = all[0];
}

/* One block: head->factor is what gradients are multiplied by. With a loss scale their norm is that much too large. */
static __global__ void __launch_bounds__(THREADS)
    factor_kernel(const struct ls_cuda_scale *scale, double limit, const double *sums, int n,
                  struct ls_cuda_clip_head *head)
{
    __shared__ double some[THREADS];
    double squares = 0;
    for (int first = 0; first < n; first += THREADS) {
        int i = first + (int)threadIdx.x;
        some[threadIdx.x] = i < n ? sums[i] : 0;
        __syncthreads();
        for (int k = 0; threadIdx.x == 0 && k < THREADS; k++)
            squares += some[k];
        __syncthreads();
    }
    if (threadIdx.x != 0)
        return;
    double norm = sqrt(head->given ? head->squares : squares) / (scale ? scale->scale : 1);
    double wanted = limit / (norm + 1e-6);
    head->factor = wanted < 1 ? (float)wanted : 1;
}

static __global__ void give_kernel(struct ls_cuda_clip_head *head, double squares)
{
    head->squares = squares;
    head->given = 1;
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
    multiply_kernel(const struct ls_cuda_update *updates, int n, const struct ls_cuda_clip_head *head)
{
    float by = head->factor;
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
    size_t sums = (size_t)n * sizeof(double) + (size_t)blocks_of(host, n) * sizeof(float);
    return clips(host, n) ? sizeof(struct ls_cuda_clip_head) + sums : 0;
}

void ls_cuda_squares(ls_cuda_stream s, const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n,
                     float *scratch)
{
    int blocks = blocks_of(host, n);
    if (!blocks)
        return;
    squares_kernel<<<blocks, THREADS, 0, s>>>(updates, n, squares_in(scratch, n));
    tensor_kernel<<<n, THREADS, 0, s>>>(updates, n, blocks, squares_in(scratch, n), sums_in(scratch));
}

void ls_cuda_clip_give(ls_cuda_stream s, double squares, float *scratch)
{
    give_kernel<<<1, 1, 0, s>>>((struct ls_cuda_clip_head *)scratch, squares);
}

void ls_cuda_clip(ls_cuda_stream s, const struct ls_cuda_scale *scale, double limit,
                  const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n, float *scratch)
{
    struct ls_cuda_clip_head *head = (struct ls_cuda_clip_head *)scratch;
    int blocks = blocks_of(host, n);
    if (!blocks)
        return;
    ls_cuda_squares(s, updates, host, n, scratch);
    factor_kernel<<<1, THREADS, 0, s>>>(scale, limit, sums_in(scratch), n, head);
    multiply_kernel<<<blocks, THREADS, 0, s>>>(updates, n, head);
}
