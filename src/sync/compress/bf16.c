/* bf16: half the bytes, 8 bits of precision over the whole range of f32. Rounds to nearest even. A finite value that
 * would round to infinity becomes the largest finite value. Infinities and NaNs are kept. The bf16 instruction of
 * the processor is not used: it flushes subnormal numbers to zero, and all processors must give the same bits. */
#include "comm/codec.h"
#include "sync/compress/lanes.h"

INLINE vh narrow(vf v)
{
    vu sign = (vu)v & 0x80000000, size = (vu)v & 0x7fffffff;
    const vu most = (vu){0} + 0x7f7f0000;
    vu held = pick((size > most) & (size < 0x7f800000), most, size);
    vu rounded = held + 0x7fff + (held >> 16 & 1);
    vu r = sign | pick(size > 0x7f800000, size | 0x400000, rounded);
    return __builtin_convertvector(r >> 16, vh);
}
INLINE vf widen(vh v)
{
    return (vf)(__builtin_convertvector(v, vu) << 16);
}

#include "sync/compress/halves.h"

extern const struct ls_codec LS_HERE(ls_codec_bf16);
const struct ls_codec LS_HERE(ls_codec_bf16) = {.name = "bf16",
                                                .shows_overflow = true,
                                                .bytes = bytes,
                                                .encode = encode,
                                                .decode = decode,
                                                .decode_add = decode_add};
