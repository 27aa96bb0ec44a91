/* 1bit: sends the sign of each value and two means for every 512 values. One is the mean of the values >= 0, the
 * other the mean of the rest (Seide et al. 2014, CNTK's 1-bit SGD). The difference between a value and its mean is
 * kept as feedback and added at the next call.
 *
 *   B1  Over any number of calls, the sum of the decoded values and the feedback is the sum of the inputs, up to f32
 *       rounding.
 *   B2  When one of 512 values is infinite or NaN, all 512 decode to NaN and leave no feedback. A run that diverges
 *       shows it, and a run that skips such a step is not damaged.
 *
 * On the wire, every 512 values are the f32 mean of the rest, the f32 mean of the values >= 0, and one bit per
 * value, lowest bit first, in as many words of 32 bits as needed. */
#include "comm/codec.h"
#include "sync/compress/lanes.h"

#include <math.h>
#include <stdbool.h>

enum { CHUNK = 512, WORDS = CHUNK / 32, HEAD = 8, CHUNK_BYTES = HEAD + WORDS * 4 };

static size_t bytes(size_t count)
{
    size_t rest = count % CHUNK;
    return count / CHUNK * CHUNK_BYTES + (rest ? HEAD + (rest + 31) / 32 * 4 : 0);
}

/* Bit i is lane i of the mask. */
INLINE uint32_t gather_bits(vi mask)
{
#if defined(__AVX__)
    return (uint32_t)_mm256_movemask_ps((__m256)mask);
#elif defined(__SSE2__)
    __m128 half[2];
    memcpy(half, &mask, sizeof mask);
    return (uint32_t)_mm_movemask_ps(half[0]) | (uint32_t)_mm_movemask_ps(half[1]) << 4;
#else
    uint32_t bits = 0;
    for (int i = 0; i < LANES; i++)
        bits |= (uint32_t)(mask[i] & 1) << i;
    return bits;
#endif
}
/* Lanes whose bit is set get yes, the others get no. */
INLINE vf spread(uint32_t bits, vf yes, vf no)
{
    const vu lane = {1, 2, 4, 8, 16, 32, 64, 128};
    return (vf)pick((lane & bits) != 0, (vu)yes, (vu)no);
}

/* feedback already holds input + feedback for CHUNK values. The values from n on are zero. */
INLINE void encode_chunk(float *feedback, size_t n, uint32_t words[WORDS], float mean[2])
{
    vf sum[2] = {{0}, {0}};
    int above = 0;
    for (int w = 0; w < WORDS; w++) {
        uint32_t bits = 0;
        for (int i = 0; i < 32; i += LANES) {
            vf x = load(feedback + 32 * w + i);
            vi up = x >= 0.0f;
            sum[1] += (vf)(up & (vi)x);
            sum[0] += (vf)(~up & (vi)x); /* a NaN is not >= 0 */
            bits |= gather_bits(up) << i;
        }
        words[w] = bits;
        above += __builtin_popcount(words[w]);
    }
    for (size_t i = n; i < CHUNK; i++) { /* the padding was counted as >= 0 */
        words[i / 32] &= ~(1u << i % 32);
        above--;
    }
    int below = (int)n - above;
    mean[0] = below ? fold(sum[0]) / (float)below : 0.0f;
    mean[1] = above ? fold(sum[1]) / (float)above : 0.0f;
    bool whole = isfinite(mean[0]) && isfinite(mean[1]);
    if (!whole)
        mean[0] = mean[1] = NAN;
    vf high = vset(mean[1]), low = vset(mean[0]);
    for (size_t i = 0; i < CHUNK; i += LANES) {
        vf keep = load(feedback + i) - spread(words[i / 32] >> i % 32, high, low);
        store(feedback + i, whole ? keep : (vf){0});
    }
}

static void encode(const float *values, float *feedback, size_t count, void *wire)
{
    char *out = wire;
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t n = count - first < CHUNK ? count - first : CHUNK;
        float *kept = feedback + first;
        float padded[CHUNK];
        uint32_t words[WORDS];
        float mean[2];
        if (n == CHUNK) {
            for (size_t i = 0; i < CHUNK; i += LANES)
                store(kept + i, load(kept + i) + load(values + first + i));
            encode_chunk(kept, CHUNK, words, mean);
        } else {
            for (size_t i = 0; i < CHUNK; i++)
                padded[i] = i < n ? kept[i] + values[first + i] : 0.0f;
            encode_chunk(padded, n, words, mean);
            memcpy(kept, padded, n * sizeof *kept);
        }
        memcpy(out, mean, HEAD);
        memcpy(out + HEAD, words, (n + 31) / 32 * 4);
        out += CHUNK_BYTES;
    }
}

INLINE void decode_into(const void *wire, size_t count, float *values, bool add)
{
    const char *in = wire;
    for (size_t first = 0; first < count; first += CHUNK, in += CHUNK_BYTES) {
        size_t n = count - first < CHUNK ? count - first : CHUNK, i = 0;
        float *out = values + first, mean[2];
        uint32_t words[WORDS];
        memcpy(mean, in, HEAD);
        memcpy(words, in + HEAD, (n + 31) / 32 * 4);
        vf high = vset(mean[1]), low = vset(mean[0]);
        for (; i + LANES <= n; i += LANES) {
            vf x = spread(words[i / 32] >> i % 32, high, low);
            store(out + i, add ? load(out + i) + x : x);
        }
        if (i < n) {
            vf x = spread(words[i / 32] >> i % 32, high, low);
            store_some(out + i, add ? load_some(out + i, n - i) + x : x, n - i);
        }
    }
}

static void decode(const void *wire, size_t count, float *values)
{
    decode_into(wire, count, values, false);
}

static void decode_add(const void *wire, size_t count, float *values)
{
    decode_into(wire, count, values, true);
}

extern const struct ls_codec LS_HERE(ls_codec_1bit);
const struct ls_codec LS_HERE(ls_codec_1bit) = {.name = "1bit",
                                                .feedback = true,
                                                .fills_padding = true,
                                                .bytes = bytes,
                                                .encode = encode,
                                                .decode = decode,
                                                .decode_add = decode_add};
