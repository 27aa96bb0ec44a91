/* For stem_mapped.cu: how a line of x becomes dx in shared memory. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_STEM_MAPPED_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_STEM_MAPPED_CUH

#include "backend/cuda/kernels/conv/stem_gather.cuh"

namespace ls_stem
{

/* Of an octet: dx = scale * dz + slope * x + offset. */
struct factors {
    float scale[8], slope[8], offset[8];
};

/* A line of the pooled map in shared memory: dz, and which position of its window each value goes to. Behind the last window
 * there is one that hands on nothing. */
struct pooled_line {
    const char *dz, *to;
};

struct pooled_octet {
    uint4 dz;
    uint2 to;

    __device__ __forceinline__ void read(const pooled_line &line, int window, int octet)
    {
        dz = *(const uint4 *)(line.dz + window * BOX_ROW + octet * 16);
        to = *(const uint2 *)(line.to + window * (BOX_ROW / 2) + octet * 8);
    }
};

/* Adds channels 2p and 2p + 1 of dz where they go to the position whose number is in all bytes of `position`. */
template <typename T>
__device__ __forceinline__ void hand(const pooled_octet &from, uint32_t position, int p, float2 &sum)
{
    const uint32_t differs = (p < 2 ? from.to.x : from.to.y) ^ position, low = p % 2 * 16;
    float2 d;
    widen_pair<T>(p == 0 ? from.dz.x : p == 1 ? from.dz.y : p == 2 ? from.dz.z : from.dz.w, d.x, d.y);
    if (!(differs & 0xffu << low))
        sum.x += d.x;
    if (!(differs & 0xff00u << low))
        sum.y += d.y;
}

template <typename T> __device__ __forceinline__ void map_pair(octet<T> &x, int p, float2 d, const factors &f)
{
    const float2 v = pair_of<T>(x, p);
    d.x = fmaf(f.scale[2 * p], d.x, fmaf(f.slope[2 * p], v.x, f.offset[2 * p]));
    d.y = fmaf(f.scale[2 * p + 1], d.y, fmaf(f.slope[2 * p + 1], v.y, f.offset[2 * p + 1]));
    set_pair<T>(x, p, d);
}

constexpr uint32_t EACH = 0x01010101; /* in all bytes */

/* A line of x, of `wide` pixels, becomes dx. Windows are 3x3 with stride 2 and padding 1: pixels 2r and 2r + 1 are columns 1
 * and 2 of window r, and 2r + 1 is column 0 of window r + 1. `above`: the windows of which the line is row 1, or with TWO row
 * 2; `row`: 3 times the number of that row, in all bytes. `below`, with TWO: those of which it is row 0. A thread has an
 * octet of the pixels of some adjacent windows. */
template <typename T, int TILE, bool TWO>
__device__ __forceinline__ void map_line(char *tile, const pooled_line &above, uint32_t row, const pooled_line &below,
                                         int wide, int t, const factors &f)
{
    constexpr int WINDOWS = TILE / 2, STRIP = (WINDOWS + GROUP / 8 - 1) / (GROUP / 8);
    static_assert(WINDOWS % STRIP == 0, "whole strips");
    const int unit = t % 8, first = t / 8 * STRIP;
    if (first >= WINDOWS)
        return;
    pooled_octet here[2], next[2];
    here[0].read(above, first, unit);
    if (TWO)
        here[1].read(below, first, unit);
#pragma unroll
    for (int k = 0; k < STRIP; k++) {
        const int r = first + k;
        uint4 *const left = (uint4 *)(tile + unit_at(2 * r, unit, 8));
        uint4 *const right = (uint4 *)(tile + unit_at(2 * r + 1, unit, 8));
        octet<T> a, b;
        a.word[0] = *left;
        b.word[0] = *right;
        next[0].read(above, r + 1, unit);
        if (TWO)
            next[1].read(below, r + 1, unit);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            float2 da = make_float2(0, 0), db = make_float2(0, 0);
            hand<T>(here[0], row + EACH, p, da);
            hand<T>(here[0], row + 2 * EACH, p, db);
            hand<T>(next[0], row, p, db);
            if (TWO) {
                hand<T>(here[1], EACH, p, da);
                hand<T>(here[1], 2 * EACH, p, db);
                hand<T>(next[1], 0, p, db);
            }
            map_pair<T>(a, p, da, f);
            map_pair<T>(b, p, db, f);
        }
        *left = 2 * r < wide ? a.word[0] : make_uint4(0, 0, 0, 0);
        *right = 2 * r + 1 < wide ? b.word[0] : make_uint4(0, 0, 0, 0);
        here[0] = next[0];
        if (TWO)
            here[1] = next[1];
    }
}

} // namespace ls_stem

#endif
