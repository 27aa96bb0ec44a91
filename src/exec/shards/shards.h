/* Optimizer state that is sharded over processes (--shard state). Each process holds the state of a part of every parameter, and
 * updates that part alone. With --shard parameters it holds no more of the parameters either: params.h says how a pass gets them.
 *
 * A bucket's gradients are cut into pieces. A piece is summed at once and updated by the process that owns it, or, cut into one
 * range for each process, by all of them. Updated parameters that every process holds go back the same way: they take the place of
 * their gradients (which nothing reads any more), the owners share them, and every process copies them to where they belong.
 *
 *   SHARD-1  A parameter and its gradient are stored alike, so that a range of one is the same range of the other.
 *   SHARD-2  An update is computed from the values that one process would compute it from: norms of whole tensors are computed
 *            by a process that owns all of the tensor, and clipping sees all gradients. So the bits are those of one process.
 *   SHARD-3  State exists once over all processes. Running statistics are held by every process. So are averages (--ema) where
 *            parameters are; otherwise a process holds the averages of its part. */
#ifndef LS_EXEC_SHARDS_H
#define LS_EXEC_SHARDS_H

#include "exec/engine.h"

struct ls_shards;

/* Refuses options and strategies that do not go with --shard, with the reason. */
enum ls_status ls_shards_check(const struct ls_options *o, const struct ls_backend *b, int size);
/* Before the graph is prepared: marks the state tensors that are sharded as apart, and with `parameters` the parameters and
 * their averages. like: the parameters of another graph that are apart in g. */
void ls_shards_mark(struct ls_graph *g, bool parameters);
void ls_shards_mark_like(struct ls_graph *other, const struct ls_graph *g);
/* Whether an update's norms need whole tensors, so that buckets are cut by tensor. */
bool ls_shards_by_norm(const struct ls_engine *e);

/* When buckets are cut: cuts pieces, chooses owners and takes memory for the state of this process, zeroed. */
enum ls_status ls_shards_open(struct ls_engine *e, const struct ls_options *o);
void ls_shards_close(struct ls_engine *e);
const struct ls_sync_piece *ls_shards_pieces(const struct ls_engine *e, int *n);
/* Updates this process's part of a piece, whose sum is there, and puts the parameters in the place of the gradients. With
 * clipping, the sums of all pieces must be there before the first call of a step. */
enum ls_status ls_shards_update(struct ls_engine *e, int piece, const struct ls_run *run);
/* Takes the parameters that other processes have updated, and after the last piece of a bucket runs what follows its updates. */
enum ls_status ls_shards_take(struct ls_engine *e, int piece, const struct ls_run *run);

/* Where devices sum among themselves and every process has all sums: the updates of a step, of all pieces. */
enum ls_status ls_shards_run(struct ls_engine *e, const struct ls_run *run);

/* With parameters in shards: every process makes its part of their start values, as ls_program_init_params does for all. */
enum ls_status ls_shards_start_values(struct ls_engine *e, uint64_t seed);
/* This process's values of a tensor that is apart, one after the other, in the order of its windows: their number, and a copy of
 * them; put gives them new ones. */
size_t ls_shards_count(const struct ls_engine *e, int tensor);
enum ls_status ls_shards_get(const struct ls_engine *e, int tensor, float *values);
enum ls_status ls_shards_put(struct ls_engine *e, int tensor, const float *values);

/* A whole tensor that is apart, on rank 0, while all other ranks serve until rank 0 calls end. */
enum ls_status ls_shards_read(const struct ls_engine *e, int tensor, float *values);
enum ls_status ls_shards_write(struct ls_engine *e, int tensor, const float *values);
enum ls_status ls_shards_serve(const struct ls_engine *e);
enum ls_status ls_shards_end(const struct ls_engine *e);

/* Bytes of state and parameters in shards that this process holds. */
size_t ls_shards_held(const struct ls_engine *e);
/* Bytes of what `size` processes share, in all and of the one that holds most: of state, and of parameters, which are 0 unless
 * they are sharded. Needs prepared programs, in which all of it may be whole. */
struct ls_shards_bytes {
    size_t all, most, all_parameters, most_parameters;
    size_t ring;      /* room for the parameters that a pass reads (params.h), */
    size_t gradients; /* and for gradients, where they are given back early */
};
enum ls_status ls_shards_predict(const struct ls_engine *e, const struct ls_options *o, int size,
                                 struct ls_shards_bytes *bytes);

#endif
