#include "backend/cuda/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* A launch carries its arguments along, so nothing of the host's has to stay for it. */
static __global__ void set_run(struct ls_cuda_run *to, struct ls_cuda_run run)
{
    *to = run;
}

void ls_cuda_set_run(ls_cuda_stream s, struct ls_cuda_run *to, const struct ls_cuda_run *run)
{
    set_run<<<1, 1, 0, s>>>(to, *run);
}

template <typename T> static __global__ void fill(T *to, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t bits = (uint32_t)i * 2654435761u;
        to[i] = (T)((float)(int)((bits >> 16) & 0xff) / 128.0f - 1.0f);
    }
}

void ls_cuda_fill(ls_cuda_stream s, enum ls_dtype t, void *to, int64_t count)
{
    if (t == LS_BF16)
        fill<<<1024, 256, 0, s>>>((__nv_bfloat16 *)to, count);
    else if (t == LS_F16)
        fill<<<1024, 256, 0, s>>>((__half *)to, count);
    else
        fill<<<1024, 256, 0, s>>>((float *)to, count);
}
