/* Adds the products of a large dense layer's chunks of rows along their tree. */
#include "backend/cuda/kernels/quad.cuh"

using namespace ls_device;

#define THREADS 256
#define LEAVES 4 /* at most, of one layer */

/* The leaves are in registers, which cannot be indexed by a number of run time: each index is compared with all of them. */
static __device__ __forceinline__ void add_listed(const struct ls_cuda_tree &tree, float (&v)[LEAVES][4])
{
    for (int s = 0; s < tree.sums; s++) {
        float more[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < LEAVES; i++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                more[k] = i == tree.from[s] ? v[i][k] : more[k];
#pragma unroll
        for (int i = 0; i < LEAVES; i++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[i][k] = i == tree.to[s] ? v[i][k] + more[k] : v[i][k];
    }
}

/* All leaves. */
static __device__ __forceinline__ void add_all(float (&v)[LEAVES][4])
{
#pragma unroll
    for (int step = 1; step < LEAVES; step *= 2)
#pragma unroll
        for (int i = 0; i < LEAVES; i += 2 * step)
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[i][k] += v[i + step][k];
}

template <typename T, bool ALL>
static __global__ void __launch_bounds__(THREADS)
    tree_kernel(const __grid_constant__ struct ls_cuda_tree tree, const float *leaves, int64_t quads, void *parts)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= quads)
        return;
    quad<float> q[LEAVES];
    float v[LEAVES][4];
#pragma unroll
    for (int i = 0; i < LEAVES; i++)
        q[i] = i < tree.leaves ? load_quad_once<float>(leaves, i * quads + at) : zero_quad<float>();
#pragma unroll
    for (int i = 0; i < LEAVES; i++)
        widen_quad(q[i], v[i]);
    if (ALL)
        add_all(v);
    else
        add_listed(tree, v);
    for (int part = 0; part < (ALL ? 1 : tree.parts); part++)
#pragma unroll
        for (int i = 0; i < LEAVES; i++)
            if (ALL ? i == 0 : i == tree.part[part])
                store_quad(parts, part * quads + at, narrow_quad<T>(v[i]));
}

void ls_cuda_sum_tree(ls_cuda_stream s, const struct ls_cuda_tree *tree, enum ls_dtype t, const float *leaves,
                      int64_t count, void *parts)
{
    const int64_t quads = count / 4;
    const unsigned blocks = (unsigned)ceil_div(quads, THREADS);
    if (tree->leaves == LEAVES && tree->parts == 1)
        LS_CUDA_BY_TYPE(t, tree_kernel<T, true><<<blocks, THREADS, 0, s>>>(*tree, leaves, quads, parts));
    else
        LS_CUDA_BY_TYPE(t, tree_kernel<T, false><<<blocks, THREADS, 0, s>>>(*tree, leaves, quads, parts));
}
