/* Max pooling: geometry and algorithms, for plain pooling and for the pooling fused with batch normalisation.
 *
 * Backward gathers. For stride 2 with kernels of 2x2 and 3x3 it works on quads, which are 2x2 pixels that the same
 * windows contain:
 *
 *   K = 2   quad q is window q
 *   K = 3   quad q is rows (columns) 1 and 2 of window q, and row 2 is also row 0 of window q + 1
 *
 * With K = 3, four windows give the gradient of the four pixels of a quad. A thread processes a vertical strip of
 * quads and has two of these windows from the quad before. Other poolings work pixel by pixel. */
#ifndef LS_BACKEND_CUDA_KERNELS_POOL_POOL_CUH
#define LS_BACKEND_CUDA_KERNELS_POOL_POOL_CUH

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/pool/duo.cuh"

namespace ls_pool
{

using namespace ls_device;

static constexpr int POOL_THREADS = 256;

/* Sizes of x and y in pixels, and the numbering of work items: (sample, strip, column), the column fastest. */
struct windows {
    int h, w, oh, ow, octets;
    int kernel_h, kernel_w, stride_h, stride_w, pad_t, pad_l;
    int down, first, first_column; /* places per column; number of the first place, and of the first column */
    int strip;                     /* places per strip */
    divider by_columns, by_strips;
    uint32_t items;
};

struct place {
    int n, from, to, column; /* places from .. to - 1 */
};

__device__ __forceinline__ place place_of(const windows &win, uint32_t item)
{
    place p;
    uint32_t column = item, strip = divide_rest(column, win.by_columns);
    p.n = (int)divide_rest(strip, win.by_strips);
    p.column = win.first_column + (int)column;
    p.from = win.first + (int)strip * win.strip;
    p.to = min(p.from + win.strip, win.first + win.down);
    return p;
}

/* The kernel size, 2 or 3, where the quad kernels support the pooling, else 0. */
inline int fast_kernel(int kernel_h, int kernel_w, int stride_h, int stride_w, int pad_t, int pad_l)
{
    bool fast = kernel_h == kernel_w && (kernel_h == 2 || kernel_h == 3) && stride_h == 2 && stride_w == 2 &&
                pad_t >= 0 && pad_t <= 1 && pad_l >= 0 && pad_l <= 1;
    return fast ? kernel_h : 0;
}

/* S is struct ls_cuda_bn or struct ls_cuda_pool. */
template <typename S> windows windows_of(const S *s)
{
    windows win = {};
    win.h = (int)s->x.h;
    win.w = (int)s->x.w;
    win.oh = (int)s->y.h;
    win.ow = (int)s->y.w;
    win.octets = (int)(s->x.c / LS_CUDA_LANE);
    win.kernel_h = s->kernel_h;
    win.kernel_w = s->kernel_w;
    win.stride_h = s->stride_h;
    win.stride_w = s->stride_w;
    win.pad_t = s->pad_t;
    win.pad_l = s->pad_l;
    return win;
}

inline void number(windows *win, int64_t n, int down, int columns, int strip)
{
    const int strips = (int)ceil_div(down, strip);
    win->down = down;
    win->strip = strip;
    win->by_columns = divider_of(columns);
    win->by_strips = divider_of(strips);
    win->items = (uint32_t)(n * strips * columns);
}

/* Each place is an output. */
inline void number_outputs(windows *win, int64_t n, int strip)
{
    number(win, n, win->oh, win->ow, strip);
}

/* Each place is a quad. */
inline void number_quads(windows *win, int K, int64_t n, int strip)
{
    /* K = 3 without padding: row 0 is the second row of quad -1. */
    win->first = K == 3 && win->pad_t == 0 ? -1 : 0;
    win->first_column = K == 3 && win->pad_l == 0 ? -1 : 0;
    int last = K == 3 ? (win->h + win->pad_t) / 2 - 1 : (win->h - 1 + win->pad_t) / 2;
    int last_column = K == 3 ? (win->w + win->pad_l) / 2 - 1 : (win->w - 1 + win->pad_l) / 2;
    number(win, n, last - win->first + 1, last_column - win->first_column + 1, strip);
}

/* Each place is a pixel. */
inline void number_pixels(windows *win, int64_t n)
{
    number(win, n, win->h, win->w, 1);
}

/* The first row (column) of quad q. */
template <int K> __device__ __forceinline__ int quad_row(const windows &win, int q)
{
    return 2 * q - win.pad_t + (K == 3);
}
template <int K> __device__ __forceinline__ int quad_column(const windows &win, int q)
{
    return 2 * q - win.pad_l + (K == 3);
}

__device__ __forceinline__ uint32_t pixel_row(const windows &win, int n, int y, int x)
{
    return ((uint32_t)n * win.h + y) * win.w + x;
}
__device__ __forceinline__ uint32_t output_row(const windows &win, int n, int oy, int ox)
{
    return ((uint32_t)n * win.oh + oy) * win.ow + ox;
}

/* The inputs of the gradient. dy2 and y (for the mask) may be NULL. */
struct source {
    const void *dy, *dy2, *y;
    const uint8_t *index;
    float top;
};

/* The gradient of one output, masked by y where MASKED, and the position in its window that receives it. */
template <typename T, bool MASKED> struct handed {
    octet<T> d;
    uint2 to;

    /* Reads output (oy, ox), or zeros where there is none. Does not read dy2. */
    __device__ __forceinline__ void fetch(const windows &win, const source &s, int n, int oy, int ox, int octet)
    {
        const bool there = oy >= 0 && oy < win.oh && ox >= 0 && ox < win.ow;
        const int64_t at = (int64_t)output_row(win, n, oy, ox) * win.octets + octet;
        d = zero_octet<T>();
        to = make_uint2(~0u, ~0u);
        if (there)
            d = load_shared<T>(s.dy, at);
        if (there)
            to = __ldg((const uint2 *)s.index + at);
        if constexpr (MASKED) {
            ls_device::octet<T> y = zero_octet<T>();
            if (there)
                y = load_shared<T>(s.y, at);
#pragma unroll
            for (int p = 0; p < 4; p++) {
                const float2 v = pair_of<T>(y, p), all = pair_of<T>(d, p);
                set_pair<T>(d, p, make_float2(act_passes(v.x, s.top) ? all.x : 0, act_passes(v.y, s.top) ? all.y : 0));
            }
        }
    }
};

/* Whether the gradient of channel i goes to position `pos` of the window. */
__device__ __forceinline__ bool goes_to(uint2 to, int i, int pos)
{
    const uint32_t word = i < 4 ? to.x : to.y, shift = 8 * (i % 4);
    return ((word ^ (uint32_t)pos << shift) & 0xffu << shift) == 0;
}

/* The windows that contain pixels of a quad. K = 2 uses only the first. K = 3 uses (q, r), (q, r + 1), (q + 1, r),
 * (q + 1, r + 1). */
template <typename T, int K, bool MASKED> struct quad {
    handed<T, MASKED> from[K == 3 ? 4 : 1];

    /* Call before the first place q of a strip. */
    __device__ __forceinline__ void begin(const windows &win, const source &s, int n, int q, int r, int octet)
    {
        if constexpr (K == 3)
            fetch(win, s, n, q - 1, r, octet);
    }
    /* Moves to place q: reads the windows that the previous place did not have. */
    __device__ __forceinline__ void fetch(const windows &win, const source &s, int n, int q, int r, int octet)
    {
        if constexpr (K == 3) {
            from[0] = from[2];
            from[1] = from[3];
            from[2].fetch(win, s, n, q + 1, r, octet);
            from[3].fetch(win, s, n, q + 1, r + 1, octet);
        } else {
            from[0].fetch(win, s, n, q, r, octet);
        }
    }
    /* The gradients of channels 2p and 2p + 1 of each pixel (row, column), in d[2 * row + column]. */
    __device__ __forceinline__ void pairs(int p, float2 (&d)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            d[i] = make_float2(0, 0);
        if constexpr (K == 2) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                hand(0, p, i, d[i]);
        } else {
            hand(0, p, 4, d[0]);
            hand(0, p, 5, d[1]);
            hand(1, p, 3, d[1]);
            hand(0, p, 7, d[2]);
            hand(2, p, 1, d[2]);
            hand(0, p, 8, d[3]);
            hand(1, p, 6, d[3]);
            hand(2, p, 2, d[3]);
            hand(3, p, 0, d[3]);
        }
    }
    /* Adds the gradient that window w gives to position pos. */
    __device__ __forceinline__ void hand(int w, int p, int pos, float2 &sum) const
    {
        const float2 d = pair_of<T>(from[w].d, p);
        if (goes_to(from[w].to, 2 * p, pos))
            sum.x += d.x;
        if (goes_to(from[w].to, 2 * p + 1, pos))
            sum.y += d.y;
    }
};

/* The gradient d of one pixel, for any kernel and stride. */
template <typename T>
__device__ __forceinline__ void gather_pixel(const windows &win, const source &s, int n, int y, int x, int octet,
                                             float (&d)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        d[i] = 0;
    const int below = y + win.pad_t, right = x + win.pad_l;
    const int oy0 = below < win.kernel_h ? 0 : (below - win.kernel_h) / win.stride_h + 1;
    const int ox0 = right < win.kernel_w ? 0 : (right - win.kernel_w) / win.stride_w + 1;
    for (int oy = oy0; oy < win.oh && oy * win.stride_h <= below; oy++)
        for (int ox = ox0; ox < win.ow && ox * win.stride_w <= right; ox++) {
            const int64_t at = (int64_t)output_row(win, n, oy, ox) * win.octets + octet;
            const uint2 to = __ldg((const uint2 *)s.index + at);
            float all[8], more[8], v[8];
            widen<T>(load_shared<T>(s.dy, at), all);
            if (s.dy2)
                widen<T>(load_shared<T>(s.dy2, at), more);
            if (s.y)
                widen<T>(load_shared<T>(s.y, at), v);
            const int pos = (below - oy * win.stride_h) * win.kernel_w + right - ox * win.stride_w;
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (goes_to(to, i, pos) && (!s.y || act_passes(v[i], s.top)))
                    d[i] += s.dy2 ? all[i] + more[i] : all[i];
        }
}

__device__ __forceinline__ uint2 pack_index(const int (&where)[8])
{
    return make_uint2(
        (uint32_t)where[0] | (uint32_t)where[1] << 8 | (uint32_t)where[2] << 16 | (uint32_t)where[3] << 24,
        (uint32_t)where[4] | (uint32_t)where[5] << 8 | (uint32_t)where[6] << 16 | (uint32_t)where[7] << 24);
}

/* Updates the maximum with `v` at `pos` if `there`. Of equal values the earlier one stays. NaN wins, so that it
 * propagates. */
__device__ __forceinline__ void challenge(float &best, int &where, bool there, float v, int pos)
{
    if (there && (v > best || v != v)) {
        best = v;
        where = pos;
    }
}

/* Forward over a vertical strip of outputs, for stride 2 and a kernel of K x K, 2 or 3. With K = 3 the last row of a
 * window is the first row of the next, so it is kept.
 *
 * F defines the pooled function of x. It must be monotonic: decreasing where f.flip[p] has the highest bit of a half
 * set (for channels 2p and 2p + 1), else increasing. The comparisons therefore use x, and only the maximum is
 * converted by f.of(p, v). With F::CLIPPED all negative results become 0, and the first of these counts as the
 * maximum. `won` receives the x of each maximum; optional. */
template <typename T, int K, typename F>
__device__ __forceinline__ void pool_strip(const windows &win, const place &at, int octet, const void *x, const F &f,
                                           void *y, uint8_t *index, void *won)
{
    constexpr int skip = K == 3; /* rows that the previous window has already read */
    const int left = at.column * 2 - win.pad_l;
    duo<T> carried[4];
    uint32_t carried_at[4];
    ls_device::octet<T> outside; /* a value that never wins */
#pragma unroll
    for (int p = 0; p < 4; p++) {
        carried[p] = lowest<T>();
        carried_at[p] = 0;
        set_duo<T>(outside, p, lowest<T>(), f.flip[p]);
    }
    bool column[K];
#pragma unroll
    for (int kx = 0; kx < K; kx++)
        column[kx] = left + kx >= 0 && left + kx < win.w;
    const int64_t down = (int64_t)win.w * win.octets;
    /* With K = 3 the iteration before the first output only fills `carried`. */
    for (int oy = at.from - skip; oy < at.to; oy++) {
        const int above = oy * 2 - win.pad_t + skip;
        const int64_t corner = (((int64_t)at.n * win.h + above) * win.w + left) * win.octets + octet;
        ls_device::octet<T> in[2][K];
#pragma unroll
        for (int ky = 0; ky < 2; ky++) {
            const bool line = above + ky >= 0 && above + ky < win.h && (!skip || ky == 1 || oy >= at.from);
#pragma unroll
            for (int kx = 0; kx < K; kx++) {
                in[ky][kx] = outside;
                if (line && column[kx])
                    in[ky][kx] = load_shared<T>(x, corner + ky * down + kx * win.octets);
            }
        }
        const uint32_t first = both(max(skip - above, 0) * K + max(-left, 0)); /* first position inside x */
        ls_device::octet<T> out, best_x;
        uint32_t where[4];
#pragma unroll
        for (int p = 0; p < 4; p++) {
            duo<T> row[2];
            uint32_t row_at[2];
#pragma unroll
            for (int ky = 0; ky < 2; ky++) {
                const int begin = (ky + skip) * K;
                duo<T> v[K];
#pragma unroll
                for (int kx = 0; kx < K; kx++)
                    v[kx] = duo_of<T>(in[ky][kx], p, f.flip[p]);
                row[ky] = larger<T>(v[0], v[1]);
                if constexpr (K == 3)
                    row[ky] = larger<T>(row[ky], v[2]);
                row_at[ky] = both(begin + K - 1);
#pragma unroll
                for (int kx = K - 2; kx >= 0; kx--)
                    row_at[ky] = where_equal<T>(v[kx], row[ky], both(begin + kx), row_at[ky]);
            }
            duo<T> best = larger<T>(row[0], row[1]);
            if (skip)
                best = larger<T>(carried[p], best);
            where[p] = where_equal<T>(row[0], best, row_at[0], row_at[1]);
            if (skip) {
                where[p] = where_equal<T>(carried[p], best, carried_at[p], where[p]);
                carried[p] = row[1];
                carried_at[p] = row_at[1] - both(2 * K);
            }
            set_duo<T>(best_x, p, best, f.flip[p]);
            const float2 value = f.of(p, pair_of<T>(best_x, p));
            set_pair<T>(out, p, value);
            if (F::CLIPPED) {
                const uint32_t mask = (value.x > 0 ? 0xffffu : 0) | (value.y > 0 ? 0xffff0000u : 0);
                where[p] = (where[p] & mask) | (first & ~mask);
            }
        }
        if (oy < at.from)
            continue;
        const int64_t to = (int64_t)output_row(win, at.n, oy, at.column) * win.octets + octet;
        store<T>(y, to, out);
        if (index)
            __stcs((uint2 *)index + to, pack_positions(where));
        if (won)
            store_once<T>(won, to, best_x);
    }
}

/* Forward for one output, any kernel and stride. f.all converts an octet of x, which starts at octet `from`, to the
 * pooled values. */
template <typename T, typename F>
__device__ __forceinline__ void pool_plainly(const windows &win, const place &at, int octet, const void *x, const F &f,
                                             void *y, uint8_t *index)
{
    const int top = at.from * win.stride_h - win.pad_t, left = at.column * win.stride_w - win.pad_l;
    float best[8];
    int where[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        best[i] = -INFINITY;
        where[i] = max(-top, 0) * win.kernel_w + max(-left, 0);
    }
    for (int iy = max(top, 0); iy < min(top + win.kernel_h, win.h); iy++)
        for (int ix = max(left, 0); ix < min(left + win.kernel_w, win.w); ix++) {
            const int64_t from = (int64_t)pixel_row(win, at.n, iy, ix) * win.octets + octet;
            float v[8];
            widen<T>(load_shared<T>(x, from), v);
            f.all(v, from);
#pragma unroll
            for (int i = 0; i < 8; i++)
                challenge(best[i], where[i], true, v[i], (iy - top) * win.kernel_w + ix - left);
        }
#pragma unroll
    for (int i = 0; i < 8; i++)
        best[i] = f.after(best[i]);
    const int64_t to = (int64_t)output_row(win, at.n, at.from, at.column) * win.octets + octet;
    store<T>(y, to, narrow<T>(best));
    if (index)
        *((uint2 *)index + to) = pack_index(where);
}

/* The grid (segments, y) for `items` items. Each block loops over items. There are at most `per_sm` blocks per
 * multiprocessor. */
inline dim3 grid_for(unsigned segments, uint32_t items, unsigned ty, int per_sm)
{
    int64_t wanted = ceil_div(items, ty), most = (int64_t)per_sm * multiprocessors() / segments;
    most = most < 1 ? 1 : most > 65535 ? 65535 : most;
    return dim3(segments, (unsigned)(wanted < 1 ? 1 : wanted < most ? wanted : most));
}

/* Block shape: up to 16 octets of a row along x, items along y. */
struct shape {
    dim3 grid, block;
};

inline shape shape_of(int octets, uint32_t items)
{
    shape s;
    const unsigned segments = (unsigned)ceil_div(octets, 16);
    s.block.x = (unsigned)ceil_div(octets, segments);
    s.block.y = POOL_THREADS / s.block.x;
    s.grid = grid_for(segments, items, s.block.y, 64);
    return s;
}

inline shape shape_of(const windows &win)
{
    return shape_of(win.octets, win.items);
}

} // namespace ls_pool

#endif
