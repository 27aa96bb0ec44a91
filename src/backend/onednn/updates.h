/* What the updates of optimizers share. */
#ifndef LS_BACKEND_ONEDNN_UPDATES_H
#define LS_BACKEND_ONEDNN_UPDATES_H

#include "backend/onednn/ops/op.h"

/* Slot i of an update node as floats: parameter, gradient, state tensors; NULL: not used. All are stored alike (DNN-2). */
static inline float *whole_slot(const struct ls_program *p, int node, int i)
{
    return (float *)(void *)IN(i);
}
/* Floats of each slot as stored, padding included. */
static inline int64_t whole_count(const struct ls_program *p, int node)
{
    return (int64_t)(dnn_md_bytes(&p->layouts[p->core.g->nodes[node].in[0]].md) / sizeof(float));
}

/* The same of the node's window, which may end behind the tensor. */
static inline float *update_slot(const struct ls_program *p, int node, int i)
{
    const struct ls_window *w = &p->core.g->nodes[node].window;
    bool apart = i == 0 && w->apart;
    float *all = apart ? w->apart : whole_slot(p, node, i);
    return all && w->on ? all + (i >= 2 || apart ? w->at : w->first) : all;
}
static inline int64_t update_count(const struct ls_program *p, int node)
{
    const struct ls_window *w = &p->core.g->nodes[node].window;
    int64_t all = whole_count(p, node), left = all - (int64_t)w->first;
    return !w->on ? all : left < (int64_t)w->count ? left : (int64_t)w->count;
}

/* For fewer floats, threads are not worth their start. */
enum { UPDATE_ALONE = 16384 };

/* Clips the gradients of all update nodes (core/clip.h); ls_backend.squares. */
void clip_gradients(struct ls_program *p, const struct ls_run *run);
int gradient_squares(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS]);
/* Places the state tensors. */
enum ls_status prepare_update(struct ls_program *p, int node);

#endif
