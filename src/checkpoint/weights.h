/* Parameters and state of an engine to and from safetensors files: torchvision's names, row-major f32. */
#ifndef LS_CHECKPOINT_WEIGHTS_H
#define LS_CHECKPOINT_WEIGHTS_H

#include "exec/engine.h"
#include "checkpoint/safetensors.h"

enum ls_weights {
    LS_WEIGHTS_MODEL, /* parameters, BN's running statistics and num_batches_tracked */
    LS_WEIGHTS_STATE  /* the state of the optimizer */
};

/* Durable. steps: for BN's num_batches_tracked. LS_DIVERGED, and no file, when a value is not finite. */
enum ls_status ls_weights_save(const struct ls_engine *e, enum ls_weights which, const char *path,
                               const struct ls_st_pair *metadata, int n_metadata, uint64_t steps, uint64_t *checksum);
/* The same in two halves: what is read of the engine, and what is written of it, which needs the engine's graph alone. */
struct ls_weights_copy;
enum ls_status ls_weights_copy(const struct ls_engine *e, enum ls_weights which, uint64_t steps,
                               struct ls_weights_copy **copy);
enum ls_status ls_weights_write(struct ls_weights_copy *c, const char *path, const struct ls_st_pair *metadata,
                                int n_metadata, uint64_t *checksum);
void ls_weights_drop(struct ls_weights_copy *c);
/* The file must hold exactly the tensors of the engine, in their shapes; F16, BF16 and F64 are converted.
 * When it does not, nothing is changed. */
enum ls_status ls_weights_load(struct ls_engine *e, enum ls_weights which, const char *path);

#endif
