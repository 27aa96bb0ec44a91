/* fp16: half the bytes, 11 bits of precision from 6e-5 to 65504. Rounds to nearest even. A finite value beyond the
 * range becomes the largest finite value. Infinities and NaNs are kept, so that divergence is visible. */
#include "comm/codec.h"
#include "sync/compress/lanes.h"

#define LARGEST 65504.0f

#if defined(__F16C__)
INLINE vh narrow(vf v)
{
    __m256 x = (__m256)v;
    /* min and max return the second operand when one is NaN. */
    __m256 held = _mm256_max_ps(_mm256_set1_ps(-LARGEST), _mm256_min_ps(_mm256_set1_ps(LARGEST), x));
    __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    __m256 infinite = _mm256_cmp_ps(size, _mm256_set1_ps(__builtin_inff()), _CMP_EQ_OQ);
    return (vh)_mm256_cvtps_ph(_mm256_blendv_ps(held, x, infinite), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vf widen(vh h)
{
    return (vf)_mm256_cvtph_ps((__m128i)h);
}
#else
INLINE vh narrow(vf v)
{
    vu sign = (vu)v >> 16 & 0x8000, size = (vu)v & 0x7fffffff;
    const vu most = (vu)vset(LARGEST);
    vu held = pick((size > most) & (size < 0x7f800000), most, size);
    /* The bias of the exponent falls by 112. The 13 bits that are dropped are rounded. */
    vu normal = (held - (112u << 23) + 0xfff + (held >> 13 & 1)) >> 13;
    /* Below 2^-14 the steps are 2^-24, which is the last bit of a float around 1/2. The addition therefore rounds. */
    vu small = (vu)((vf)held + 0.5f) - 0x3f000000u;
    vu nan = 0x7e00 | (size >> 13 & 0x3ff);
    vu h = pick(size < 0x38800000, small, normal);
    h = pick(size >= 0x7f800000, pick(size > 0x7f800000, nan, (vu){0} + 0x7c00), h);
    return __builtin_convertvector(h | sign, vh);
}
INLINE vf widen(vh v)
{
    vu h = __builtin_convertvector(v, vu);
    vu sign = (h & 0x8000) << 16, size = (h & 0x7fff) << 13;
    vu normal = size + (112u << 23);
    vu small = (vu)((vf)(size + (113u << 23)) - 0x1p-14f);
    vu r = pick(size < (1u << 23), small, pick(size >= (31u << 23), size + (224u << 23), normal));
    return (vf)(r | sign);
}
#endif

#include "sync/compress/halves.h"

extern const struct ls_codec LS_HERE(ls_codec_fp16);
const struct ls_codec LS_HERE(ls_codec_fp16) = {
    .name = "fp16", .bytes = bytes, .encode = encode, .decode = decode, .decode_add = decode_add};
