/* Images unfolded for a first convolution. A thread makes OCTETS octets, a block's worth apart, of pixels' channels; from
 * bytes with the table in shared memory. */
#include "backend/cuda/kernels/device.cuh"

using namespace ls_device;

#define THREADS 256
#define OCTETS 4

/* What of struct ls_pixels comes before the table, in words. */
#define HEAD ((int)(offsetof(struct ls_pixels, table) / sizeof(uint32_t)))

template <typename T, bool PICKS>
static __global__ void __launch_bounds__(THREADS)
    unfold_kernel(const struct ls_cuda_run *run, const struct ls_pixels *pixels, struct ls_cuda_unfold u, uint32_t each,
                  divider tiles, divider octets, divider columns, divider row_channels, divider channels, void *to)
{
    __shared__ struct ls_pixels p;
    uint32_t tile = blockIdx.x, sample = divide_rest(tile, tiles);
    struct ls_pick pick = {};
    const float *planes = (const float *)run->images + (int64_t)sample * u.channels * u.height * u.width;
    const uint8_t *bytes = NULL;
    if (PICKS) {
        for (int i = threadIdx.x; i < HEAD + u.channels * 256; i += THREADS)
            ((uint32_t *)&p)[i] = __ldg((const uint32_t *)pixels + i);
        pick = run->picks[sample];
        __syncthreads();
        bytes = (const uint8_t *)run->images + (pick.image < 0 ? 0 : pick.image * ls_pixels_bytes(&p));
    }
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        uint32_t at = (tile * OCTETS + k) * THREADS + threadIdx.x;
        if (at >= each)
            break;
        uint32_t octet = at, column = divide_rest(octet, octets), row = divide_rest(column, columns);
        uint32_t across = octet * 8, r = divide_rest(across, row_channels), c = across;
        across = divide_rest(c, channels);
        int y = (int)row * u.stride_h - u.border + (int)r, left = (int)column * u.stride_w - u.pad;
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int x = left + (int)across;
            bool in = (int)r < u.block && y >= 0 && y < u.height && x >= 0 && x < u.width;
            v[i] = 0;
            if (in && PICKS && pick.image >= 0)
                v[i] = p.table[c][ls_pick_byte(&p, bytes, ls_pick_source(&p, &pick, y, x), (int)c)];
            if (in && !PICKS)
                v[i] = __ldg(planes + ((int64_t)c * u.height + y) * u.width + x);
            if (++c == (uint32_t)u.channels) {
                c = 0;
                if (++across == (uint32_t)u.columns) {
                    across = 0;
                    r++;
                    y++;
                }
            }
        }
        store<T>(to, (int64_t)sample * each + at, narrow<T>(v));
    }
}

void ls_cuda_unfold(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, const struct ls_pixels *pixels,
                    const struct ls_cuda_unfold *u, const struct ls_cuda_map *y, void *to)
{
    int64_t octets = y->c / 8, each = y->h * y->w * octets, tiles = ceil_div(each, THREADS * OCTETS);
    divider by_tiles = divider_of(tiles), by_octets = divider_of(octets), by_columns = divider_of(y->w);
    divider by_row = divider_of(u->columns * u->channels), by_channels = divider_of(u->channels);
    unsigned grid = (unsigned)(y->n * tiles);
    if (pixels)
        LS_CUDA_BY_TYPE(t, unfold_kernel<T, true><<<grid, THREADS, 0, s>>>(run, pixels, *u, (uint32_t)each, by_tiles,
                                                                           by_octets, by_columns, by_row, by_channels,
                                                                           to));
    else
        LS_CUDA_BY_TYPE(t, unfold_kernel<T, false><<<grid, THREADS, 0, s>>>(run, pixels, *u, (uint32_t)each, by_tiles,
                                                                            by_octets, by_columns, by_row, by_channels,
                                                                            to));
}

static __global__ void __launch_bounds__(THREADS)
    cut_kernel(float *weights, int64_t count, int kernel, int c, int row, int block, int shift, int rows)
{
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= count)
        return;
    int in_block = (int)(i % c) / row, y = (int)(i / c % kernel) * block + in_block - shift;
    if (in_block >= block || y < 0 || y >= rows)
        weights[i] = 0;
}

void ls_cuda_cut_window(ls_cuda_stream s, float *w, int64_t out, int kernel, int64_t c, int row, int block, int shift,
                        int rows)
{
    int64_t count = out * kernel * c;
    cut_kernel<<<(unsigned)ceil_div(count, THREADS), THREADS, 0, s>>>(w, count, kernel, (int)c, row, block, shift,
                                                                      rows);
}
