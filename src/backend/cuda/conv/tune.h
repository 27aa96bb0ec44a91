/* Chooses the algorithm of a convolution or dense layer (core/tuning.h). */
#ifndef LS_BACKEND_CUDA_CONV_TUNE_H
#define LS_BACKEND_CUDA_CONV_TUNE_H

#include "backend/cuda/conv/conv_algorithm.h"

enum ls_status tune_open(struct ls_program *p);
/* *algorithm is ready to run; release it by conv_algorithm_release. */
enum ls_status tune_pick(struct ls_program *p, const char *layer, const struct linear *l,
                         struct conv_algorithm *algorithm);
/* Several ways to compute the same: *best is the first, or a later one that is clearly faster. `with` extends the question. */
struct tune_rivals {
    void *context;
    /* Lay out the operands of all in `memory` (NULL: only count); *bytes: their size. */
    enum ls_status (*place)(void *context, char *memory, size_t *bytes);
    enum ls_status (*run)(void *context, int rival, char *workspace);
    size_t workspace; /* bytes */
    int n;
    const char *const *names;
};
enum ls_status tune_between(struct ls_program *p, const char *layer, const struct linear *l, const char *with,
                            const struct tune_rivals *rivals, int *best);
enum ls_status tune_close(struct ls_program *p);
/* The offset of the next operand while measuring. */
static inline size_t tune_lay_out(size_t *used, size_t bytes)
{
    size_t offset = *used;
    *used += (bytes + 1023) / 1024 * 1024;
    return offset;
}
/* That operand in `memory`; NULL where there is none yet. */
static inline void *tune_place(char *memory, size_t *used, size_t bytes)
{
    size_t offset = tune_lay_out(used, bytes);
    return memory ? memory + offset : NULL;
}
/* Makes kernels of batch normalisation ready to run while measuring, with all `samples`: their scratch, and *run, both on the
 * device. */
enum ls_status tune_begin_run(struct ls_program *p, void *scratch, int64_t samples, struct ls_cuda_run *run);

/* updates.c: number of nodes from `node` on, before `last`, that are updates and run as one; run them. */
int updates_run_length(const struct ls_program *p, int node, int last);
enum ls_status updates_run(struct ls_program *p, int first, int last);
enum ls_status updates_bind(struct ls_program *p);

#endif
