/* The gradient by data of a large dense layer in chunks of rows, without a trip of the chunks' products through memory.
 *
 * A cluster of blocks computes a tile of dx, 64 * GROUPS samples by WIDE inputs; each block computes the product of one chunk.
 * One warp has the copy engine fill a ring of slices, 64 rows of the chunk each. Each warpgroup multiplies them for 64 samples.
 * Then every block lays its product out in shared memory and adds some rows of all products, which it reads from the other blocks
 * of the cluster. */
#include "backend/cuda/kernels/conv/tree.cuh"
#include "backend/cuda/kernels/conv/wgmma.cuh"

using namespace ls_wgmma;

namespace
{

constexpr int WIDE = 128, SLICE = 64, HIGH = 64; /* columns of a tile, rows of a slice, samples of a warpgroup */
constexpr int ROOM = 192 * 1024;                 /* the ring; then the product */
constexpr int STEP = WIDE + 8;                   /* floats from row to row of a product: rows begin in other banks */

struct task {
    struct ls_cuda_tree tree;
    int samples, in, out, chunk;
    void *parts;
};

template <int GROUPS> constexpr int slot_bytes = GROUPS *HIGH *BOX_ROW + WIDE *BOX_ROW;
template <int GROUPS> constexpr int ring_slots = ROOM / slot_bytes<GROUPS>;

__device__ __forceinline__ void barrier_init_for(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* What every thread of the cluster wrote before is visible to all of them behind it. */
__device__ __forceinline__ void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Four floats of the shared memory of another block of the cluster. */
__device__ __forceinline__ void load_remote(uint32_t at, int block, float (&v)[4])
{
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(there)
                 : "memory");
}

template <typename T, typename TO, int GROUPS, bool ALL>
__global__ void __launch_bounds__(GROUPS *GROUP + 32, 1)
    chunks(const __grid_constant__ CUtensorMap dy_map, const __grid_constant__ CUtensorMap w_map,
           const __grid_constant__ task m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ uint64_t barriers[2 * ring_slots<GROUPS>];
    constexpr int SLOTS = ring_slots<GROUPS>, SLOT = slot_bytes<GROUPS>, TILE = GROUPS * HIGH;
    uint32_t block, blocks;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    const int t = threadIdx.x, group = t / GROUP, lane = t % 32, warp = t / 32 % 4;
    const int column = (int)(blockIdx.x / blocks) * WIDE, sample = (int)blockIdx.y * TILE;
    const int row = (int)block * m.chunk, left = m.out - row;
    const int rows = (int)block >= m.tree.leaves ? 0 : left < m.chunk ? left : m.chunk;
    const int whole = rows / SLICE, rest = (rows % SLICE + 15) / 16, slices = whole + (rest > 0);

    const uint32_t ring = ((uint32_t)__cvta_generic_to_shared(room) + 1023) & ~1023u;
    const uint32_t full = (uint32_t)__cvta_generic_to_shared(barriers), empty = full + SLOTS * 8;
    if (t == 0) {
        for (int i = 0; i < SLOTS; i++) {
            barrier_init_for(full + i * 8, 1);
            barrier_init_for(empty + i * 8, GROUPS);
        }
        barriers_ready();
    }
    __syncthreads();

    float sum[WIDE / 2] = {};
    if (group == GROUPS) {
        for (int s = 0; s < slices && lane == 0; s++) {
            const int slot = s % SLOTS;
            const uint32_t at = ring + slot * SLOT, there = full + slot * 8;
            if (s >= SLOTS)
                barrier_wait(empty + slot * 8, (s / SLOTS - 1) & 1);
            barrier_expect(there, SLOT);
            copy_box(at, dy_map, row + s * SLICE, sample, there);
            for (int box = 0; box < WIDE / BOX_COLUMNS; box++)
                copy_box(at + TILE * BOX_ROW + box * SLICE * BOX_ROW, w_map, column + box * BOX_COLUMNS,
                         row + s * SLICE, there);
        }
        __syncwarp();
    } else {
        const bool leads = t % GROUP == 0;
        auto multiply_part = [&](int slot, int part, int add) {
            const uint32_t at = ring + slot * SLOT;
            multiply<T, WIDE, true>(sum, matrix_at(at + group * HIGH * BOX_ROW + part * 32, 16),
                                    matrix_at(at + TILE * BOX_ROW + part * 16 * BOX_ROW, SLICE * BOX_ROW), add);
        };
#pragma unroll 1
        for (int s = 0; s < whole; s++) {
            barrier_wait(full + s % SLOTS * 8, s / SLOTS & 1);
            products_begin();
#pragma unroll
            for (int part = 0; part < SLICE / 16; part++)
                multiply_part(s % SLOTS, part, s + part > 0);
            products_commit();
            if (s > 0) {
                products_wait<1>();
                if (leads)
                    barrier_arrive(empty + (s - 1) % SLOTS * 8);
            }
        }
        products_wait<0>();
        if (rest > 0)
            barrier_wait(full + whole % SLOTS * 8, whole / SLOTS & 1);
#pragma unroll 1
        for (int part = 0; part < rest; part++) {
            products_begin();
            multiply_part(whole % SLOTS, part, whole + part > 0);
            products_commit();
            products_wait<0>();
        }
    }
    __syncthreads(); /* the ring is free */
    float *const product = (float *)(room + (ring - (uint32_t)__cvta_generic_to_shared(room)));
    if (group < GROUPS) {
        float *const to = product + (group * HIGH + warp * 16 + lane / 4) * STEP + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < WIDE / 8; j++) {
            *(float2 *)(to + j * 8) = make_float2(sum[j * 4], sum[j * 4 + 1]);
            *(float2 *)(to + 8 * STEP + j * 8) = make_float2(sum[j * 4 + 2], sum[j * 4 + 3]);
        }
    }
    cluster_sync();

    /* A warp adds a row of the tile. */
    const int own = TILE / (int)blocks, from = (int)block * own;
    const int64_t quads = (int64_t)m.samples * m.in / 4;
    for (int r = from + t / 32; r < from + own; r += GROUPS * GROUP / 32 + 1) {
        if (sample + r >= m.samples || column + lane * 4 >= m.in)
            continue;
        float v[LS_CUDA_LEAVES][4] = {};
#pragma unroll
        for (int i = 0; i < LS_CUDA_LEAVES; i++)
            if (ALL || i < m.tree.leaves)
                load_remote(ring + (uint32_t)(r * STEP + lane * 4) * 4, i, v[i]);
        end_tree<TO, ALL>(m.tree, v, m.parts, ((int64_t)(sample + r) * m.in + column) / 4 + lane, quads);
    }
    cluster_sync(); /* others may read here until then */
#endif
}

template <typename T, typename TO, int GROUPS, bool ALL>
void launch(ls_cuda_stream s, const struct ls_cuda_chunks *c, const void *dy, const void *w, void *parts)
{
    auto kernel = chunks<T, TO, GROUPS, ALL>;
    const task m = {c->tree, (int)c->samples, (int)c->in, (int)c->out, (int)c->chunk, parts};
    CUtensorMap dy_map, w_map;
    if (!box_map(&dy_map, c->t, dy, c->samples, c->out, GROUPS * HIGH) ||
        !box_map(&w_map, c->t, w, c->out, c->in, SLICE))
        return;
    unsigned blocks = 1;
    while ((int)blocks < c->tree.leaves)
        blocks *= 2;
    const size_t bytes = ROOM + 1024;
    want_shared(kernel, bytes);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)ceil_div(c->in, WIDE) * blocks, (unsigned)ceil_div(c->samples, GROUPS * HIGH));
    config.blockDim = dim3(GROUPS * GROUP + 32);
    config.dynamicSmemBytes = bytes;
    config.stream = s;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, dy_map, w_map, m);
}

template <typename T, typename TO>
void choose(ls_cuda_stream s, const struct ls_cuda_chunks *c, const void *dy, const void *w, void *parts)
{
    const bool all = is_whole(c->tree);
    if (c->samples <= 64)
        (all ? launch<T, TO, 1, true> : launch<T, TO, 1, false>)(s, c, dy, w, parts);
    else if (c->samples <= 128)
        (all ? launch<T, TO, 2, true> : launch<T, TO, 2, false>)(s, c, dy, w, parts);
    else
        (all ? launch<T, TO, 4, true> : launch<T, TO, 4, false>)(s, c, dy, w, parts);
}

} // namespace

bool ls_cuda_chunks_can(enum ls_dtype t)
{
    return t != LS_F32 && ls_wgmma::can();
}

void ls_cuda_chunks(ls_cuda_stream s, const struct ls_cuda_chunks *c, const void *dy, const void *w, void *parts)
{
    LS_CUDA_BY_HALF(c->t, c->to == LS_F32 ? choose<T, float>(s, c, dy, w, parts) : choose<T, T>(s, c, dy, w, parts));
}
