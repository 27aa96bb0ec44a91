/* What the kernels of stem_wgmma.cu and stem_gather.cu share: a block's rows, and the sizes of both. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_STEM_WGMMA_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_STEM_WGMMA_CUH

#include "backend/cuda/kernels/conv/stem_rows.cuh"

namespace ls_stem
{

constexpr int OUT = 64, FEWEST_ROWS = 4; /* outputs of a block; rows of the output that a block has at least */
constexpr int BUFFERS = 2;               /* tiles of the result, or of its gradient, in shared memory */
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

template <int SIDE, int STRIDE>
task task_of(const struct ls_cuda_stem *c, const struct ls_cuda_run *run, const struct ls_pixels *pixels)
{
    using W = window<SIDE, STRIDE>;
    task m = {};
    source &s = m.from;
    m.rows = (int)(c->y.n * c->y.h);
    m.out = (int)c->y.c;
    m.pieces = (int)ceil_div(c->y.w, tile_of(c));
    s.u = c->u;
    s.high = (int)c->y.h;
    s.wide = (int)c->y.w;
    s.units = s.wide + (OCTETS - 1) * W::APART;
    s.line = m.pieces * tile_of(c) + (OCTETS - 1) * W::APART; /* products read whole tiles */
    s.above = c->u.border - W::SHIFT + W::LEAD;
    s.plane = (c->u.width + 3) / 4 * 4;
    s.run = run;
    s.pixels = pixels;
    return m;
}

/* Shared memory of a block. */
template <int SIDE, int STRIDE> size_t room_of(const struct ls_cuda_stem *c)
{
    return 1024 + (size_t)BUFFERS * tile_of(c) * BOX_ROW +
           rows_bytes<SIDE, STRIDE>(task_of<SIDE, STRIDE>(c, NULL, NULL).from);
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

/* Calls the function with the window's side and stride, as types. */
template <typename F> auto by_window(const struct ls_cuda_stem *c, F call)
{
    using one = std::integral_constant<int, 1>;
    using two = std::integral_constant<int, 2>;
    using three = std::integral_constant<int, 3>;
    return c->kernel > 1        ? call(std::integral_constant<int, 7>(), two())
           : c->u.stride_w == 2 ? call(three(), two())
                                : call(three(), one());
}

inline size_t room_by_window(const struct ls_cuda_stem *c)
{
    return by_window(c, [&](auto side, auto stride) { return room_of<side(), stride()>(c); });
}

/* The same with the tile, too. */
template <typename F> void by_shape(const struct ls_cuda_stem *c, F call)
{
    by_window(c, [&](auto side, auto stride) {
        switch (tile_of(c)) {
        case 64:
            return call(side, stride, std::integral_constant<int, 64>());
        case 112:
            return call(side, stride, std::integral_constant<int, 112>());
        default:
            return call(side, stride, std::integral_constant<int, 128>());
        }
    });
}

} // namespace ls_stem

#endif
