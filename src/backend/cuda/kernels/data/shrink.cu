/* Shrinks a part of a decoded image. A thread computes one byte. */
#include "backend/cuda/kernels.h"
#include "base/decoder.h"

#include <cuda_runtime.h>

#define THREADS 256

static __global__ void __launch_bounds__(THREADS)
    shrink_kernel(struct ls_decoder_job job, const uint8_t *from, int64_t pitch, int64_t count, uint8_t *to)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count)
        return;
    int channel = (int)(at % job.channels);
    int64_t pixel = at / job.channels;
    int y0 = (job.top + (int)(pixel / job.columns)) * job.shrink, y1 = min(y0 + job.shrink, job.height);
    int x0 = (job.left + (int)(pixel % job.columns)) * job.shrink, x1 = min(x0 + job.shrink, job.width);
    int sum = 0, n = (y1 - y0) * (x1 - x0);
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            sum += from[y * pitch + (int64_t)x * job.channels + channel];
    to[at] = (uint8_t)((sum + n / 2) / n);
}

void ls_cuda_shrink(ls_cuda_stream s, const struct ls_decoder_job *job, const void *from, int64_t pitch, void *to)
{
    int64_t count = (int64_t)job->rows * job->columns * job->channels;
    shrink_kernel<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, s>>>(*job, (const uint8_t *)from, pitch,
                                                                                  count, (uint8_t *)to);
}
