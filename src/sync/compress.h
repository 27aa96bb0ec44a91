/* The codecs that --compress names. Each is one file in compress/; powersgd, which is not a codec
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

#endif
