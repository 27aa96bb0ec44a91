#include "data/image/planes_vbmi.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#define VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))
enum { AT_ONCE = 64, BYTES = 3 * AT_ONCE };

bool ls_vbmi(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vbmi");
}

/* Which of 192 bytes goes where, so that the values are in order after they were put together (put_together). */
struct order {
    uint8_t from[AT_ONCE];
    uint64_t behind; /* the bytes that come from the last 64 */
};

static void make_order(int channel, bool flip, struct order *o)
{
    o->behind = 0;
    for (int at = 0; at < AT_ONCE; at++) {
        int pixel = at % 16 / 4 * 16 + at / 16 * 4 + at % 4;
        o->from[at] = (uint8_t)(3 * (flip ? AT_ONCE - 1 - pixel : pixel) + channel);
        o->behind |= (uint64_t)(o->from[at] >= 128) << at;
    }
}

/* The bytes of the table: all first bytes, all second ones, ... */
VBMI static inline void load_table(const float table[256], __m512i bytes[4][4])
{
    uint8_t apart[4][256];
    for (int v = 0; v < 256; v++) {
        uint32_t bits;
        memcpy(&bits, &table[v], sizeof bits);
        for (int j = 0; j < 4; j++)
            apart[j][v] = (uint8_t)(bits >> 8 * j);
    }
    for (int j = 0; j < 4; j++)
        for (int q = 0; q < 4; q++)
            bytes[j][q] = _mm512_loadu_si512(apart[j] + 64 * q);
}

/* Looks 64 bytes up in 256 bytes. `in`: the bytes whose place is in the second, third and fourth quarter. */
VBMI static inline __m512i look_up(__m512i at, const __mmask64 in[3], const __m512i bytes[4])
{
    __m512i found = _mm512_permutexvar_epi8(at, bytes[0]);
    found = _mm512_mask_permutexvar_epi8(found, in[0], at, bytes[1]);
    found = _mm512_mask_permutexvar_epi8(found, in[1], at, bytes[2]);
    return _mm512_mask_permutexvar_epi8(found, in[2], at, bytes[3]);
}

/* A mask of the first n bits; n may be out of range. */
static inline uint64_t first_bits(int n)
{
    return n <= 0 ? 0 : n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

/* stream: `out` is a multiple of 64 bytes, and `count` of 16. */
VBMI static inline void put_together(const __m512i f[4], bool stream, int count, float *out)
{
    __m512i low01 = _mm512_unpacklo_epi8(f[0], f[1]), high01 = _mm512_unpackhi_epi8(f[0], f[1]);
    __m512i low23 = _mm512_unpacklo_epi8(f[2], f[3]), high23 = _mm512_unpackhi_epi8(f[2], f[3]);
    __m512i whole[4] = {_mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
                        _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)};
    for (int i = 0; i < 4 && 16 * i < count; i++)
        if (stream)
            _mm512_stream_si512((__m512i *)(void *)(out + 16 * i), whole[i]);
        else
            _mm512_mask_storeu_epi32(out + 16 * i, (__mmask16)first_bits(count - 16 * i), whole[i]);
}

/* Up to 64 outputs. Of a mirrored row `pixels` is the source of output 63, which need not exist. */
VBMI static inline void fill(const uint8_t *pixels, bool flip, bool stream, int count, __m512i from, uint64_t behind,
                             const __m512i bytes[4][4], float *out)
{
    __m512i part[3], f[4];
    for (int i = 0; i < 3; i++) {
        uint64_t mask = flip ? ~first_bits(BYTES - 3 * count - 64 * i) : first_bits(3 * count - 64 * i);
        part[i] = _mm512_maskz_loadu_epi8(mask, pixels + 64 * i);
    }
    __m512i at = _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(part[0], from, part[1]), behind, from, part[2]);
    __m512i quarter = _mm512_and_si512(at, _mm512_set1_epi8((char)0xc0));
    __mmask64 in[3] = {_mm512_cmpeq_epi8_mask(quarter, _mm512_set1_epi8(0x40)),
                       _mm512_cmpeq_epi8_mask(quarter, _mm512_set1_epi8((char)0x80)),
                       _mm512_cmpeq_epi8_mask(quarter, _mm512_set1_epi8((char)0xc0))};
    for (int j = 0; j < 4; j++)
        f[j] = look_up(at, in, bytes[j]);
    put_together(f, stream, count, out);
}

VBMI void ls_vbmi_plane(const struct ls_vbmi_part *part, int channel, const float table[256])
{
    struct order order;
    __m512i bytes[4][4];
    make_order(channel, part->flip, &order);
    load_table(table, bytes);
    __m512i from = _mm512_loadu_si512(order.from);
    bool stream =
        part->past_cache && part->count % 16 == 0 && part->out_stride % 16 == 0 && (uintptr_t)part->out % 64 == 0;
    for (int y = 0; y < part->rows; y++) {
        const uint8_t *row = part->pixels + y * part->pixel_stride;
        float *out = part->out + (size_t)y * part->out_stride;
        for (int x = 0; x < part->count; x += AT_ONCE) {
            int count = part->count - x < AT_ONCE ? part->count - x : AT_ONCE;
            const uint8_t *pixels = part->flip ? row - 3 * (ptrdiff_t)(x + AT_ONCE - 1) : row + 3 * (ptrdiff_t)x;
            fill(pixels, part->flip, stream, count, from, order.behind, bytes, out + x);
        }
    }
    if (stream)
        _mm_sfence(); /* before another thread is told that the values are there */
}

#else

bool ls_vbmi(void)
{
    return false;
}

void ls_vbmi_plane(const struct ls_vbmi_part *part, int channel, const float table[256])
{
    (void)part, (void)channel, (void)table;
}

#endif
