/* Sums of several operands in one pass over memory, in the order of a tree.
 *
 *   SUM-1  Each value is computed by additions alone, in the tree's order. The bits do not depend on the processor or on
 *          how the range is cut.
 *   SUM-2  A result may be one of the operands: each value is read before it is written. */
#ifndef LS_COMM_ALGORITHMS_SUM_H
#define LS_COMM_ALGORITHMS_SUM_H

#include "comm/codec.h"
#include "comm/algorithms/tree.h"
#include <stddef.h>

struct ls_summer; /* opaque: a tree, with memory for partial sums */

enum ls_status ls_summer_new(const struct ls_tree *tree, struct ls_summer **summer);
void ls_summer_free(struct ls_summer *summer);

/* Every results[k][i] = the tree's sum over operands[part][i]. */
void ls_summer_run(struct ls_summer *s, const float *const *operands, size_t count, float *const *results,
                   int n_results);

/* The same where some operands are encoded: in wires[part], or, where that is NULL, not encoded in operands[part]. At
 * most LS_CODEC_BLOCK values. */
void ls_summer_decode(struct ls_summer *s, const struct ls_codec *codec, const void *const *wires,
                      const float *const *operands, size_t count, float *result);

/* sum[i] = a[i] + b[i] */
void ls_sum_add(float *sum, const float *a, const float *b, size_t count);

/* --- long ranges ------------------------------------------------------------------------------------------ */

/* Ranges are encoded in blocks of this many values. So the encoded bytes do not depend on the algorithm. */
enum { LS_CODEC_BLOCK = 16384 };
/* The encoded size of `count` values; also the offset of the block that begins at value `count`. */
size_t ls_wire_bytes(const struct ls_codec *codec, size_t count);
void ls_wire_encode(const struct ls_codec *codec, const float *values, float *feedback, size_t count, void *wire);
void ls_wire_decode(const struct ls_codec *codec, const void *wire, size_t count, float *values);

#endif
