/* What the kernels of stem_wgmma.cu and stem_gather.cu share: a block's rows, and the sizes of both. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_STEM_WGMMA_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_STEM_WGMMA_CUH

#include "backend/cuda/kernels/conv/stem_rows.cuh"

namespace ls_stem
{

constexpr int OUT = 64, FEWEST_ROWS = 4; /* outputs of a block; rows of the output that a block has at least */
constexpr size_t MOST_ROOM = 225 * 1024; /* shared memory of a block */

struct task {
    source from;
    int rows, out, pieces; /* of the output: rows of all samples; channels as stored; tiles in a row */
    const void *w;
    const float *bias;
    float top;
    bool clips;
    float *scratch;
};

/* The rows of a block. */
struct range {
    int first, last;
};
__device__ __forceinline__ range rows_of(int rows)
{
    return {(int)((int64_t)rows * blockIdx.x / gridDim.x), (int)((int64_t)rows * (blockIdx.x + 1) / gridDim.x)};
}

/* The row of a block's planes that a tap reads. */
template <int SLOTS> __device__ __forceinline__ int slot_of(int base, int tap)
{
    return base + tap < SLOTS ? base + tap : base + tap - SLOTS;
}

/* --- sizes ------------------------------------------------------------------------------------------------------- */

/* The tile with the fewest pixels beyond the row; the wider one of two that are equal. */
inline int tile_of(const struct ls_cuda_stem *c)
{
    int best = 0;
    for (int tile : {128, 112, 64})
        if (!best || ceil_div(c->y.w, tile) * tile < ceil_div(c->y.w, best) * best)
            best = tile;
    return best;
}

template <int SIDE>
task task_of(const struct ls_cuda_stem *c, const struct ls_cuda_run *run, const struct ls_pixels *pixels)
{
    task m = {};
    source &s = m.from;
    s.u = c->u;
    s.high = (int)c->y.h;
    s.wide = (int)c->y.w;
    s.pitch = (int)ceil_div(c->y.w, 16) * 16;
    s.pairs = ((s.wide - 1) * c->u.stride_w + c->u.columns + 1) / 2;
    s.line = s.pairs * 2 * CHANNELS;
    s.by_pairs = divider_of(s.pairs);
    s.run = run;
    s.pixels = pixels;
    m.rows = (int)(c->y.n * c->y.h);
    m.out = (int)c->y.c;
    m.pieces = (int)ceil_div(c->y.w, tile_of(c));
    return m;
}

/* Shared memory of a block with `buffers` tiles. A product reads whole tiles of the last plane, too. */
template <int SIDE> size_t room_of(const struct ls_cuda_stem *c, int buffers)
{
    const task m = task_of<SIDE>(c, NULL, NULL);
    const int tile = tile_of(c);
    return 1024 + (size_t)buffers * tile * BOX_ROW + rows_bytes<SIDE>(m.from) +
           (size_t)(m.pieces * tile > m.from.pitch ? m.pieces * tile - m.from.pitch : 0) * 16;
}

/* Blocks for each 64 outputs, with `room` bytes each. */
inline unsigned blocks_of(const struct ls_cuda_stem *c, size_t room, int per_sm)
{
    const size_t fit = 228 * 1024 / (room + 1024); /* the system takes 1 KiB of each block's */
    const int64_t rows = ceil_div(c->y.n * c->y.h, FEWEST_ROWS), groups = ceil_div(c->y.c, OUT);
    int64_t most = (int64_t)multiprocessors() * (fit < (size_t)per_sm ? (int64_t)fit : per_sm) / groups;
    most = most < 1 ? 1 : most;
    return (unsigned)(rows < most ? rows : most);
}

inline int side_of(const struct ls_cuda_stem *c)
{
    return c->kernel > 1 ? 7 : 3;
}

inline size_t room_by_side(const struct ls_cuda_stem *c, int buffers)
{
    return side_of(c) == 7 ? room_of<7>(c, buffers) : room_of<3>(c, buffers);
}

/* Calls the function with the window and the tile, as types. */
template <typename F> void by_shape(const struct ls_cuda_stem *c, F call)
{
    const auto by_tile = [&](auto side) {
        switch (tile_of(c)) {
        case 64:
            return call(side, std::integral_constant<int, 64>());
        case 112:
            return call(side, std::integral_constant<int, 112>());
        default:
            return call(side, std::integral_constant<int, 128>());
        }
    };
    if (side_of(c) == 7)
        by_tile(std::integral_constant<int, 7>());
    else
        by_tile(std::integral_constant<int, 3>());
}

} // namespace ls_stem

#endif
