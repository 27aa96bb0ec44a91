#include "backend/cuda/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* A kernel launch copies its arguments, so no host memory has to stay valid for it. */
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
        bits ^= bits >> 15;
        bits *= 2246822519u;
        bits ^= bits >> 13;
        /* sign and mantissa from the hash, exponent from -7 to 0 */
        to[i] = (T)__uint_as_float((bits & 0x80000000u) | (120u + (bits >> 28 & 7u)) << 23 | (bits & 0x7fffffu));
    }
}

static __global__ void digest(const uint32_t *words, int64_t count, unsigned long long *sum)
{
    unsigned long long own = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        unsigned long long mixed = ((unsigned long long)i << 32 | words[i]) * 0x9e3779b97f4a7c15ull;
        own += (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
    }
    atomicAdd(sum, own);
}

void ls_cuda_digest(ls_cuda_stream s, const void *data, int64_t bytes, uint64_t *sum)
{
    digest<<<1024, 256, 0, s>>>((const uint32_t *)data, bytes / 4, (unsigned long long *)sum);
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
