/* Rows of unfolded images (struct ls_cuda_unfold) in shared memory, for stem_wgmma.cu and stem_gather.cu.
 *
 * A row lies in planes: plane i has octet i of the channels of all its pixels. The tensor cores can therefore begin at any
 * pixel, and read a plane either way, with pixels along the sum or across it. All planes hold a ring of SLOTS rows: those
 * that an output row is computed from, and the next one.
 *
 * A row is made in two steps, which work on different rows. First the pixels of its lines, which are rows of the cropped and
 * mirrored image, become values in shared memory, each once; then these become octets. Reads of the pixels can begin earlier.
 * The lines of two rows take turns, so that one barrier between the steps is enough. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_STEM_ROWS_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_STEM_ROWS_CUH

#include "backend/cuda/kernels/conv/wgmma.cuh"

namespace ls_stem
{

using namespace ls_wgmma;

constexpr int CHANNELS = 3;

/* A square window: rows of the unfolded map in it; rows of the image in one of these, and channels for each; channels; and
 * channels of the first row that are above the window, in slices of 16. */
template <int SIDE> struct window;
template <> struct window<7> {
    static constexpr int TAPS = 4, BLOCK = 2, ROW = 24, C = 48, ABOVE = 1;
};
template <> struct window<3> {
    static constexpr int TAPS = 1, BLOCK = 3, ROW = 9, C = 32, ABOVE = 0;
};

/* Where the rows come from, and their sizes. */
struct source {
    struct ls_cuda_unfold u;
    int high, wide;  /* of the output */
    int pitch;       /* pixels of a row in shared memory, a multiple of 16; 0 beyond `wide` */
    int pairs, line; /* pairs of pixels, and values, of a line */
    divider by_pairs;
    const struct ls_cuda_run *run;
    const struct ls_pixels *pixels;
};

/* Bytes of a block's planes, and of all that makes rows. */
template <int SIDE> __host__ __device__ __forceinline__ int plane_bytes(const source &s)
{
    return (window<SIDE>::TAPS + 1) * s.pitch * 16;
}
template <int SIDE> __host__ __device__ __forceinline__ int lines_values(const source &s)
{
    return window<SIDE>::BLOCK * s.line;
}
template <int SIDE> inline size_t rows_bytes(const source &s)
{
    return (size_t)window<SIDE>::C / 8 * plane_bytes<SIDE>(s) + 2 * (size_t)lines_values<SIDE>(s) * 2 + 16 +
           CHANNELS * 256 * 2;
}

/* A block of a warpgroup makes, in order, the rows that output rows first .. last - 1 of the batch are computed from; at the
 * beginning of a sample these are TAPS, else one more for each. */
template <typename T, int SIDE> struct maker {
    using W = window<SIDE>;
    static constexpr int SLOTS = W::TAPS + 1, ITEMS = SIDE == 7 ? 2 : 3; /* pairs in flight for each thread */
    static constexpr int VALUES = SIDE * CHANNELS;

    const source &s;
    char *planes;
    uint16_t *lines, *table; /* of bits of T */
    int t;
    int n, y;             /* sample and row whose pixels are read next */
    int left, turn, slot; /* rows to be read; lines and slot of the row that becomes octets next */
    const char *images;   /* of the sample, or where pixels are bytes, the image it is cropped from; NULL: none */
    int crop_top = 0, crop_left = 0, from_width = 0, from_height = 0;
    bool flip = false, reflect = false, grey = false;
    /* the row that is being read: its first line, and its pixels */
    int top;
    uint32_t outside;
    uint32_t value[ITEMS][2 * CHANNELS]; /* bytes, or bits of f32 */

    __device__ __forceinline__ maker(const source &of, char *room, int thread, int first, int last)
        : s(of), planes(room), t(thread), turn(0), slot(0)
    {
        lines = (uint16_t *)(room + W::C / 8 * plane_bytes<SIDE>(s));
        table = lines + 2 * lines_values<SIDE>(s) + 8;
        n = first / s.high;
        y = first - n * s.high;
        left = first < last ? last - first + ((last - 1) / s.high - n + 1) * (W::TAPS - 1) : 0;
        if (s.pixels) {
            from_width = s.pixels->from_width;
            from_height = s.pixels->from_height;
            grey = s.pixels->from_channels == 1;
            reflect = s.pixels->reflect;
            for (int i = t; i < CHANNELS * 256; i += GROUP)
                table[i] = (uint16_t)narrow_pair<T>(__ldg(&s.pixels->table[0][0] + i), 0);
        }
        if (left > 0)
            begin_sample();
        __syncthreads();
    }

    __device__ __forceinline__ void begin_sample()
    {
        images = (const char *)s.run->images;
        if (!s.pixels) {
            images += (int64_t)n * CHANNELS * s.u.height * s.u.width * (int64_t)sizeof(float);
            return;
        }
        const struct ls_crop *const crop = s.run->crops + n;
        images = crop->image < 0 ? NULL : images + crop->image * ls_pixels_bytes(s.pixels);
        crop_top = crop->top;
        crop_left = crop->left;
        flip = crop->flip;
    }

    /* Starts to read pair `item` of the lines. Returns a bit for each pixel: is it outside of the image? */
    __device__ __forceinline__ uint32_t read(int item, uint32_t (&to)[2 * CHANNELS]) const
    {
        uint32_t pair = (uint32_t)item, bits = 0;
        const int row = top + (int)divide_rest(pair, s.by_pairs), first = (int)pair * 2 - s.u.pad;
        const bool has_row = (unsigned)row < (unsigned)s.u.height && images;
        int from_row = crop_top + row;
        if (reflect)
            from_row = ls_reflect(from_row, from_height);
        const bool black = (unsigned)from_row >= (unsigned)from_height;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int x = first + i;
            const bool there = has_row && (unsigned)x < (unsigned)s.u.width;
#pragma unroll
            for (int c = 0; c < CHANNELS; c++)
                to[i * CHANNELS + c] = 0;
            bits |= there ? 0 : 1u << i;
            if (!s.pixels) {
                const float *const at = (const float *)images + row * s.u.width + x;
#pragma unroll
                for (int c = 0; c < CHANNELS; c++)
                    if (there)
                        to[i * CHANNELS + c] = __float_as_uint(__ldg(at + c * s.u.height * s.u.width));
                continue;
            }
            int from_column = crop_left + (flip ? s.u.width - 1 - x : x);
            if (reflect)
                from_column = ls_reflect(from_column, from_width);
            if (!there || black || (unsigned)from_column >= (unsigned)from_width)
                continue;
            const int pixel = from_row * from_width + from_column;
            const uint8_t *const at = (const uint8_t *)images + (grey ? pixel : pixel * CHANNELS);
#pragma unroll
            for (int c = 0; c < CHANNELS; c++)
                to[i * CHANNELS + c] = __ldg(at + (grey ? 0 : c));
        }
        return bits;
    }

    /* Makes values of a pair. */
    __device__ __forceinline__ void put(int item, const uint32_t (&of)[2 * CHANNELS], uint32_t is_outside)
    {
        uint32_t pair = (uint32_t)item, word[CHANNELS];
        const int line = (int)divide_rest(pair, s.by_pairs);
#pragma unroll
        for (int k = 0; k < 2 * CHANNELS; k += 2) {
            uint32_t v;
            if (s.pixels)
                v = table[k % CHANNELS * 256 + of[k]] | (uint32_t)table[(k + 1) % CHANNELS * 256 + of[k + 1]] << 16;
            else
                v = narrow_pair<T>(__uint_as_float(of[k]), __uint_as_float(of[k + 1]));
            v = is_outside >> k / CHANNELS & 1 ? v & 0xffff0000u : v;
            word[k / 2] = is_outside >> (k + 1) / CHANNELS & 1 ? v & 0xffffu : v;
        }
        uint32_t *const to = (uint32_t *)(lines + turn * lines_values<SIDE>(s) + line * s.line) + (int)pair * CHANNELS;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
            to[c] = word[c];
    }

    /* Starts to read the pixels of the next row, if there is one. */
    __device__ __forceinline__ void read_row()
    {
        if (left == 0)
            return;
        if (y == s.high + W::TAPS - 1) {
            n++;
            y = 0;
            begin_sample();
        }
        top = y * s.u.stride_h - s.u.border;
        outside = 0;
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (t + k * GROUP < W::BLOCK * s.pairs)
                outside |= read(t + k * GROUP, value[k]) << 2 * k;
        expect_row();
    }

    /* The lines that the row behind it adds come into L2. */
    __device__ __forceinline__ void expect_row() const
    {
        constexpr int THREADS = 16, LINE = 128; /* for each line; bytes */
        const int row = crop_top + top + W::BLOCK + t / THREADS;
        const int width = grey ? from_width : from_width * CHANNELS;
        const int at = max(crop_left, 0) * (grey ? 1 : CHANNELS) + t % THREADS * LINE;
        if (s.pixels && images && t / THREADS < s.u.stride_h && (unsigned)row < (unsigned)from_height && at < width)
            expect_line(images + row * width + at);
    }

    /* Makes values of them. */
    __device__ __forceinline__ void put_row()
    {
        if (left == 0)
            return;
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (t + k * GROUP < W::BLOCK * s.pairs)
                put(t + k * GROUP, value[k], outside >> 2 * k);
        for (int item = t + ITEMS * GROUP; item < W::BLOCK * s.pairs; item += GROUP) {
            uint32_t more[2 * CHANNELS];
            const uint32_t is_outside = read(item, more);
            put(item, more, is_outside);
        }
        y++;
        left--;
    }

    /* Makes octets of the values of the row before, in the next slot. */
    __device__ __forceinline__ void put_octets()
    {
        const int plane = plane_bytes<SIDE>(s);
        for (int x = t; x < s.pitch; x += GROUP) {
            const bool there = x < s.wide;
            const uint16_t *const from =
                lines + turn * lines_values<SIDE>(s) + (there ? x : 0) * s.u.stride_w * CHANNELS;
            char *const to = planes + (slot * s.pitch + x) * 16;
            if constexpr (SIDE == 7) {
                /* values of a pixel begin at whole words */
#pragma unroll
                for (int r = 0; r < W::BLOCK; r++)
#pragma unroll
                    for (int o = 0; o < W::ROW / 8; o++) {
                        const uint32_t *const words = (const uint32_t *)(from + r * s.line) + o * 4;
                        uint32_t v[4];
#pragma unroll
                        for (int k = 0; k < 4; k++) {
                            const int some = VALUES - o * 8 - k * 2; /* values of the row from here on */
                            v[k] = some <= 0 || !there ? 0 : some == 1 ? words[k] & 0xffff : words[k];
                        }
                        *(uint4 *)(to + (r * (W::ROW / 8) + o) * plane) = make_uint4(v[0], v[1], v[2], v[3]);
                    }
            } else {
#pragma unroll
                for (int o = 0; o < W::C / 8; o++) {
                    uint32_t v[8];
#pragma unroll
                    for (int k = 0; k < 8; k++) {
                        const int at = o * 8 + k;
                        v[k] = at < VALUES * W::BLOCK && there ? from[at / VALUES * s.line + at % VALUES] : 0;
                    }
                    *(uint4 *)(to + o * plane) =
                        make_uint4(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);
                }
            }
        }
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
        turn ^= 1;
        written();
    }
};

} // namespace ls_stem

#endif
