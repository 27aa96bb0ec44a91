/* Tiles of taps_wgmma.cu: how a map is cut, what of shared memory they take, and how the copy engine brings it. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_TAPS_TILES_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_TAPS_TILES_CUH

#include "backend/cuda/kernels/conv/taps_wgmma.cuh"

namespace ls_taps
{

using namespace ls_wgmma;

constexpr int OUT = 64, TAPS = 9, WEIGHTS = OUT * BOX_ROW, THREADS = 3 * GROUP, OCTETS = OUT / 8, TY = GROUP / OCTETS;
constexpr int MOST_SLOTS = 4, LEAST_STAGES = 4, MOST_STAGES = 9;

/* How a map is cut. A sample has by_across.by * by_down.by tiles, the last of a row and of a column may reach beyond the map. */
struct cut {
    int th, tw, pitch, tiles;
    divider by_width, by_across, by_down;
};

/* Shared memory: weights in `stages` boxes, or pairs of boxes; pixels in `slots`; a finished tile of each warpgroup, and as many
 * tiles of the normalisation's x as fetch ahead. */
struct places {
    int stages, slots, stage_bytes, slot_bytes, tile_bytes;
};

struct task {
    cut by;
    places at;
    int h, w, slices, octets; /* of the map; of 64 input channels; of a pixel of the result */
    int tap_columns;          /* channels of a tap in the weights' memory */
    const struct ls_cuda_run *run;
    float *scratch;
};

struct maps {
    CUtensorMap x, w, y, other; /* other: x of the normalisation */
};

struct pixel {
    int n, y, x;
};

/* The first pixel of a tile. Tiles are visited from the last to the first (bn.cuh). */
__device__ __forceinline__ pixel first_pixel(const cut &by, int tile)
{
    uint32_t x = (uint32_t)(by.tiles - 1 - tile), n = divide(x, by.by_across);
    x -= n * by.by_across.by;
    const uint32_t up = n;
    n = divide(up, by.by_down);
    return {(int)n, (int)(up - n * by.by_down.by) * by.th, (int)x * by.tw};
}

/* Tile `i` of this block; those of a block that KEEPS its weights belong to its two warpgroups in turn. */
template <bool KEEPS> __device__ __forceinline__ int tile_of(int i)
{
    return KEEPS ? (i / 2 * (int)gridDim.y + (int)blockIdx.y) * 2 + i % 2 : i * (int)gridDim.y + (int)blockIdx.y;
}

/* --- fetching ---------------------------------------------------------------------------------------------------- */

struct barriers {
    uint32_t w_there, w_free, x_there, x_free, tile_there, tile_free, other_there;
};

template <bool KEEPS, bool TURNED>
__device__ __forceinline__ void fetch_weights(const maps &map, const task &m, uint32_t to, int slice, int tap,
                                              uint32_t barrier)
{
    constexpr int BOXES = KEEPS ? 1 : 2;
    const int across = blockIdx.x * BOXES * OUT;
    if (!TURNED)
        copy_box(to, map.w, tap * m.tap_columns + slice * BOX_COLUMNS, across, barrier);
    else
        for (int b = 0; b < BOXES; b++)
            copy_box(to + b * WEIGHTS, map.w, (TAPS - 1 - tap) * m.tap_columns + across + b * OUT, slice * BOX_COLUMNS,
                     barrier);
}

/* Barriers of the slots. Where warpgroups have slots in turn, one of them may come to a slot before the other has waited for what
 * is in it. So each slot has two barriers, in turn: that of its next tile has then no phase that is over and could be taken for
 * the one to come. */
template <bool KEEPS> __device__ __forceinline__ int barriers_of(const task &m)
{
    return KEEPS ? 2 * m.at.slots : m.at.slots;
}

/* What is fetched next. One thread of a block uses it, or with KEEPS one of each warpgroup. */
template <bool KEEPS, bool TURNED> struct fetcher {
    const maps &map;
    const task &m;
    const barriers &b;
    uint32_t weights, pixels;
    int tile, slice = 0;         /* of the pixels */
    int tap = 0, deep = 0, left; /* of the weights; left: how many taps are to come */
    turn slot, there, stage;

    __device__ __forceinline__ void fetch_pixels(void)
    {
        const int of = tile_of<KEEPS>(tile);
        if (of >= m.by.tiles)
            return;
        const pixel p = first_pixel(m.by, of);
        const uint32_t barrier = b.x_there + there.at * 8;
        barrier_expect(barrier, (m.by.th + 2) * m.by.pitch * BOX_ROW);
        copy_pixels(pixels + slot.at * m.at.slot_bytes, map.x, slice * BOX_COLUMNS, p.x - 1, p.y - 1, p.n, barrier);
        slot.advance(m.at.slots);
        there.advance(barriers_of<KEEPS>(m));
        if (++slice == m.slices) {
            slice = 0;
            tile++;
        }
    }
    __device__ __forceinline__ void fetch_tap(void)
    {
        if (left == 0)
            return;
        left--;
        barrier_expect(b.w_there + stage.at * 8, 2 * WEIGHTS);
        fetch_weights<KEEPS, TURNED>(map, m, weights + stage.at * 2 * WEIGHTS, deep, tap, b.w_there + stage.at * 8);
        stage.advance(m.at.stages);
        if (++tap == TAPS) {
            tap = 0;
            deep = deep + 1 == m.slices ? 0 : deep + 1;
        }
    }
};

} // namespace ls_taps

#endif
