/* Adds the products of a large dense layer's chunks of rows along their tree. */
#include "backend/cuda/kernels/conv/tree.cuh"

using namespace ls_device;

#define THREADS 256

template <typename T, bool ALL>
static __global__ void __launch_bounds__(THREADS)
    tree_kernel(const __grid_constant__ struct ls_cuda_tree tree, const float *leaves, int64_t quads, void *parts)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= quads)
        return;
    quad<float> q[LS_CUDA_LEAVES];
    float v[LS_CUDA_LEAVES][4];
#pragma unroll
    for (int i = 0; i < LS_CUDA_LEAVES; i++)
        q[i] = i < tree.leaves ? load_quad_once<float>(leaves, i * quads + at) : zero_quad<float>();
#pragma unroll
    for (int i = 0; i < LS_CUDA_LEAVES; i++)
        widen_quad(q[i], v[i]);
    end_tree<T, ALL>(tree, v, parts, at, quads);
}

void ls_cuda_sum_tree(ls_cuda_stream s, const struct ls_cuda_tree *tree, enum ls_dtype t, const float *leaves,
                      int64_t count, void *parts)
{
    const int64_t quads = count / 4;
    const unsigned blocks = (unsigned)ceil_div(quads, THREADS);
    if (is_whole(*tree))
        LS_CUDA_BY_TYPE(t, tree_kernel<T, true><<<blocks, THREADS, 0, s>>>(*tree, leaves, quads, parts));
    else
        LS_CUDA_BY_TYPE(t, tree_kernel<T, false><<<blocks, THREADS, 0, s>>>(*tree, leaves, quads, parts));
}
