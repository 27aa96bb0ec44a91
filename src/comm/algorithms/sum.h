/* Sums of several operands in one pass over memory, in the order of a tree.
 *
 *   S1  Only additions, in the order given, one value at a time: the same bits on every processor and for every cut.
 *   S2  An operand may be one of the results, or a result an operand: each value is read before it is written. */
#ifndef LS_COMM_ALGORITHMS_SUM_H
#define LS_COMM_ALGORITHMS_SUM_H

#include "comm/codec.h"
#include "comm/algorithms/tree.h"
#include <stddef.h>

struct ls_summer; /* opaque: the sums of one tree, with room for what is unfinished */

enum ls_status ls_summer_new(const struct ls_tree *tree, struct ls_summer **summer);
void ls_summer_free(struct ls_summer *summer);

/* results[0..n_results-1][i] = the tree over operands[part][i]. */
void ls_summer_run(struct ls_summer *s, const float *const *operands, size_t count, float *const *results,
                   int n_results);

/* The same where some operands are encoded: wires[part], or NULL where operands[part] has it as it is. At most
 * LS_CODEC_BLOCK values. */
void ls_summer_decode(struct ls_summer *s, const struct ls_codec *codec, const void *const *wires,
                      const float *const *operands, size_t count, float *result);

/* sum[i] = a[i] + b[i] */
void ls_sum_add(float *sum, const float *a, const float *b, size_t count);

/* --- long ranges ------------------------------------------------------------------------------------------ */

/* Ranges are encoded in blocks of so many values, so that what travels does not depend on how it travels. */
enum { LS_CODEC_BLOCK = 16384 };
/* Of a range, and of its blocks before `first` (a multiple of LS_CODEC_BLOCK). */
size_t ls_wire_bytes(const struct ls_codec *codec, size_t count);
void ls_wire_encode(const struct ls_codec *codec, const float *values, float *feedback, size_t count, void *wire);
void ls_wire_decode(const struct ls_codec *codec, const void *wire, size_t count, float *values);

#endif
