/* The mixing of a pass (base/mix.h), on the device. */
#ifndef LS_BACKEND_CUDA_KERNELS_MIX_CUH
#define LS_BACKEND_CUDA_KERNELS_MIX_CUH

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/random.cuh"
#include "base/mix.h"

namespace ls_device
{

/* Returned in all threads of the block, which all call it. One thread computes it. */
static __device__ struct ls_mix block_mix(const struct ls_mix_rule &rule, const struct ls_cuda_run *run)
{
    __shared__ struct ls_mix mix;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t words[LS_MIX_WORDS];
        uint64_t stream = random_stream(LS_RANDOM_MIX, run->step, run->replica, 0);
        for (int i = 0; i < LS_MIX_BLOCKS; i++) {
            uint32_t four[4];
            philox(run->seed, stream, (uint64_t)i, four);
            for (int k = 0; k < 4; k++)
                words[4 * i + k] = four[k];
        }
        mix = ls_mix_choose(&rule, words);
    }
    __syncthreads();
    return mix;
}

} // namespace ls_device

#endif
