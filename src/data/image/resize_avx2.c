#include "data/image/resize_avx2.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define LOW_BITS 14
#define LOW_MASK ((1 << LOW_BITS) - 1)
/* Pairs of rows that are blended with vectors; images that shrink more are left to the caller. */
#define MOST_PAIRS 16
#define HALF (1 << (LS_WEIGHT_BITS - 1))

bool ls_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

/* Pairs of taps that an output has at most. */
static int pairs_of(const struct ls_weights *w, int count)
{
    int most = 0;
    for (int i = 0; i < count; i++)
        most = w->length[i] > most ? w->length[i] : most;
    return (most + 1) / 2;
}

size_t ls_avx2_cut_bytes(int taps, int count)
{
    return (size_t)((taps + 1) / 2) * (size_t)((count + 1) / 2) * 64 + 64;
}

static uint32_t pair_of(int first, int second)
{
    return (uint32_t)first | (uint32_t)second << 16;
}

/* For two outputs and each pair of taps: 32 bytes of low parts, then 32 of high parts; 16 of these for each output, which are
 * the same 4 bytes for red, green, blue and a fourth value that is not used. */
void ls_avx2_cut(const struct ls_weights *w, int count, void *cut)
{
    int pairs = pairs_of(w, count);
    uint32_t *to = cut;
    memcpy(to, &pairs, sizeof pairs);
    to += 16;
    for (int i = 0; i < count; i++)
        for (int p = 0; p < pairs; p++) {
            const int *weight = w->weight + (size_t)i * (size_t)w->taps;
            int a = 2 * p < w->length[i] ? weight[2 * p] : 0, b = 2 * p + 1 < w->length[i] ? weight[2 * p + 1] : 0;
            uint32_t low = pair_of(a & LOW_MASK, b & LOW_MASK), high = pair_of(a >> LOW_BITS, b >> LOW_BITS);
            uint32_t *block = to + ((size_t)(i / 2) * (size_t)pairs + (size_t)p) * 16 + i % 2 * 4;
            for (int c = 0; c < 4; c++) {
                block[c] = low;
                block[8 + c] = high;
            }
        }
}

/* Adds the parts up and rounds. */
AVX2 static inline __m256i join(__m256i low, __m256i high)
{
    __m256i sum = _mm256_add_epi32(low, _mm256_slli_epi32(high, LOW_BITS));
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)), LS_WEIGHT_BITS);
}

AVX2 static inline __attribute__((always_inline)) int scale_row3(const uint8_t *row, int width,
                                                                 const struct ls_weights *w, const uint8_t *cut,
                                                                 int pairs, int count, uint8_t *out)
{
    /* red, green and blue of two pixels as pairs of 16 bits */
    const __m256i spread =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    int x = 0, last = 3 * width - 6 * (pairs - 1) - 16;
    for (; x + 1 < count && 3 * w->start[x + 1] <= last; x += 2, out += 6) {
        const uint8_t *a = row + 3 * (size_t)w->start[x], *b = row + 3 * (size_t)w->start[x + 1];
        __m256i low = _mm256_setzero_si256(), high = low;
        for (int p = 0; p < pairs; p++, cut += 64) {
            __m256i two = _mm256_inserti128_si256(
                _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(a + 6 * p))),
                _mm_loadu_si128((const __m128i *)(const void *)(b + 6 * p)), 1);
            two = _mm256_shuffle_epi8(two, spread);
            low = _mm256_add_epi32(low, _mm256_madd_epi16(two, _mm256_loadu_si256((const __m256i *)(const void *)cut)));
            high = _mm256_add_epi32(
                high, _mm256_madd_epi16(two, _mm256_loadu_si256((const __m256i *)(const void *)(cut + 32))));
        }
        __m256i sum = join(low, high);
        sum = _mm256_packus_epi32(sum, sum);
        sum = _mm256_packus_epi16(sum, sum);
        int first = _mm_cvtsi128_si32(_mm256_castsi256_si128(sum));
        int second = _mm_cvtsi128_si32(_mm256_extracti128_si256(sum, 1));
        memcpy(out, &first, 4);
        memcpy(out + 3, &second, 4);
    }
    return x;
}

AVX2 int ls_avx2_scale_row3(const uint8_t *row, int width, const struct ls_weights *w, const void *cut, int count,
                            uint8_t *out)
{
    int pairs;
    const uint8_t *from = (const uint8_t *)cut + 64;
    memcpy(&pairs, cut, sizeof pairs);
    switch (pairs) { /* loops of a known length */
    case 1:
        return scale_row3(row, width, w, from, 1, count, out);
    case 2:
        return scale_row3(row, width, w, from, 2, count, out);
    case 3:
        return scale_row3(row, width, w, from, 3, count, out);
    default:
        return scale_row3(row, width, w, from, pairs, count, out);
    }
}

AVX2 static inline __m128i load(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* Blends pairs of rows; of an odd number of rows the last one is taken twice, the second time with the weight 0. */
AVX2 static inline __attribute__((always_inline)) size_t blend(const uint8_t *rows, size_t stride, const int *weight,
                                                               int length, int pairs, size_t bytes, uint8_t *out)
{
    __m256i low[MOST_PAIRS], high[MOST_PAIRS];
    size_t at = 0;
    for (int p = 0; p < pairs; p++) {
        int a = weight[2 * p], b = 2 * p + 1 < length ? weight[2 * p + 1] : 0;
        low[p] = _mm256_set1_epi32((int)pair_of(a & LOW_MASK, b & LOW_MASK));
        high[p] = _mm256_set1_epi32((int)pair_of(a >> LOW_BITS, b >> LOW_BITS));
    }
    for (; at + 16 <= bytes; at += 16) {
        __m256i low0 = _mm256_setzero_si256(), low1 = low0, high0 = low0, high1 = low0;
        for (int p = 0; p < pairs; p++) {
            const uint8_t *row = rows + 2 * (size_t)p * stride + at;
            __m128i a = load(row), b = load(2 * p + 1 < length ? row + stride : row);
            __m256i front = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
            __m256i back = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
            low0 = _mm256_add_epi32(low0, _mm256_madd_epi16(front, low[p]));
            low1 = _mm256_add_epi32(low1, _mm256_madd_epi16(back, low[p]));
            high0 = _mm256_add_epi32(high0, _mm256_madd_epi16(front, high[p]));
            high1 = _mm256_add_epi32(high1, _mm256_madd_epi16(back, high[p]));
        }
        __m256i sums = _mm256_permute4x64_epi64(_mm256_packus_epi32(join(low0, high0), join(low1, high1)), 0xd8);
        __m128i narrow = _mm_packus_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        _mm_storeu_si128((__m128i *)(void *)(out + at), narrow);
    }
    return at;
}

AVX2 size_t ls_avx2_blend(const uint8_t *rows, size_t stride, const int *weight, int length, size_t bytes, uint8_t *out)
{
    int pairs = (length + 1) / 2;
    if (pairs > MOST_PAIRS)
        return 0;
    return pairs == 1   ? blend(rows, stride, weight, length, 1, bytes, out)
           : pairs == 2 ? blend(rows, stride, weight, length, 2, bytes, out)
                        : blend(rows, stride, weight, length, pairs, bytes, out);
}

#else

bool ls_avx2(void)
{
    return false;
}

size_t ls_avx2_cut_bytes(int taps, int count)
{
    (void)taps, (void)count;
    return 0;
}

void ls_avx2_cut(const struct ls_weights *w, int count, void *cut)
{
    (void)w, (void)count, (void)cut;
}

int ls_avx2_scale_row3(const uint8_t *row, int width, const struct ls_weights *w, const void *cut, int count,
                       uint8_t *out)
{
    (void)row, (void)width, (void)w, (void)cut, (void)count, (void)out;
    return 0;
}

size_t ls_avx2_blend(const uint8_t *rows, size_t stride, const int *weight, int length, size_t bytes, uint8_t *out)
{
    (void)rows, (void)stride, (void)weight, (void)length, (void)bytes, (void)out;
    return 0;
}

#endif
