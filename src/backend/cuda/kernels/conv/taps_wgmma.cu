/* A 3x3 convolution with stride 1 and one pixel of padding, or its gradient by data, for Hopper, with the sums of the
 * normalisation that reads its result.
 *
 * A tile is th x tw pixels of a sample. The copy engine fetches the pixels that its windows reach, (th + 2) x (tw + 2) of 64
 * channels, with zeros beyond the border. In shared memory they are rows of `pitch` = tw + 2 pixels, one after the other, and so
 * the input of a tap for all pixels of the tile begins some pixels further on: the tensor cores multiply each of the nine taps
 * straight from these pixels, and nothing is unfolded. The two pixels between a tile's rows are multiplied, too, and dropped.
 * Outputs (64) x pixels = weights * pixels, because the fewer rows a product has, the less shared memory it reads.
 *
 * A block has three warpgroups. The second and the third multiply, turn a finished tile and put it into shared memory. The first
 * takes it from there: it stores it and adds up the sums, while the next one is multiplied. A thread of those that multiply has the
 * copy engine refill what has been multiplied. They either
 *
 *   KEEPS      have different tiles, and the weights, 64 channels to 64, stay in shared memory, or
 *   otherwise  have the same tile and 64 outputs each, and the weights of two times 64 outputs pass through a ring.
 *
 * All sums have a fixed order. */
#include "backend/cuda/kernels/conv/taps_ends.cuh"

using namespace ls_taps;

namespace
{

/* --- multiplying -------------------------------------------------------------------------------------------------- */

/* Adds the bias to the sums of a tile, rounds them and puts them into shared memory, pixel by pixel; what lies between the rows
 * comes behind the last pixel. bias: of the warpgroup's channels; NULL: none. */
template <typename T, int TILE>
__device__ __forceinline__ void put_tile(float (&sum)[TILE / 2], const cut &by, const float *bias, uint32_t tile,
                                         int warp, int lane)
{
    if (bias) {
        const float low = bias[warp * 16 + lane / 4], high = bias[warp * 16 + lane / 4 + 8];
#pragma unroll
        for (int i = 0; i < TILE / 2; i++)
            sum[i] += i / 2 % 2 ? high : low;
    }
    const int unit = warp * 2 + lane / 8 % 2;
    int y = 0, x = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < TILE / 8; j += 2) {
        const int row = x < by.tw && y < by.th ? y * by.tw + x : by.th * by.tw;
        const uint32_t at = tile + unit_at(row, unit, 8);
        const float *const v = sum + j * 4;
        if (j + 1 < TILE / 8) {
            const uint32_t four[4] = {narrow_pair<T>(v[0], v[1]), narrow_pair<T>(v[2], v[3]),
                                      narrow_pair<T>(v[4], v[5]), narrow_pair<T>(v[6], v[7])};
            store_turned(at, four);
        } else {
            store_two_turned(at, narrow_pair<T>(v[0], v[1]), narrow_pair<T>(v[2], v[3]));
        }
        x += 16;
        if (x >= by.pitch) {
            x -= by.pitch;
            y++;
        }
    }
}

/* The products of a tap. */
template <typename T, int TILE, bool TURNED>
__device__ __forceinline__ void multiply_tap(float (&sum)[TILE / 2], uint32_t w, uint32_t x, bool first)
{
    products_begin();
#pragma unroll
    for (int part = 0; part < BOX_COLUMNS / 16; part++)
        ls_taps::multiply<T, TILE, TURNED>(
            sum, TURNED ? matrix_at(w + part * 16 * BOX_ROW, WEIGHTS) : matrix_at(w + part * 32, 16),
            matrix_at(x + part * 32, 16), !first || part > 0);
    products_commit();
}

template <typename T, int TILE>
__device__ __forceinline__ void hand_over(float (&sum)[TILE / 2], const task &m, const barriers &b, const float *bias,
                                          uint32_t tile, int of, int t, turn &done)
{
    barrier_wait(b.tile_free + of * 8, done.parity ^ 1);
    put_tile<T, TILE>(sum, m.by, bias, tile, t / 32, t % 32);
    written();
    barrier_arrive(b.tile_there + of * 8);
    done.advance(1);
}

/* With the weights in shared memory. Tiles take the slots in turn; who has multiplied one has it refilled, with the tile that
 * comes as many later as there are slots. */
template <typename T, int TILE, bool TURNED>
__device__ __forceinline__ void multiply_kept(const maps &map, const task &m, const barriers &b, const float *bias,
                                              uint32_t weights, uint32_t pixels, uint32_t tile, int of, int t)
{
    fetcher<true, TURNED> next = {map, m, b, weights, pixels};
    turn slot, there, done;
    float sum[TILE / 2];
    if (of == 0 && t == 0) {
        barrier_expect(b.w_there, TAPS * WEIGHTS);
        for (int tap = 0; tap < TAPS; tap++)
            fetch_weights<true, TURNED>(map, m, weights + tap * WEIGHTS, 0, tap, b.w_there);
        for (int i = 0; i < m.at.slots; i++)
            next.fetch_pixels();
    }
    auto advance = [&]() {
        slot.advance(m.at.slots);
        there.advance(barriers_of<true>(m));
    };
    if (of == 1)
        advance();
    barrier_wait(b.w_there, 0);
#pragma unroll 1
    for (int i = of; tile_of<true>(i) < m.by.tiles; i += 2) {
        barrier_wait(b.x_there + there.at * 8, there.parity);
        const uint32_t x = pixels + slot.at * m.at.slot_bytes;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
            multiply_tap<T, TILE, TURNED>(sum, weights + tap * WEIGHTS, x + (tap / 3 * m.by.pitch + tap % 3) * BOX_ROW,
                                          tap == 0);
        products_wait<0>();
        products_done(sum);
        group_sync(1 + of);
        if (t == 0) {
            next.tile = i + m.at.slots;
            next.slot.at = slot.at;
            next.there.at = (there.at + m.at.slots) % barriers_of<true>(m);
            next.fetch_pixels();
        }
        advance();
        advance();
        hand_over<T, TILE>(sum, m, b, bias, tile, of, t, done);
    }
}

/* With weights that pass. A stage is free when both warpgroups have multiplied it; it is refilled two taps later, when that has
 * most likely happened. */
template <typename T, int TILE, bool TURNED>
__device__ __forceinline__ void multiply_passing(const maps &map, const task &m, const barriers &b, const float *bias,
                                                 uint32_t weights, uint32_t pixels, uint32_t tile, int of, int t)
{
    const int lane = t % 32;
    const bool leads = of == 0 && t == 0;
    fetcher<false, TURNED> next = {map, m, b, weights, pixels};
    turn slot, stage, done, free_slot, free_stage;
    float sum[TILE / 2];
    if (leads) {
        next.left = 0;
        for (int i = 0; tile_of<false>(i) < m.by.tiles; i++)
            next.left += m.slices * TAPS;
        for (int i = 0; i < m.at.slots; i++) {
            next.fetch_pixels();
            for (int s = 0; i == 0 && s < m.at.stages; s++)
                next.fetch_tap();
        }
    }
#pragma unroll 1
    for (int i = 0; tile_of<false>(i) < m.by.tiles; i++) {
        int stage_before = -1, slot_before = -1; /* read by the products before, which may still run */
#pragma unroll 1
        for (int s = 0; s < m.slices; s++) {
            barrier_wait(b.x_there + slot.at * 8, slot.parity);
            uint32_t x = pixels + slot.at * m.at.slot_bytes;
#pragma unroll 1
            for (int r = 0; r < 3; r++, x += m.by.pitch * BOX_ROW)
#pragma unroll
                for (int c = 0; c < 3; c++) {
                    barrier_wait(b.w_there + stage.at * 8, stage.parity);
                    multiply_tap<T, TILE, TURNED>(sum, weights + (stage.at * 2 + of) * WEIGHTS, x + c * BOX_ROW,
                                                  s + r + c == 0);
                    products_wait<1>();
                    if (lane == 0 && stage_before >= 0)
                        barrier_arrive(b.w_free + stage_before * 8);
                    if (lane == 0 && slot_before >= 0)
                        barrier_arrive(b.x_free + slot_before * 8);
                    stage_before = stage.at;
                    slot_before = -1;
                    stage.advance(m.at.stages);
                    if (leads && i + s + r + c / 2 > 0 && next.left > 0) { /* not of the first two taps */
                        barrier_wait(b.w_free + free_stage.at * 8, free_stage.parity);
                        free_stage.advance(m.at.stages);
                        next.fetch_tap();
                    }
                    if (c == 1 && r == 0 && leads && i + s > 0) {
                        barrier_wait(b.x_free + free_slot.at * 8, free_slot.parity);
                        free_slot.advance(m.at.slots);
                        next.fetch_pixels();
                    }
                }
            slot_before = slot.at;
            slot.advance(m.at.slots);
        }
        products_wait<0>();
        products_done(sum);
        if (lane == 0) {
            barrier_arrive(b.x_free + slot_before * 8);
            barrier_arrive(b.w_free + stage_before * 8);
        }
        hand_over<T, TILE>(sum, m, b, bias, tile, of, t, done);
    }
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

template <typename T, int TILE, bool KEEPS, bool TURNED, typename E>
__global__ void __launch_bounds__(THREADS, 1)
    convolve(const __grid_constant__ maps map, const __grid_constant__ task m, const __grid_constant__ E end)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ __align__(16) float numbers[3][2 * OUT];
    __shared__ uint64_t all_barriers[2 * MOST_STAGES + 3 * MOST_SLOTS + 6];
    const int t = threadIdx.x, group = t / GROUP;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), weights = (start + 1023) & ~1023u;
    const uint32_t pixels = weights + m.at.stages * m.at.stage_bytes;
    const uint32_t tiles = pixels + m.at.slots * m.at.slot_bytes;
    const uint32_t stages = (uint32_t)__cvta_generic_to_shared(all_barriers), slots = stages + 2 * MOST_STAGES * 8;
    const uint32_t ends = slots + 3 * MOST_SLOTS * 8;
    const barriers b = {stages,   stages + MOST_STAGES * 8, slots, slots + 2 * MOST_SLOTS * 8, ends, ends + 16,
                        ends + 32};
    if (t == 0) {
        constexpr int WARPS = 8; /* that read what the copy engine brought */
        for (int i = 0; i < MOST_STAGES; i++) {
            barrier_init(b.w_there + i * 8, 1);
            barrier_init(b.w_free + i * 8, WARPS);
        }
        for (int i = 0; i < 3 * MOST_SLOTS; i++)
            barrier_init(b.x_there + i * 8, i < 2 * MOST_SLOTS ? 1 : WARPS);
        for (int i = 0; i < 2; i++) {
            barrier_init(b.tile_there + i * 8, GROUP);
            barrier_init(b.tile_free + i * 8, 1);
            barrier_init(b.other_there + i * 8, 1);
        }
        barriers_ready();
    }
    if (t < (KEEPS ? 1 : 2) * OUT) {
        float of[3] = {};
        end.numbers((int)blockIdx.x * (KEEPS ? 1 : 2) * OUT + t, of);
        for (int k = 0; k < (E::READS ? 3 : 1); k++)
            numbers[k][t] = of[k];
    }
    __syncthreads();
    const int of = group - 1;
    const uint32_t tile = tiles + of * m.at.tile_bytes;
    const float *const bias = E::READS ? NULL : numbers[0] + (KEEPS ? 0 : of * OUT);
    if (group == 0)
        end_all<KEEPS>(map, m, b, end, numbers, room + (tiles - start), room + (pixels - start), t);
    else if (KEEPS)
        multiply_kept<T, TILE, TURNED>(map, m, b, bias, weights, pixels, tile, of, t % GROUP);
    else
        multiply_passing<T, TILE, TURNED>(map, m, b, bias, weights, pixels, tile, of, t % GROUP);
#endif
}

/* --- launching ----------------------------------------------------------------------------------------------------- */

constexpr int LEAST_PITCH = 16; /* put_tile goes on by 16 pixels */

bool keeps(const struct ls_cuda_taps *c)
{
    return c->x.c == OUT && c->out == OUT;
}

int tiles_of(bool keeps_weights)
{
    return keeps_weights ? 4 : 3;
}

/* slots 0: there is no room. */
places places_of(bool keeps_weights, int pixels, int th, int tw)
{
    const int64_t pitch = tw + 2, rows = (th + 2) * pitch, read = 2 * pitch + 2 + pixels;
    places at = {TAPS, 2, (keeps_weights ? 1 : 2) * WEIGHTS, (int)rounded_up((rows > read ? rows : read) * BOX_ROW),
                 (int)rounded_up((th * tw + 1) * BOX_ROW)};
    const int64_t left = MOST_ROOM - 1024 - tiles_of(keeps_weights) * (int64_t)at.tile_bytes;
    if (keeps_weights) {
        const int64_t slots = (left - at.stages * at.stage_bytes) / at.slot_bytes;
        at.slots = slots < 2 ? 0 : (int)(slots < MOST_SLOTS ? slots : MOST_SLOTS);
        return at;
    }
    const int64_t stages = (left - at.slots * at.slot_bytes) / at.stage_bytes;
    at.stages = (int)(stages < MOST_STAGES ? stages : MOST_STAGES);
    at.slots = stages < LEAST_STAGES ? 0 : at.slots;
    return at;
}

/* The best way to cut a map into tiles of `pixels` pixels; tiles 0: there is none. */
cut cut_of(const struct ls_cuda_taps *c, int pixels)
{
    cut best = {};
    for (int tw = LEAST_PITCH - 2; tw <= c->x.w && tw < pixels && tw <= 254; tw++) {
        const int pitch = tw + 2, most = (pixels - tw) / pitch + 1;
        for (int th = 1; th <= most && th <= c->x.h && th <= 254; th++) {
            const int64_t across = ceil_div(c->x.w, tw), down = ceil_div(c->x.h, th);
            const int tiles = (int)(c->x.n * across * down);
            if (places_of(keeps(c), pixels, th, tw).slots > 0 && (best.tiles == 0 || tiles <= best.tiles))
                best = {th, tw, pitch, tiles, divider_of(tw), divider_of(across), divider_of(down)};
        }
    }
    return best;
}

/* The share of the products that count. */
double share_of(const struct ls_cuda_taps *c, int pixels)
{
    const cut by = cut_of(c, pixels);
    return by.tiles == 0 ? 0 : (double)(c->x.n * c->x.h * c->x.w) / ((double)by.tiles * pixels);
}

int pixels_of(const struct ls_cuda_taps *c)
{
    return keeps(c) ? 120 : share_of(c, 208) >= share_of(c, 224) ? 208 : 224;
}

template <typename T, int TILE, bool KEEPS, bool TURNED, typename E>
void launch(ls_cuda_stream s, const struct ls_cuda_taps *c, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
            const void *x, const void *w, const E &end)
{
    auto kernel = convolve<T, TILE, KEEPS, TURNED, E>;
    const cut by = cut_of(c, TILE);
    const task m = {by,
                    places_of(KEEPS, TILE, by.th, by.tw),
                    (int)c->x.h,
                    (int)c->x.w,
                    (int)(c->x.c / BOX_COLUMNS),
                    (int)(c->out / 8),
                    (int)(TURNED ? c->out : c->x.c),
                    run,
                    b->scratch};
    maps map;
    const void *const other = end.other();
    auto pixels = [&](CUtensorMap *to, const void *of, int64_t channels, int border) {
        return pixels_map(to, b->t, of, c->x.n, c->x.h, c->x.w, channels, by.th + 2 * border, by.tw + 2 * border);
    };
    if (!pixels(&map.x, x, c->x.c, 1) || !pixels(&map.y, end.target(), c->out, 0) ||
        !pixels(&map.other, other ? other : x, other ? c->out : c->x.c, 0) ||
        !box_map(&map.w, b->t, w, TURNED ? c->x.c : c->out, TAPS * m.tap_columns, TURNED || KEEPS ? OUT : 2 * OUT))
        return;
    const size_t room = 1024 + (size_t)m.at.stages * m.at.stage_bytes + (size_t)m.at.slots * m.at.slot_bytes +
                        (size_t)tiles_of(KEEPS) * m.at.tile_bytes;
    want_shared(kernel, room);
    const int64_t columns = KEEPS ? 1 : c->out / (2 * OUT), most = multiprocessors() / columns;
    const int64_t wanted = KEEPS ? ceil_div(by.tiles, 2) : by.tiles, down = most < 1 ? 1 : most;
    kernel<<<dim3((unsigned)columns, (unsigned)(wanted < down ? wanted : down)), THREADS, room, s>>>(map, m, end);
}

template <typename T, bool TURNED, typename E>
void choose(ls_cuda_stream s, const struct ls_cuda_taps *c, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
            const void *x, const void *w, const E &end)
{
    const int pixels = pixels_of(c);
    if (keeps(c))
        launch<T, 120, true, TURNED, E>(s, c, b, run, x, w, end);
    else if (pixels == 208)
        launch<T, 208, false, TURNED, E>(s, c, b, run, x, w, end);
    else
        launch<T, 224, false, TURNED, E>(s, c, b, run, x, w, end);
}

} // namespace

bool ls_cuda_taps_can(const struct ls_cuda_taps *c, const struct ls_cuda_bn *b, bool residual)
{
    constexpr double worth = 0.75;
    const bool shape = keeps(c) || (c->x.c % BOX_COLUMNS == 0 && c->out % (2 * OUT) == 0 &&
                                    c->out / (2 * OUT) * sizeof(unsigned) <= LS_CUDA_BN_ZEROS);
    return has_wgmma() && b->t != LS_F32 && shape && c->x.n * c->x.h * c->x.w < INT32_MAX &&
           !small_enough(b, residual) && ls_act_clips(b->act) && share_of(c, pixels_of(c)) >= worth;
}

void ls_cuda_taps_stats(ls_cuda_stream s, const struct ls_cuda_taps *c, const struct ls_cuda_bn *b,
                        const struct ls_cuda_run *run, const void *x, const void *w, const float *bias, void *y,
                        float *mean, float *rstd, float *stat)
{
    LS_CUDA_BY_HALF(b->t, const forward_end<T> end = {{y, b->eps, mean, rstd, stat}, bias};
                    choose<T, false>(s, c, b, run, x, w, end));
}

void ls_cuda_taps_sums(ls_cuda_stream s, const struct ls_cuda_taps *c, const struct ls_cuda_bn *b,
                       const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g)
{
    const float top = act_top(b->act);
    LS_CUDA_BY_HALF(b->t, if (b->act == LS_ACT_NONE)
                              choose<T, true>(s, c, b, run, x, w, backward_end<T, MASK_NONE>{{*g, top, {}}});
                    else choose<T, true>(s, c, b, run, x, w, backward_end<T, MASK_X>{{*g, top, {}}}));
}
