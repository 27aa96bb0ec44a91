/* Vector operations of the compressors. The files of this folder are compiled once for each instruction set
 * (CMakeLists.txt). They compute with vectors of 8 floats on every processor.
 *
 *   L1  All instruction sets give the same bits: additions happen in one order, and no product is fused with a sum. */
#ifndef LS_COMPRESS_LANES_H
#define LS_COMPRESS_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Makes names such as ls_codec_fp16_avx2. */
#define LS_JOIN2(a, b) a##_##b
#define LS_JOIN(a, b) LS_JOIN2(a, b)
#define LS_HERE(name) LS_JOIN(name, LS_COMPRESS_ISA)

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8 };

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef uint16_t vh __attribute__((vector_size(LANES * 2)));

INLINE vf load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}
/* Loads the first n lanes; the others are zero. */
INLINE vf load_some(const float *p, size_t n)
{
    vf v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}
INLINE void store_some(float *p, vf v, size_t n)
{
    memcpy(p, &v, n * sizeof *p);
}
INLINE vf vset(float x)
{
    return (vf){x, x, x, x, x, x, x, x};
}
INLINE vu pick(vi mask, vu yes, vu no)
{
    return ((vu)mask & yes) | (~(vu)mask & no);
}
/* Sums all lanes by halves: (0 + 4), then (0 + 2) ... */
INLINE float fold(vf v)
{
    float t[LANES];
    memcpy(t, &v, sizeof v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            t[i] += t[i + half];
    return t[0];
}

#endif
