/* Rows of images in shared memory, for stem_wgmma.cu and stem_gather.cu.
 *
 * A pixel has four channels there, the last of which is 0, so two of them are a unit of 16 bytes. With stride 2 a line has a unit
 * for each two pixels, with stride 1 for each pixel and the next. Either way the window of the next output begins one unit
 * further, and its octets of values lie APART units from each other: to the tensor cores a line is the unfolded map, whose
 * planes overlap. They read it either way, with pixels across the sum or along it.
 *
 * Lines are made by the stride: a step. All lines are a ring of SLOTS steps: those that an output row is computed from, and the
 * next one. The bytes (or floats) of a step are copied to shared memory while the step before it becomes values. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_STEM_ROWS_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_STEM_ROWS_CUH

#include "backend/cuda/kernels/conv/wgmma.cuh"

namespace ls_stem
{

using namespace ls_wgmma;

constexpr int CHANNELS = 3, OCTETS = 4, UNIT = 16;

/* A square window. TAPS: steps of an output row, the first of which begins LEAD lines above it. DEEP: slices of 16 values of a
 * line that a product needs. In memory a row of the weights has ROW values, and SHIFT rows are before the first. */
template <int SIDE, int STRIDE> struct window {
    static_assert((SIDE == 7 || SIDE == 3) && (STRIDE == 2 || STRIDE == 1), "windows");
    static constexpr int TAPS = (SIDE + STRIDE - 1) / STRIDE, SLOTS = TAPS + 1, LEAD = TAPS * STRIDE - SIDE,
                         APART = 2 / STRIDE, DEEP = (SIDE * 4 + 15) / 16;
    static constexpr int ROW = SIDE == 7 ? 24 : 9, SHIFT = SIDE == 7 ? 1 : 0, WEIGHTS = SIDE == 7 ? 192 : 32;
};

/* Where the rows come from, and their sizes. */
struct source {
    struct ls_cuda_unfold u;
    int high, wide;  /* of the output */
    int units, line; /* of a line: units that are made, and with those that stay 0 */
    int above;       /* rows of the first step that are above the image */
    int plane;       /* floats of a channel of a copied line */
    const struct ls_cuda_run *run;
    const struct ls_pixels *pixels;
};

/* Bytes of a line as it is copied: floats, or bytes from any place on. */
__host__ __device__ __forceinline__ int raw_bytes(const source &s)
{
    return CHANNELS * s.plane * 4 + 2 * UNIT;
}
template <int SIDE, int STRIDE> __host__ __device__ __forceinline__ int ring_bytes(const source &s)
{
    return window<SIDE, STRIDE>::SLOTS * STRIDE * s.line * UNIT;
}
template <int SIDE, int STRIDE> inline size_t rows_bytes(const source &s)
{
    return (size_t)ring_bytes<SIDE, STRIDE>(s) + 2 * STRIDE * (size_t)raw_bytes(s) + CHANNELS * 256 * 2;
}

/* Starts to copy `some` bytes of a unit; the others become 0. */
__device__ __forceinline__ void copy_unit(void *to, const void *from, int some)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(some)
                 : "memory");
}
__device__ __forceinline__ void copy_word(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}
/* Waits for the copies of this thread. */
__device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* A warpgroup makes, in order, the steps that output rows first .. last - 1 of the batch are computed from; at the
 * beginning of a sample these are TAPS, else one more for each row. */
template <typename T, int SIDE, int STRIDE> struct maker {
    using W = window<SIDE, STRIDE>;

    const source &s;
    char *ring, *raw;
    uint16_t *table; /* of bits of T */
    int t;
    int n, y;           /* sample and step that is read next */
    int all, left;      /* steps; those to be read */
    int turn, slot;     /* copies and slot of the step that becomes values next */
    const char *images; /* of the sample, or where pixels are bytes, the image it is cropped from; NULL: none */
    int crop_top = 0, crop_left = 0;
    bool flip = false;
    /* Where the pixels of a step's lines begin in their copies; < 0: the line is outside of the image. */
    struct step {
        int at[STRIDE];
        bool flip;
    } here, coming;

    /* A barrier of the warpgroup, which is number `group` of its block, too. */
    __device__ __forceinline__ maker(const source &of, char *room, int thread, int first, int last, int group = 0)
        : s(of), ring(room), t(thread), turn(0), slot(0)
    {
        raw = ring + ring_bytes<SIDE, STRIDE>(s);
        table = (uint16_t *)(raw + 2 * STRIDE * raw_bytes(s));
        n = first / s.high;
        y = first - n * s.high;
        all = left = first < last ? last - first + ((last - 1) / s.high - n + 1) * (W::TAPS - 1) : 0;
        for (int i = t; i < W::SLOTS * STRIDE * s.line; i += GROUP)
            *(uint4 *)(ring + i * UNIT) = make_uint4(0, 0, 0, 0);
        if (s.pixels)
            for (int i = t; i < CHANNELS * 256; i += GROUP)
                table[i] = (uint16_t)narrow_pair<T>(__ldg(&s.pixels->table[0][0] + i), 0);
        if (left > 0)
            begin_sample();
        read_step();
        next_turn();
        copies_wait();
        group_sync(group);
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

    __device__ __forceinline__ char *copy_of(int which, int line) const
    {
        return raw + (which * STRIDE + line) * raw_bytes(s);
    }

    /* Starts to copy a row of the image. Returns where its pixels begin. */
    __device__ __forceinline__ int copy_row(int row, int line) const
    {
        char *const to = copy_of(turn ^ 1, line);
        const int width = s.u.width, thread = t ^ line * (GROUP / 2); /* lines begin with other threads */
        if (!s.pixels) {
            const char *from = images + row * width * 4;
            const bool whole = width % 4 == 0 && (uintptr_t)images % UNIT == 0;
            for (int c = 0; c < CHANNELS; c++, from += s.u.height * width * 4)
                if (whole)
#pragma unroll 1
                    for (int i = thread; i < width / 4; i += GROUP)
                        copy_unit(to + c * s.plane * 4 + i * UNIT, from + i * UNIT, UNIT);
                else
#pragma unroll 1
                    for (int i = thread; i < width; i += GROUP)
                        copy_word(to + (c * s.plane + i) * 4, from + i * 4);
            return 0;
        }
        const int from_width = __ldg(&s.pixels->from_width), from_height = __ldg(&s.pixels->from_height);
        const bool reflect = __ldg(&s.pixels->reflect), grey = s.u.from_channels == 1;
        row += crop_top;
        if (reflect)
            row = ls_reflect(row, from_height);
        const bool black = (unsigned)row >= (unsigned)from_height;
        if (!grey && !black && crop_left >= 0 && crop_left + width <= from_width) {
            const char *const from = images + (row * from_width + crop_left) * CHANNELS;
            const int before = (int)((uintptr_t)from & (UNIT - 1)), end = before + width * CHANNELS;
#pragma unroll 1
            for (int i = thread * UNIT; i < end; i += GROUP * UNIT)
                copy_unit(to + i, from - before + i, min(UNIT, end - i));
            return before;
        }
#pragma unroll 1
        for (int x = thread; x < width; x += GROUP) {
            const int column = reflect ? ls_reflect(crop_left + x, from_width) : crop_left + x,
                      pixel = row * from_width + column;
            const bool there = !black && (unsigned)column < (unsigned)from_width;
            const uint8_t *const at = (const uint8_t *)images + (grey ? pixel : pixel * CHANNELS);
#pragma unroll
            for (int c = 0; c < CHANNELS; c++)
                to[x * CHANNELS + c] = there ? (char)__ldg(at + (grey ? 0 : c)) : 0;
        }
        return 0;
    }

    /* Starts to copy the next step, if there is one. */
    __device__ __forceinline__ void read_step()
    {
        if (left == 0)
            return;
        if (y == s.high + W::TAPS - 1) {
            n++;
            y = 0;
            begin_sample();
        }
#pragma unroll
        for (int l = 0; l < STRIDE; l++) {
            const int row = y * STRIDE - s.above + l;
            coming.at[l] = images && (unsigned)row < (unsigned)s.u.height ? copy_row(row, l) : -1;
        }
        coming.flip = flip;
        y++;
        left--;
    }

    __device__ __forceinline__ void next_turn()
    {
        here = coming;
        turn ^= 1;
    }

    /* Makes values of the step before, in the next slot. Before a barrier, callers wait for copies and call written(). */
    __device__ __forceinline__ void put_step()
    {
        char *const to = ring + slot * STRIDE * s.line * UNIT;
        const int from = s.pixels && here.flip ? (s.u.width - 1) * CHANNELS : 0,
                  next = s.pixels && here.flip ? -CHANNELS : CHANNELS;
#pragma unroll 1
        for (int u = t; u < s.units; u += GROUP) {
            const int x = u * STRIDE - s.u.pad;
            uint32_t v[STRIDE][2][CHANNELS]; /* bytes, then bits of T */
            bool there[STRIDE][2];
#pragma unroll
            for (int k = 0; k < 2 * STRIDE; k++) {
                const int l = k / 2, i = k % 2;
                there[l][i] = here.at[l] >= 0 && (unsigned)(x + i) < (unsigned)s.u.width;
                const char *const at = copy_of(turn, l);
                if (s.pixels) {
                    const uint8_t *const b = (const uint8_t *)at + here.at[l] + from + (x + i) * next;
#pragma unroll
                    for (int c = 0; c < CHANNELS; c++)
                        v[l][i][c] = there[l][i] ? b[c] : 0;
                } else {
                    const float *const f = (const float *)at + x + i;
#pragma unroll
                    for (int c = 0; c < CHANNELS; c++)
                        v[l][i][c] = narrow_pair<T>(there[l][i] ? f[c * s.plane] : 0, 0);
                }
            }
            if (s.pixels)
#pragma unroll
                for (int k = 0; k < 2 * STRIDE * CHANNELS; k++) {
                    uint32_t &one = v[k / CHANNELS / 2][k / CHANNELS % 2][k % CHANNELS];
                    one = table[k % CHANNELS * 256 + one];
                }
#pragma unroll
            for (int l = 0; l < STRIDE; l++) {
                uint32_t word[4];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    word[i * 2] = there[l][i] ? v[l][i][0] | v[l][i][1] << 16 : 0;
                    word[i * 2 + 1] = there[l][i] ? v[l][i][2] : 0;
                }
                *(uint4 *)(to + (l * s.line + u) * UNIT) = make_uint4(word[0], word[1], word[2], word[3]);
            }
        }
        slot = slot + 1 == W::SLOTS ? 0 : slot + 1;
        next_turn();
    }
};

/* Units of the ring before row `row` of a window whose first step is in slot `slot`. */
template <int SIDE, int STRIDE> __device__ __forceinline__ int units_before(const source &s, int slot, int row)
{
    using W = window<SIDE, STRIDE>;
    const int in = slot + (row + W::LEAD) / STRIDE;
    return ((in < W::SLOTS ? in : in - W::SLOTS) * STRIDE + (row + W::LEAD) % STRIDE) * s.line;
}

/* The slot `steps` further. */
template <int SLOTS> __device__ __forceinline__ int slot_behind(int slot, int steps)
{
    return slot + steps < SLOTS ? slot + steps : slot + steps - SLOTS;
}

} // namespace ls_stem

#endif
