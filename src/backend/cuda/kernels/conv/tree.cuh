/* The sums of struct ls_cuda_tree, over leaves in registers: a quad of each. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_TREE_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_TREE_CUH

#include "backend/cuda/kernels/quad.cuh"

namespace ls_device
{

inline bool is_whole(const struct ls_cuda_tree &tree)
{
    return tree.leaves == LS_CUDA_LEAVES && tree.parts == 1;
}

/* The leaves are in registers, which cannot be indexed by a number of run time: each index is compared with all of them. */
__device__ __forceinline__ void add_listed(const struct ls_cuda_tree &tree, float (&v)[LS_CUDA_LEAVES][4])
{
    for (int s = 0; s < tree.sums; s++) {
        float more[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < LS_CUDA_LEAVES; i++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                more[k] = i == tree.from[s] ? v[i][k] : more[k];
#pragma unroll
        for (int i = 0; i < LS_CUDA_LEAVES; i++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[i][k] = i == tree.to[s] ? v[i][k] + more[k] : v[i][k];
    }
}

/* All eight leaves. */
__device__ __forceinline__ void add_all(float (&v)[LS_CUDA_LEAVES][4])
{
#pragma unroll
    for (int step = 1; step < LS_CUDA_LEAVES; step *= 2)
#pragma unroll
        for (int i = 0; i < LS_CUDA_LEAVES; i += 2 * step)
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[i][k] += v[i + step][k];
}

/* Adds the leaves and stores the parts, of `quads` quads each, at quad `at` of each. ALL: the tree is whole. */
template <typename T, bool ALL>
__device__ __forceinline__ void end_tree(const struct ls_cuda_tree &tree, float (&v)[LS_CUDA_LEAVES][4], void *parts,
                                         int64_t at, int64_t quads)
{
    if (ALL) {
        add_all(v);
        store_quad(parts, at, narrow_quad<T>(v[0]));
        return;
    }
    add_listed(tree, v);
    for (int part = 0; part < tree.parts; part++)
#pragma unroll
        for (int i = 0; i < LS_CUDA_LEAVES; i++)
            if (i == tree.part[part])
                store_quad(parts, part * quads + at, narrow_quad<T>(v[i]));
}

} // namespace ls_device

#endif
