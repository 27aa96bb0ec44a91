/* Sums over the memory of several GPUs, or of several processes on one GPU. Every value is read once from each part
 * and written once to each part, so a GPU reads the memory of each neighbour only once. */
#include "backend/cuda/kernels/device.cuh"

#define THREADS 256
#define BLOCKS 128 /* enough for the links between GPUs; most of each multiprocessor stays free for other kernels */

/* part[to] += part[from] in registers. The indices come from the list at run time, and registers cannot be indexed,
 * so each index is compared with all parts. */
template <int N> static __device__ __forceinline__ void add_in_order(const struct ls_cuda_parts &p, float4 (&v)[N])
{
    for (int s = 0; s < p.n - 1; s++) {
        float4 more = v[0];
#pragma unroll
        for (int i = 1; i < N; i++)
            if (i == p.from[s])
                more = v[i];
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i == p.to[s])
                v[i] = make_float4(v[i].x + more.x, v[i].y + more.y, v[i].z + more.z, v[i].w + more.w);
    }
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    sum_parts_kernel(const __grid_constant__ struct ls_cuda_parts p, int64_t first, int64_t quads)
{
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < quads; at += stride) {
        float4 v[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < p.n)
                v[i] = ((const float4 *)p.part[i])[first + at];
        add_in_order<N>(p, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < p.n)
                ((float4 *)p.part[i])[first + at] = v[0];
    }
}

void ls_cuda_sum_parts(ls_cuda_stream s, const struct ls_cuda_parts *p, int64_t first, int64_t count)
{
    int64_t quads = count / 4, blocks = (quads + THREADS - 1) / THREADS;
    unsigned grid = (unsigned)(blocks < BLOCKS ? blocks : BLOCKS);
    if (quads == 0)
        return;
    if (p->n <= 2)
        sum_parts_kernel<2><<<grid, THREADS, 0, s>>>(*p, first / 4, quads);
    else if (p->n <= 4)
        sum_parts_kernel<4><<<grid, THREADS, 0, s>>>(*p, first / 4, quads);
    else if (p->n <= 8)
        sum_parts_kernel<8><<<grid, THREADS, 0, s>>>(*p, first / 4, quads);
    else
        sum_parts_kernel<LS_CUDA_PARTS><<<grid, THREADS, 0, s>>>(*p, first / 4, quads);
}
