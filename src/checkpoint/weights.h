/* Saves and loads parameters and optimizer state as safetensors files: names of torchvision, row-major f32. */
#ifndef LS_CHECKPOINT_WEIGHTS_H
#define LS_CHECKPOINT_WEIGHTS_H

#include "exec/engine.h"
#include "checkpoint/safetensors.h"

enum ls_weights {
    LS_WEIGHTS_MODEL, /* parameters, running statistics of BN, num_batches_tracked */
    LS_WEIGHTS_STATE  /* the optimizer's state */
};

/* Writes a file atomically and durably. steps: the value of num_batches_tracked. LS_DIVERGED, and no file, if a value is
 * not finite. */
enum ls_status ls_weights_save(const struct ls_engine *e, enum ls_weights which, const char *path,
                               const struct ls_st_pair *metadata, int n_metadata, uint64_t steps, uint64_t *checksum);
/* The two halves of ls_weights_save: copy reads the engine, write needs only the engine's graph and may run in another
 * thread. Free a copy with ls_weights_copy_free. */
struct ls_weights_copy;
enum ls_status ls_weights_copy(const struct ls_engine *e, enum ls_weights which, uint64_t steps,
                               struct ls_weights_copy **copy);
enum ls_status ls_weights_write(struct ls_weights_copy *c, const char *path, const struct ls_st_pair *metadata,
                                int n_metadata, uint64_t *checksum);
void ls_weights_copy_free(struct ls_weights_copy *c);
/* Opens a file of the graph's weights. Names that torchvision's files have from older versions, or with the prefix of PyTorch's
 * DataParallel or compile, become those of the graph. */
enum ls_status ls_weights_open(const char *path, const struct ls_graph *g, struct ls_safetensors *file);
/* Checks that an open file has exactly the parameters and running statistics of the graph, with equal shapes. path: for
 * messages. */
enum ls_status ls_weights_check(const struct ls_graph *g, const struct ls_safetensors *file, const char *path);
/* The values of a tensor of weights as f32. LS_BAD_INPUT if one is not finite. */
enum ls_status ls_weights_values(const struct ls_st_tensor *t, const char *path, float *values);
/* Loads a file that has exactly the tensors of the engine, with equal shapes; converts F16, BF16 and F64. Otherwise reports
 * an error and changes nothing. */
enum ls_status ls_weights_load(struct ls_engine *e, enum ls_weights which, const char *path);
/* Loads the model from a file to start training from it. If the file is of the same model with another number of classes, the
 * layer that gives the logits keeps its start values, and *head becomes that layer's name, borrowed from
 * the graph, and *classes the number of classes of the file; otherwise NULL. Any other difference is an error. */
enum ls_status ls_weights_start(struct ls_engine *e, const char *path, const char **head, int64_t *classes);

#endif
