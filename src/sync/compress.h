/* The codecs that --compress names, and what they cost. Each is one file in compress/; powersgd, which is not a codec
 * because its sums are made of other values than the gradient's, is powersgd.h.
 *
 *   Z1  All ranks get the same bits from the same wire, whatever their processors (compress/lanes.h, L1).
 *   Z2  The wire of the first n * LS_COMPRESS_CHUNK values is the beginning of the wire of them all, bytes(n *
 *       LS_COMPRESS_CHUNK) long, and can be decoded by itself.
 *   Z3  A gradient that is infinite or not a number stays so: no codec hides that a run diverges. */
#ifndef LS_SYNC_COMPRESS_H
#define LS_SYNC_COMPRESS_H

#include "base/status.h"
#include "comm/codec.h"
#include <stdint.h>

enum { LS_COMPRESS_CHUNK = 1024 };

/* The codec for this processor: fp16, bf16 or 1bit; NULL when there is none of that name. */
const struct ls_codec *ls_compress_find(const char *name);
/* The same for one instruction set ("avx512", "avx2", "sse2"), for tests; NULL when the processor lacks it. */
const struct ls_codec *ls_compress_find_isa(const char *name, const char *isa);

/* Bytes of f32 over bytes on the wire. */
double ls_compress_ratio(const struct ls_codec *codec, size_t count);

/* How far what was sent is from what should have been; add up over buckets. The relative error is
 * sqrt(error / norm). */
struct ls_compress_error {
    double error, norm; /* sums of squares: of what was lost, and of what was to be sent */
    uint64_t clipped;   /* finite values too large for the wire's type, sent as its largest */
};
/* Adds to *e what the last encode of these values lost. feedback is what that encode left there, NULL where the codec
 * keeps none. As costly as a decode: for the steps whose metrics are written. */
void ls_compress_measure(const struct ls_codec *codec, const float *values, const float *feedback, size_t count,
                         const void *wire, struct ls_compress_error *e);

/* Seconds a value takes on this processor, measured in a few milliseconds. */
struct ls_compress_speed {
    double encode, decode;
};
enum ls_status ls_compress_speed(const struct ls_codec *codec, struct ls_compress_speed *speed);
/* Seconds an allreduce of `count` values is shorter by with the codec than as f32, at `beta` seconds a byte of the
 * buffer (ls_comm_cost); negative: it does not pay. A value is encoded once on its way to its owner and its share of
 * the sum once, and decoded as often. */
double ls_compress_gain(const struct ls_codec *codec, const struct ls_compress_speed *speed, double beta, size_t count);

#endif
