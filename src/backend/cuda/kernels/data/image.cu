/* Converts images to maps.
 *
 * From planes: a thread computes PIXELS pixels of an octet of channels. Neighbouring threads read neighbouring
 * pixels of each plane, and a thread writes whole octets.
 *
 * From bytes: a block computes OCTETS octets per thread, all of one sample, with the table in shared memory. */
#include "backend/cuda/kernels/device.cuh"

#include <stddef.h>

using namespace ls_device;

#define THREADS 256
#define PIXELS 4
#define OCTETS 4

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    planes_kernel(const struct ls_cuda_run *run, int64_t pixels, int64_t octets, int64_t channels, divider tiles,
                  void *to)
{
    uint32_t tile = blockIdx.x, sample = divide_rest(tile, tiles);
    int64_t at = blockIdx.y, first = (int64_t)tile * (THREADS * PIXELS) + threadIdx.x;
    const float *plane = (const float *)run->images + (sample * channels + at * 8) * pixels;
    float v[PIXELS][8];
#pragma unroll
    for (int c = 0; c < 8; c++)
#pragma unroll
        for (int k = 0; k < PIXELS; k++) {
            int64_t pixel = first + k * THREADS;
            v[k][c] = at * 8 + c < channels && pixel < pixels ? __ldcs(plane + c * pixels + pixel) : 0;
        }
#pragma unroll
    for (int k = 0; k < PIXELS; k++) {
        int64_t pixel = first + k * THREADS;
        if (pixel < pixels)
            store<T>(to, (sample * pixels + pixel) * octets + at, narrow<T>(v[k]));
    }
}

void ls_cuda_image_planes(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, const struct ls_cuda_map *y,
                          int64_t channels, void *to)
{
    int64_t pixels = y->h * y->w, tiles = ceil_div(pixels, THREADS * PIXELS);
    dim3 grid((unsigned)(y->n * tiles), (unsigned)(y->c / 8));
    LS_CUDA_BY_TYPE(t,
                    planes_kernel<T><<<grid, THREADS, 0, s>>>(run, pixels, y->c / 8, channels, divider_of(tiles), to));
}

/* Words of struct ls_pixels before the table. */
#define HEAD ((int)(offsetof(struct ls_pixels, table) / sizeof(uint32_t)))

/* A pixel is one octet. A sample has `each` pixels. */
template <typename T, int CHANNELS>
static __global__ void __launch_bounds__(THREADS)
    crops_kernel(const struct ls_cuda_run *run, const struct ls_pixels *pixels, uint32_t each, divider tiles,
                 divider width, void *to)
{
    __shared__ struct ls_pixels p;
    for (int i = threadIdx.x; i < HEAD + CHANNELS * 256; i += THREADS)
        ((uint32_t *)&p)[i] = __ldg((const uint32_t *)pixels + i);
    uint32_t tile = blockIdx.x, sample = divide_rest(tile, tiles);
    struct ls_crop crop = run->crops[sample];
    __syncthreads();
    const bool none = crop.image < 0;
    const uint8_t *image = (const uint8_t *)run->images + (none ? 0 : crop.image * ls_pixels_bytes(&p));
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        uint32_t at = (tile * OCTETS + k) * THREADS + threadIdx.x, column = at;
        if (at >= each)
            break;
        uint32_t row = divide_rest(column, width);
        float v[8] = {0};
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
            if (!none)
                v[c] = p.table[c][ls_crop_byte(&p, image, ls_crop_source(&p, &crop, (int)row, (int)column), c)];
        store<T>(to, (int64_t)sample * each + at, narrow<T>(v));
    }
}

template <typename T, int CHANNELS>
static void crop_images(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_pixels *pixels,
                        const struct ls_cuda_map *y, void *to)
{
    int64_t each = y->h * y->w, tiles = ceil_div(each, THREADS * OCTETS);
    crops_kernel<T, CHANNELS><<<(unsigned)(y->n * tiles), THREADS, 0, s>>>(run, pixels, (uint32_t)each,
                                                                           divider_of(tiles), divider_of(y->w), to);
}

void ls_cuda_image_crops(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run,
                         const struct ls_pixels *pixels, const struct ls_cuda_map *y, int64_t channels, void *to)
{
    if (channels == 1)
        LS_CUDA_BY_TYPE(t, crop_images<T, 1>(s, run, pixels, y, to));
    else
        LS_CUDA_BY_TYPE(t, crop_images<T, 3>(s, run, pixels, y, to));
}
