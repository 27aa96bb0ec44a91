#include "backend/core/clip.h"
#include "backend/ref/ref.h"
#include "backend/core/program.h"
#include "backend/host_queue.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static const void *const kernels[] = {
#define X(name) ls_ref_ops_##name,
#include "backend/ref/ops/list.def"
    NULL};

/* Activations and inputs lie in the arena, none sharing memory, then the scratch. A place's offset is in the arena,
 * or, for a kept gradient, in the memory of gradients. */
struct ls_program {
    struct ls_program_core core;
    ls_ref_kernel **kernel; /* owned; of every node */
    void **data;            /* owned; of every tensor */
    size_t scratch_offset;
    int clip_node; /* gradients are clipped before it; LS_NONE: they are not */
    char *arena;   /* borrowed */
};

/* bf16 and f16 graphs are computed in f32, as the values that other backends are compared with. */
static size_t tensor_bytes(const struct ls_tensor *t)
{
    bool half = t->dtype == LS_BF16 || t->dtype == LS_F16;
    size_t size = half ? sizeof(float) : ls_dtype_size(t->dtype);
    return (size_t)ls_shape_count(&t->shape) * size;
}

static size_t aligned(size_t bytes)
{
    return (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
}

static enum ls_status place_in_store(struct ls_program *p, int tensor)
{
    const struct ls_tensor *t = &p->core.g->tensors[tensor];
    struct ls_store_entry *e;
    bool fresh;
    LS_TRY(ls_program_place(p, tensor, tensor_bytes(t), 0, &e, &fresh));
    if (t->apart)
        return LS_OK;
    if (e->bytes != tensor_bytes(t) || e->layout_bytes)
        return ls_fail(LS_FAILED, "%s: %zu bytes in the store were laid out by another backend or model, ref needs %zu",
                       t->name, e->bytes, tensor_bytes(t));
    p->data[tensor] = e->memory;
    return LS_OK;
}

static enum ls_status place(struct ls_program *p)
{
    size_t largest = 0;
    for (int i = 0; i < p->core.g->n_tensors; i++) {
        const struct ls_tensor *t = &p->core.g->tensors[i];
        size_t bytes = aligned(tensor_bytes(t));
        if (ls_role_kept(t->role)) {
            LS_TRY(place_in_store(p, i));
            continue;
        }
        largest = bytes > largest ? bytes : largest;
        p->core.places[i].bytes = bytes;
        if (ls_program_keeps(p, i))
            continue;
        p->core.places[i].offset = p->core.arena_bytes;
        p->core.arena_bytes += bytes;
    }
    ls_program_place_grads(p);
    p->scratch_offset = p->core.arena_bytes;
    p->core.arena_bytes += largest;
    return LS_OK;
}

static enum ls_status pick_kernels(struct ls_program *p)
{
    for (int n = 0; n < p->core.g->n_nodes; n++) {
        const void *found;
        LS_TRY(ls_kernel_find("ref", &p->core.g->nodes[n], kernels, sizeof(struct ls_ref_op), &found));
        p->kernel[n] = ((const struct ls_ref_op *)found)->kernel;
    }
    return LS_OK;
}

static void ref_release(struct ls_program *p)
{
    if (!p)
        return;
    ls_free(p->kernel);
    ls_free(p->data);
    ls_program_release(p);
    ls_free(p);
}

static enum ls_status ref_prepare(const struct ls_backend_options *options, struct ls_graph *g, struct ls_store *store,
                                  struct ls_program **program)
{
    enum ls_status st = LS_FAILED;
    struct ls_program *p = ls_alloc(1, sizeof *p);
    if (!p)
        return LS_FAILED;
    ls_program_init(p, options, g, store); /* one thread, nothing to tune, no memory reused */
    p->kernel = ls_alloc((size_t)g->n_nodes, sizeof *p->kernel);
    p->data = ls_alloc((size_t)g->n_tensors, sizeof *p->data);
    if (!p->kernel || !p->data)
        goto release;
    LS_TRY_GOTO(release, ls_program_reserve(p));
    LS_TRY_GOTO(release, pick_kernels(p));
    LS_TRY_GOTO(release, place(p));
    *program = p;
    return LS_OK;
release:
    ref_release(p);
    return st;
}

static enum ls_status ref_bind(struct ls_program *p, void *arena, void *grads)
{
    p->arena = arena;
    p->clip_node = ls_clip_node(p->core.g);
    for (int i = 0; i < p->core.g->n_tensors; i++)
        if (!ls_role_kept(p->core.g->tensors[i].role))
            p->data[i] = (char *)(ls_program_keeps(p, i) ? grads : arena) + p->core.places[i].offset;
    return LS_OK;
}

static int ref_squares(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS])
{
    return ls_ref_squares(p->core.g, node, p->data, sums);
}

static enum ls_status ref_run(struct ls_program *p, int first, int last, const struct ls_run *run)
{
    for (int n = first; n < last; n++) {
        if (n == p->clip_node && ls_clip_now(&p->core.g->nodes[n]))
            ls_ref_clip(p->core.g, n, p->data, ls_clip_factor(p, p->core.g, n, run, ref_squares));
        struct ls_ref_call call = {.g = p->core.g,
                                   .n = &p->core.g->nodes[n],
                                   .data = p->data,
                                   .scratch = (float *)(p->arena + p->scratch_offset),
                                   .run = run};
        if (!ls_window_is_empty(&call.n->window))
            p->kernel[n](&call);
    }
    return LS_OK;
}

static enum ls_status ref_read(const struct ls_program *p, int tensor, void *values)
{
    const struct ls_tensor *t = &p->core.g->tensors[tensor];
    if (t->dtype != LS_U8) {
        memcpy(values, p->data[tensor], tensor_bytes(t));
        return LS_OK;
    }
    for (int64_t i = 0; i < ls_shape_count(&t->shape); i++)
        ((float *)values)[i] = ((const uint8_t *)p->data[tensor])[i];
    return LS_OK;
}

static enum ls_status ref_write(struct ls_program *p, int tensor, const void *values)
{
    const struct ls_tensor *t = &p->core.g->tensors[tensor];
    if (t->dtype == LS_U8)
        return ls_fail(LS_FAILED, "%s: indices are written by their op only", t->name);
    if (t->role == LS_ROLE_INPUT) /* it may point at a caller's memory since ref_input */
        p->data[tensor] = p->arena + p->core.places[tensor].offset;
    memcpy(p->data[tensor], values, tensor_bytes(t));
    return LS_OK;
}

static enum ls_status ref_input(struct ls_program *p, int tensor, const void *values)
{
    p->data[tensor] = (void *)(uintptr_t)values; /* no op writes an input */
    return LS_OK;
}

static void *ref_memory(const struct ls_program *p, int tensor, size_t *bytes)
{
    *bytes = tensor_bytes(&p->core.g->tensors[tensor]);
    return p->data[tensor];
}

static size_t ref_stored(const struct ls_program *p, int tensor)
{
    return (size_t)ls_shape_count(&p->core.g->tensors[tensor].shape);
}

static void ref_point(struct ls_program *p, int tensor, void *memory, void *copy)
{
    (void)copy;
    p->data[tensor] = memory;
}

static bool ref_matrix(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block)
{
    const struct ls_shape *s = &p->core.g->tensors[tensor].shape;
    *rows = (size_t)s->dim[0];
    *cols = s->rank > 1 ? (size_t)(ls_shape_count(s) / s->dim[0]) : 1;
    *block = 1;
    return s->rank > 1;
}

static void ref_describe(const struct ls_program *p, int node, char *text, size_t room)
{
    int out = p->core.g->nodes[node].out[0];
    if (out == LS_NONE)
        snprintf(text, room, "naive, in place");
    else
        snprintf(text, room, "naive, nchw f32, offset %zu", p->core.places[out].offset);
}

static struct ls_ref_view view(const struct ls_ref_call *call, int tensor)
{
    struct ls_ref_view v = {.n = 1, .c = 1, .h = 1, .w = 1};
    if (tensor == LS_NONE)
        return v;
    const struct ls_shape *s = &call->g->tensors[tensor].shape;
    int64_t *const dim[] = {&v.n, &v.c, &v.h, &v.w};
    for (int i = 0; i < s->rank; i++)
        *dim[i] = s->dim[i];
    v.v = call->data[tensor];
    return v;
}

struct ls_ref_view ls_ref_in(const struct ls_ref_call *call, int slot)
{
    return view(call, call->n->in[slot]);
}

struct ls_ref_view ls_ref_update_in(const struct ls_ref_call *call, int slot)
{
    struct ls_ref_view v = ls_ref_in(call, slot);
    const struct ls_window *w = &call->n->window;
    if (!w->on || !v.v)
        return v;
    int64_t left = ls_ref_count(&v) - (int64_t)w->first;
    bool apart = slot == 0 && w->apart;
    return (struct ls_ref_view){.v = (apart ? w->apart : v.v) + (slot >= 2 || apart ? w->at : w->first),
                                .n = left < (int64_t)w->count ? left : (int64_t)w->count,
                                .c = 1,
                                .h = 1,
                                .w = 1};
}

struct ls_ref_view ls_ref_out(const struct ls_ref_call *call, int slot)
{
    return view(call, call->n->out[slot]);
}

void *ls_ref_in_data(const struct ls_ref_call *call, int slot)
{
    return call->n->in[slot] == LS_NONE ? NULL : call->data[call->n->in[slot]];
}

void *ls_ref_out_data(const struct ls_ref_call *call, int slot)
{
    return call->n->out[slot] == LS_NONE ? NULL : call->data[call->n->out[slot]];
}

/* Half graphs are computed in f32, which fp16 is not to be taken for. */
static const char *refuses(enum ls_dtype dtype)
{
    return dtype == LS_F16 ? LS_GPU_DTYPES : NULL;
}

static void about(struct ls_backend_about *a)
{
    *a = (struct ls_backend_about){.library = "none", .isa = "plain C"};
}

static enum ls_status ref_results(struct ls_program *p, int slot, const float **loss, const int32_t **rank)
{
    (void)slot;
    *loss = p->data[p->core.g->loss];
    *rank = p->data[p->core.g->label_rank];
    return LS_OK;
}

static const struct ls_backend_queue ref_queue = LS_HOST_QUEUE(ref_results);

const struct ls_backend ls_backend_ref = {
    .queue = &ref_queue,
    .name = "ref",
    .dense_1x1 = true,
    .summary = "naive C, one thread: the values every other backend is tested against",
    .about = about,
    .refuses = refuses,
    .prepare = ref_prepare,
    .release = ref_release,
    .arena_bytes = ls_program_arena_bytes,
    .grad_bytes = ls_program_grad_bytes,
    .bind = ref_bind,
    .run = ref_run,
    .read = ref_read,
    .write = ref_write,
    .input = ref_input,
    .memory = ref_memory,
    .stored = ref_stored,
    .point = ref_point,
    .matrix = ref_matrix,
    .squares = ref_squares,
    .choices = ls_program_choices,
    .describe = ref_describe,
};
