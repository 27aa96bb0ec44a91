/* Operations on one vector of B floats, for the instruction set that the file is compiled for. */
#ifndef LS_KERNELS_SIMD_H
#define LS_KERNELS_SIMD_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define B 16
#else
#define B 8
#endif

typedef float vf __attribute__((vector_size(B * 4)));
typedef int32_t vi __attribute__((vector_size(B * 4)));
typedef uint32_t vu __attribute__((vector_size(B * 4)));
typedef uint16_t vh __attribute__((vector_size(B * 2)));
typedef uint8_t vb __attribute__((vector_size(B)));
typedef double vd __attribute__((vector_size(B * 8)));

INLINE vf vset(float x)
{
    return x - (vf){0};
}
INLINE vf vloadf(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void vstoref(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}
INLINE vf vpick(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
#if defined(__AVX512F__)
INLINE vf vmax(vf a, vf b)
{
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}
INLINE vf vmin(vf a, vf b)
{
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
}
/* x where test > 0, else 0. */
INLINE vf vkeep_positive(vf test, vf x)
{
    return (vf)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask((__m512)test, _mm512_setzero_ps(), _CMP_GT_OQ), (__m512)x);
}
INLINE vf vkeep_between(vf test, float high, vf x)
{
    __mmask16 m = _mm512_cmp_ps_mask((__m512)test, _mm512_setzero_ps(), _CMP_GT_OQ);
    return (vf)_mm512_maskz_mov_ps(_mm512_mask_cmp_ps_mask(m, (__m512)test, _mm512_set1_ps(high), _CMP_LT_OQ),
                                   (__m512)x);
}
/* x where index == k, else 0. */
INLINE vf vkeep_index(vi index, int k, vf x)
{
    return (vf)_mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask((__m512i)index, _mm512_set1_epi32(k)), (__m512)x);
}
/* Where x > best or x is NaN: best = x, index = k. */
INLINE void vtake_larger(vf *best, vi *index, vf x, int k)
{
    __mmask16 m = _mm512_cmp_ps_mask((__m512)x, (__m512)*best, _CMP_GT_OQ) |
                  _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    *best = (vf)_mm512_mask_mov_ps((__m512)*best, m, (__m512)x);
    *index = (vi)_mm512_mask_mov_epi32((__m512i)*index, m, _mm512_set1_epi32(k));
}
#else
INLINE vf vmax(vf a, vf b)
{
    return vpick(a > b, a, b);
}
INLINE vf vmin(vf a, vf b)
{
    return vpick(a < b, a, b);
}
INLINE vf vkeep_positive(vf test, vf x)
{
    return (vf)((test > 0.0f) & (vi)x);
}
INLINE vf vkeep_between(vf test, float high, vf x)
{
    return (vf)((test > 0.0f) & (test < high) & (vi)x);
}
INLINE vf vkeep_index(vi index, int k, vf x)
{
    return (vf)((index == k) & (vi)x);
}
INLINE void vtake_larger(vf *best, vi *index, vf x, int k)
{
    vi m = (x > *best) | (x != x);
    *best = vpick(m, x, *best);
    *index = (m & k) | (~m & *index);
}
#endif

INLINE vi vload_index(const uint8_t *p)
{
    vb v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vi);
}
INLINE void vstore_index(uint8_t *p, vi v)
{
    vb b = __builtin_convertvector(v, vb);
    memcpy(p, &b, sizeof b);
}

/* Storage of activations. E is the type of a stored element. load and store convert a block, get and put one
 * element. */
#if LS_KERNEL_BF16
typedef uint16_t E;
INLINE vf load(const E *p)
{
#if defined(__AVX512F__) /* gcc makes five instructions of the conversion below */
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
#else
    vh h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}
INLINE uint32_t round_bf16(uint32_t bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000) /* NaN stays NaN */
        return bits >> 16 | 0x40;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
INLINE void store(E *p, vf v)
{
#if defined(__AVX512BF16__)
    __m256bh h = _mm512_cvtneps_pbh((__m512)v);
    memcpy(p, &h, sizeof h);
#else
    vu bits = (vu)v;
    vu nan = (vu)((bits & 0x7fffffff) > 0x7f800000);
    vu rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    vh h = __builtin_convertvector((nan & (bits >> 16 | 0x40)) | (~nan & rounded), vh);
    memcpy(p, &h, sizeof h);
#endif
}
INLINE float get(const E *p)
{
    uint32_t bits = (uint32_t)*p << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
INLINE void put(E *p, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *p = (E)round_bf16(bits);
}
#else
typedef float E;
INLINE vf load(const E *p)
{
    return vloadf(p);
}
INLINE void store(E *p, vf v)
{
    vstoref(p, v);
}
INLINE float get(const E *p)
{
    return *p;
}
INLINE void put(E *p, float x)
{
    *p = x;
}
#endif

INLINE vf activate(enum ls_act act, vf z)
{
    if (act == LS_ACT_NONE)
        return z;
    z = vmax(vset(0.0f), z); /* with this order of operands, NaN stays NaN */
    return act == LS_ACT_RELU6 ? vmin(vset(6.0f), z) : z;
}
/* The gradient dy where it passes the activation, else 0. `test` is the value before or after the activation. */
INLINE vf pass_back(enum ls_act act, vf test, vf dy)
{
    if (act == LS_ACT_NONE)
        return dy;
    return act == LS_ACT_RELU ? vkeep_positive(test, dy) : vkeep_between(test, 6.0f, dy);
}

/* Calls body(ACT) with the activation as a constant, so that the compiler makes a separate loop for each. */
#define FOR_EACH_ACT(act, body) \
    switch (act) {              \
    case LS_ACT_RELU:           \
        body(LS_ACT_RELU);      \
        break;                  \
    case LS_ACT_RELU6:          \
        body(LS_ACT_RELU6);     \
        break;                  \
    default:                    \
        body(LS_ACT_NONE);      \
    }

#endif
