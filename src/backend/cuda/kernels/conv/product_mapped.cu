/* The second pass of a batch normalisation, forward or backward, together with the product that reads its result, which is
 * otherwise written and then read again. The result is also stored, for the gradient of the weights:
 *
 *   forward    y = act(bn x + more), more being a residual or another bn; out = y * w, and the statistics of out
 *   backward   dx = scale * dz + slope * x + offset; out = dx * w is dy of the next bn_bwd, and ends as that one's sums
 *
 * The kernel is that of product_wgmma.cu with a change of each slice before it is multiplied: the copy engine fetches the
 * slice of both inputs, the warpgroup computes the result in its place, and the copy engine stores it while the tensor cores
 * multiply it. A block computes all columns, so that each slice is changed once. */
#include "backend/cuda/kernels/conv/product_ends.cuh"
#include "backend/cuda/kernels/conv/wgmma.cuh"

using namespace ls_wgmma;
using namespace ls_product;

namespace
{

constexpr int SLICE = HIGH * BOX_ROW, SLOT = 2 * SLICE, MOST_RING = 8;
constexpr int UNITS = 4; /* of a slice, for each thread */

/* --- changes --------------------------------------------------------------------------------------------------- */

/* Where a unit stands in the map: its index in octets, and whether it counts. */
struct spot {
    int64_t at;
    bool inside, counts;
};

/* Parameters of all channels lie in shared memory, one after the other. */
[[maybe_unused]] __device__ __forceinline__ void load_parameters(const float *from, int octet, float (&v)[8])
{
    const float4 a = ((const float4 *)from)[octet * 2], b = ((const float4 *)from)[octet * 2 + 1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

/* CLIPS: with an activation; then the mask is kept. TWINS: more is another bn's x. */
template <typename T, bool CLIPS, bool TWINS> struct normalisation {
    static constexpr int PARAMETERS = TWINS ? 6 : 3;
    struct ls_cuda_bn_twin a, b;
    float top;
    uint8_t *kept;

    __device__ __forceinline__ void begin(float *to, int channels, int channel, bool inside, int) const
    {
        to[channel] = inside ? a.mean[channel] : 0;
        to[channels + channel] = inside ? __fmul_rn(a.gamma[channel], a.rstd[channel]) : 0;
        to[2 * channels + channel] = inside ? a.beta[channel] : 0;
        if (TWINS) {
            to[3 * channels + channel] = inside ? b.mean[channel] : 0;
            to[4 * channels + channel] = inside ? __fmul_rn(b.gamma[channel], b.rstd[channel]) : 0;
            to[5 * channels + channel] = inside ? b.beta[channel] : 0;
        }
    }
    __device__ __forceinline__ void change(octet<T> (&x)[UNITS], const octet<T> (&more)[UNITS],
                                           const spot (&spots)[UNITS], const float *params, int channels,
                                           int octet) const
    {
        float mean[8], scale[8], beta[8], mean_b[8], scale_b[8], beta_b[8];
        load_parameters(params, octet, mean);
        load_parameters(params + channels, octet, scale);
        load_parameters(params + 2 * channels, octet, beta);
        if (TWINS) {
            load_parameters(params + 3 * channels, octet, mean_b);
            load_parameters(params + 4 * channels, octet, scale_b);
            load_parameters(params + 5 * channels, octet, beta_b);
        }
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            float v[8], w[8];
            uint32_t bits = 0;
            widen<T>(x[u], v);
            widen<T>(more[u], w);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float z = normalised(v[i], mean[i], scale[i], beta[i]);
                v[i] = act_of<CLIPS>(z + (TWINS ? normalised(w[i], mean_b[i], scale_b[i], beta_b[i]) : w[i]), top);
                bits |= CLIPS && act_passes(v[i], top) ? 1u << i : 0;
            }
            x[u] = narrow<T>(v);
            if (CLIPS && spots[u].inside)
                __stcs(kept + spots[u].at, (uint8_t)bits);
        }
    }
};

/* x, and more is dz. */
template <typename T> struct gradient {
    static constexpr int PARAMETERS = 3;
    struct ls_cuda_bn_grad g;

    __device__ __forceinline__ void begin(float *to, int channels, int channel, bool inside, int count) const
    {
        const float share = count > 0 ? 1 / (float)count : 0, rstd = inside ? g.rstd[channel] : 0;
        const float scale = inside ? __fmul_rn(g.gamma[channel], rstd) : 0;
        const float slope = inside ? -scale * rstd * g.dgamma[channel] * share : 0;
        to[channel] = scale;
        to[channels + channel] = slope;
        to[2 * channels + channel] = inside ? -scale * g.dbeta[channel] * share - slope * g.mean[channel] : 0;
    }
    __device__ __forceinline__ void change(octet<T> (&x)[UNITS], const octet<T> (&more)[UNITS],
                                           const spot (&spots)[UNITS], const float *params, int channels,
                                           int octet) const
    {
        float scale[8], slope[8], offset[8];
        load_parameters(params, octet, scale);
        load_parameters(params + channels, octet, slope);
        load_parameters(params + 2 * channels, octet, offset);
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            float v[8], d[8];
            widen<T>(x[u], v);
            widen<T>(more[u], d);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = spots[u].counts ? fmaf(scale[i], d[i], fmaf(slope[i], v[i], offset[i])) : 0;
            x[u] = narrow<T>(v);
        }
    }
};

/* --- kernel ---------------------------------------------------------------------------------------------------- */

struct task {
    int rows, k, n, slices, ring;
    int64_t area;
    const struct ls_cuda_run *run;
    float *scratch;
};

struct maps {
    CUtensorMap x, more, result, w;
};

template <typename T, int WIDE, bool TURNED, int GROUPS, typename C, typename E>
__global__ void __launch_bounds__(GROUPS *GROUP, 1) product(const __grid_constant__ maps map, task m, C change, E end)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ typename E::affines params;
    __shared__ uint64_t barriers[1 + GROUPS * MOST_RING];
    constexpr int OCTETS = WIDE / 8, TY = GROUP / OCTETS, BOXES = WIDE / 64, THREADS = GROUPS * GROUP;
    const int x = threadIdx.x, t = threadIdx.y * OCTETS + x, group = t / GROUP;
    const int octets = m.n / 8, valid = (int)(m.run->valid * m.area), channels = m.slices * BOX_COLUMNS;
    const bool leads = t % GROUP == 0;

    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), w = (start + 1023) & ~1023u;
    const uint32_t rings = w + (uint32_t)m.slices * WIDE * BOX_ROW, ring = rings + group * m.ring * SLOT;
    const uint32_t tiles_at = rings + GROUPS * m.ring * SLOT, tile = tiles_at + group * HIGH * WIDE * 2;
    float *const of_channels = (float *)(room + (tiles_at - start) + GROUPS * HIGH * WIDE * 2);
    const uint32_t w_there = (uint32_t)__cvta_generic_to_shared(barriers), there = w_there + 8 + group * MOST_RING * 8;
    if (t == 0) {
        for (int i = 0; i < 1 + GROUPS * MOST_RING; i++)
            barrier_init(w_there + i * 8);
        barriers_ready();
    }
    if (threadIdx.y == 0 && x < octets)
        end.begin(params, x, x);
    for (int c = t; c < channels; c += THREADS)
        change.begin(of_channels, channels, c, c < m.k, valid);
    __syncthreads();

    const int tiles = (m.rows + HIGH - 1) / HIGH, workers = (int)gridDim.y * GROUPS;
    const int worker = (int)blockIdx.y * GROUPS + group, on = workers * HIGH;
    const int mine = worker < tiles ? (tiles - 1 - worker) / workers + 1 : 0;
    int first = worker * HIGH, next = first, deep = 0, left = mine * m.slices;
    auto fetch_next = [&](int at) {
        if (!leads || left == 0)
            return;
        barrier_expect(there + at * 8, SLOT);
        copy_box(ring + at * SLOT, map.x, deep * BOX_COLUMNS, next, there + at * 8);
        copy_box(ring + at * SLOT + SLICE, map.more, deep * BOX_COLUMNS, next, there + at * 8);
        left--;
        if (++deep == m.slices) {
            deep = 0;
            next += on;
        }
    };
    if (t == 0) {
        barrier_expect(w_there, m.slices * WIDE * BOX_ROW);
        for (int s = 0; s < m.slices; s++)
            for (int b = 0; b < (TURNED ? BOXES : 1); b++)
                copy_box(w + s * WIDE * BOX_ROW + b * 64 * BOX_ROW, map.w, TURNED ? b * 64 : s * BOX_COLUMNS,
                         TURNED ? s * BOX_COLUMNS : 0, w_there);
    }
    for (int s = 0; s < m.ring; s++)
        fetch_next(s);
    barrier_wait(w_there, 0);

    float sums[2][8] = {};
    int at = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int done = 0; done < mine; done++, first += on) {
        float sum[WIDE / 2];
        int before = 0;
#pragma unroll 1
        for (int s = 0; s < m.slices; s++) {
            const uint32_t slot = ring + at * SLOT;
            char *const here = room + (slot - start);
            barrier_wait(there + at * 8, parity);
            {
                octet<T> in[UNITS], more[UNITS];
                spot spots[UNITS];
                const int unit = anew(t) % 8, row = anew(t) % GROUP / 8, octet = s * 8 + unit;
#pragma unroll
                for (int u = 0; u < UNITS; u++) {
                    const int number = first + row + u * 16;
                    in[u].word[0] = *(const uint4 *)(here + unit_at(row + u * 16, unit, 8));
                    more[u].word[0] = *(const uint4 *)(here + SLICE + unit_at(row + u * 16, unit, 8));
                    spots[u] = {(int64_t)number * (m.k / 8) + octet, number < m.rows && octet < m.k / 8,
                                number < valid};
                }
                change.change(in, more, spots, of_channels, channels, octet);
#pragma unroll
                for (int u = 0; u < UNITS; u++)
                    *(uint4 *)(here + unit_at(row + u * 16, unit, 8)) = in[u].word[0];
            }
            written();
            products_wait<0>(); /* of the slice before */
            group_sync(group);
            if (leads) {
                store_box(map.result, s * BOX_COLUMNS, first, slot);
                if (s > 0)
                    wait_stores<1>();
            }
            if (s > 0)
                fetch_next(before);
            products_begin();
#pragma unroll
            for (int part = 0; part < BOX_COLUMNS / 16; part++)
                multiply<T, WIDE, TURNED>(
                    sum, matrix_at(slot + part * 32, 16),
                    matrix_at(w + s * WIDE * BOX_ROW + part * (TURNED ? 16 * BOX_ROW : 32), TURNED ? 64 * BOX_ROW : 16),
                    s + part > 0);
            products_commit();
            before = at;
            if (++at == m.ring) {
                at = 0;
                parity ^= 1;
            }
        }
        products_wait<0>();
        group_sync(group); /* also: no thread reads the previous tile any more */
        if (leads)
            wait_stores<0>();
        fetch_next(before);
        lay_out_rows<T, WIDE>(sum, tile, t / 32 % 4, t % 32);
        group_sync(group);
        rows_read<E> rows;
        if (x < octets)
            end_tile<T, WIDE, TY, false>(end, room + (tile - start), {first, valid, m.rows, x, octets}, x,
                                         (int)threadIdx.y % TY, params, rows, sums[0], sums[1]);
    }
    __syncthreads();
    sum_rows(sums[0], sums[1], octets, m.scratch, (float *)(room + (w - start)), [&](int channel, double a, double b) {
        end.finish(channel, octets * 8, a, b, valid, m.run->stat_weight);
    });
#endif
}

/* --- launching --------------------------------------------------------------------------------------------------- */

constexpr int64_t MOST_ROOM = 225 * 1024; /* shared memory of a block, without what the kernel declares */

int64_t fixed_room(int64_t k, int wide, int groups, int parameters)
{
    const int64_t slices = ceil_div(k, BOX_COLUMNS);
    return 1024 + slices * wide * BOX_ROW + (int64_t)groups * HIGH * wide * 2 +
           slices * BOX_COLUMNS * parameters * (int64_t)sizeof(float);
}

int ring_of(int64_t k, int wide, int groups, int parameters)
{
    const int64_t ring = (MOST_ROOM - fixed_room(k, wide, groups, parameters)) / (groups * SLOT);
    return (int)(ring < MOST_RING ? ring : MOST_RING);
}

/* The most warpgroups that leave rings of 3 slices; 0: none. */
int groups_of(int64_t k, int wide, int parameters)
{
    for (int groups = 3; groups > 0; groups--)
        if (ring_of(k, wide, groups, parameters) >= 3)
            return groups;
    return 0;
}

struct operands {
    const void *x, *more;
    void *result;
    const void *w;
};

template <typename T, int WIDE, bool TURNED, int GROUPS, typename C, typename E>
void launch(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
            const struct ls_cuda_run *run, const operands &o, const C &change, const E &end)
{
    auto kernel = product<T, WIDE, TURNED, GROUPS, C, E>;
    const int ring = ring_of(p->k, WIDE, GROUPS, C::PARAMETERS), slices = (int)ceil_div(p->k, BOX_COLUMNS);
    const task m = {(int)p->rows, (int)p->k, (int)p->n, slices, ring, b->x.h * b->x.w, run, b->scratch};
    maps map;
    if (!box_map(&map.x, b->t, o.x, p->rows, p->k, HIGH) || !box_map(&map.more, b->t, o.more, p->rows, p->k, HIGH) ||
        !box_map(&map.result, b->t, o.result, p->rows, p->k, HIGH) ||
        !box_map(&map.w, b->t, o.w, TURNED ? p->k : p->n, TURNED ? p->n : p->k, TURNED ? BOX_COLUMNS : WIDE))
        return;
    const size_t room = (size_t)fixed_room(p->k, WIDE, GROUPS, C::PARAMETERS) + (size_t)GROUPS * ring * SLOT;
    static_assert(3 * SLOT >= GROUP * SUMS_ROOM, "room for the sums");
    want_shared(kernel, room);
    const int64_t tiles = ceil_div(p->rows, HIGH * GROUPS), most = multiprocessors();
    const dim3 block(WIDE / 8, GROUPS * GROUP / (WIDE / 8));
    /* sum_all takes the row blocks from y */
    kernel<<<dim3(1, (unsigned)(tiles < most ? tiles : most)), block, room, s>>>(map, m, change, end);
}

template <typename T, bool TURNED, typename C, typename E>
void choose(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
            const struct ls_cuda_run *run, const operands &o, const C &change, const E &end)
{
    const int groups = groups_of(p->k, p->n > 64 ? 128 : 64, C::PARAMETERS);
    if (p->n > 64)
        (groups == 3   ? launch<T, 128, TURNED, 3, C, E>
         : groups == 2 ? launch<T, 128, TURNED, 2, C, E>
                       : launch<T, 128, TURNED, 1, C, E>)(s, p, b, run, o, change, end);
    else
        (groups == 3   ? launch<T, 64, TURNED, 3, C, E>
         : groups == 2 ? launch<T, 64, TURNED, 2, C, E>
                       : launch<T, 64, TURNED, 1, C, E>)(s, p, b, run, o, change, end);
}

} // namespace

bool ls_cuda_mapped_can(const struct ls_cuda_product *p, const struct ls_cuda_bn *from, const struct ls_cuda_bn *b)
{
    const struct ls_cuda_product plain = {p->rows, p->k, p->n, p->turned, LS_CUDA_PRODUCT_WGMMA};
    return p->n <= 128 && !from->pool && ls_act_clips(from->act) && !small_enough(from, true) &&
           groups_of(p->k, p->n > 64 ? 128 : 64, 6) > 0 && ls_cuda_product_can(&plain, b, false);
}

void ls_cuda_mapped_stats(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *from,
                          const struct ls_cuda_mapped *f, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                          const void *w, void *out, float *mean, float *rstd, float *stat)
{
    const operands o = {f->twin[0].x, f->residual ? f->residual : f->twin[1].x, f->y, w};
    const float top = act_top(from->act);
    uint8_t *const kept = (uint8_t *)f->kept;
    LS_CUDA_BY_HALF(
        b->t, const statistics<T, false> end = {out, b->eps, mean, rstd, stat}; if (f->residual && kept)
            choose<T, false>(s, p, b, run, o, normalisation<T, true, false>{f->twin[0], f->twin[1], top, kept}, end);
        else if (f->residual)
            choose<T, false>(s, p, b, run, o, normalisation<T, false, false>{f->twin[0], f->twin[1], top, kept}, end);
        else if (kept)
            choose<T, false>(s, p, b, run, o, normalisation<T, true, true>{f->twin[0], f->twin[1], top, kept}, end);
        else choose<T, false>(s, p, b, run, o, normalisation<T, false, true>{f->twin[0], f->twin[1], top, kept}, end));
}

void ls_cuda_mapped_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn_grad *f,
                         const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *w,
                         const struct ls_cuda_bn_grad *g)
{
    const operands o = {f->x, f->dy, f->dx, w};
    const float top = act_top(b->act);
    LS_CUDA_BY_HALF(
        b->t, if (b->act == LS_ACT_NONE) choose<T, true>(s, p, b, run, o, gradient<T>{*f},
                                                         gradient_sums<T, MASK_NONE, EXTRA_NONE>{*g, top, {}});
        else choose<T, true>(s, p, b, run, o, gradient<T>{*f}, gradient_sums<T, MASK_X, EXTRA_NONE>{*g, top, {}}));
}
