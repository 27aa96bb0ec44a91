/* Weights for oneDNN's products in bf16, which read two neighbours of the depth as a pair: by inputs forward, by results back to
 * the inputs. oneDNN's own reorder from f32 takes three to four times as long, which at small batches was a third of a step. */
#include "backend/onednn/kernels/dense_tiles.h"
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/table.h"

#ifdef LS_DENSE_TILES

enum { BLOCK = B * B };

static E *place_of(const struct ls_pairs *a, int64_t block)
{
    int64_t tap = block % a->taps, in = block / a->taps % a->ins, out = block / a->taps / a->ins;
    return (E *)a->to + (a->ins_first ? (in * a->outs + out) * a->taps + tap : block) * BLOCK;
}

/* [in][out] to [in / 2][out][2] */
static void pairs_of_inputs(const float *from, E *to)
{
    for (int i = 0; i < B; i += 2)
        _mm512_storeu_si512(to + i * B, (__m512i)side_by_side(vloadf(from + i * B), vloadf(from + (i + 1) * B)));
}

/* Two blocks, [in][out] to [out / 2][in][2]. The eight pairs of a row of each make one vector. */
static void pairs_of_results(const float *from, const float *second, E *to, E *second_to)
{
    vf lanes[B];
    for (int i = 0; i < B; i++)
        lanes[i] = neighbours(vloadf(from + i * B), vloadf(second + i * B));
    transpose_lanes(lanes);
    for (int i = 0; i < B / 2; i++) {
        _mm512_storeu_si512(to + i * 2 * B, (__m512i)lanes[i]);
        _mm512_storeu_si512(second_to + i * 2 * B, (__m512i)lanes[B / 2 + i]);
    }
}

static void pairs(const struct ls_pairs *a)
{
    int64_t blocks = a->outs * a->ins * a->taps;
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < blocks; block += 2) {
        int64_t second = block + 1 < blocks ? block + 1 : block;
        const float *from = a->from + block * BLOCK, *second_from = a->from + second * BLOCK;
        if (a->of_results) {
            pairs_of_results(from, second_from, place_of(a, block), place_of(a, second));
        } else {
            pairs_of_inputs(from, place_of(a, block));
            pairs_of_inputs(second_from, place_of(a, second));
        }
    }
}

void LS_KERNEL_NAME(fill_pairs)(struct ls_kernels *k)
{
    k->pairs = pairs;
}

#else
void LS_KERNEL_NAME(fill_pairs)(struct ls_kernels *k)
{
    (void)k; /* f32 needs none, and oneDNN has no bf16 without AVX-512 */
}
#endif
