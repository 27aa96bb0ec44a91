/* The reference backend: naive C on plain NCHW f32, with sums in double. Other backends are tested against it, so every kernel
 * is made to be read and believed, not to be fast. */
#ifndef LS_BACKEND_REF_REF_H
#define LS_BACKEND_REF_REF_H

#include "backend/backend.h"
#include "graph/ops.h"

/* One node about to run. */
struct ls_ref_call {
    const struct ls_graph *g;
    const struct ls_node *n;
    void *const *data; /* of every tensor: f32 (also for bf16 and f16 graphs), i32 or u8 */
    float *scratch;    /* room for the largest tensor of the graph */
    const struct ls_run *run;
};

/* A tensor as n x c x h x w; missing trailing dimensions are 1. */
struct ls_ref_view {
    float *v; /* NULL: the slot is not used */
    int64_t n, c, h, w;
};

struct ls_ref_view ls_ref_in(const struct ls_ref_call *call, int slot);
/* A slot of an update: its window, in a row. */
struct ls_ref_view ls_ref_update_in(const struct ls_ref_call *call, int slot);
struct ls_ref_view ls_ref_out(const struct ls_ref_call *call, int slot);
/* Memory of a slot that is not f32; NULL when it is not used. */
void *ls_ref_in_data(const struct ls_ref_call *call, int slot);
void *ls_ref_out_data(const struct ls_ref_call *call, int slot);

static inline int64_t ls_ref_index(const struct ls_ref_view *t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return ((n * t->c + c) * t->h + h) * t->w + w;
}

static inline float *ls_ref_at(const struct ls_ref_view *t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return t->v + ls_ref_index(t, n, c, h, w);
}

static inline int64_t ls_ref_count(const struct ls_ref_view *t)
{
    return t->n * t->c * t->h * t->w;
}

/* An activation function; whether one that clips lets the gradient through where it gave y; the slope of another at z. */
float ls_ref_act_of(enum ls_act act, double z);
bool ls_ref_act_passes(enum ls_act act, float y);
double ls_ref_act_slope(enum ls_act act, double z);

/* Max pooling by attr's window, then act. index may be NULL. */
void ls_ref_pool_max(const struct ls_attr *attr, enum ls_act act, const struct ls_ref_view *x,
                     const struct ls_ref_view *y, uint8_t *index);
/* dx += dy routed to the winners; where act let nothing through at y (NULL: everywhere open) nothing comes
 * back. */
void ls_ref_unpool_max(const struct ls_attr *attr, enum ls_act act, const struct ls_ref_view *dy, const uint8_t *index,
                       const float *y, const struct ls_ref_view *dx);

/* A kernel for each op; the lists of ops/list.def end with a NULL op. */
typedef void ls_ref_kernel(const struct ls_ref_call *call);
struct ls_ref_op {
    const char *op;
    ls_ref_kernel *kernel;
};
#define X(name) extern const struct ls_ref_op ls_ref_ops_##name[];
#include "backend/ref/ops/list.def"

/* update.c: clips the gradients of all update nodes, the first of which is given (core/clip.h); ls_backend.squares. */
void ls_ref_clip(const struct ls_graph *g, int first, void *const *data, float factor);
int ls_ref_squares(const struct ls_graph *g, int node, void *const *data, double sums[LS_SPLIT_CHUNKS]);

#endif
