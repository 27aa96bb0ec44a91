#include "backend/cuda/program.h"
#include "backend/cuda/collective/collective.h"
#include "backend/cuda/conv/tune.h"
#include "backend/cuda/ops/bn.h"
#include "backend/cuda/timeline.h"
#include "base/log.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

#define DEVICE_ALIGN 256

/* --- tensors ------------------------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
}

struct ls_cuda_map map_of(const struct ls_program *p, int tensor)
{
    const struct ls_shape *s = &p->core.g->tensors[tensor].shape;
    if (s->rank == 4)
        return (struct ls_cuda_map){s->dim[0], s->dim[2], s->dim[3], padded(s->dim[1])};
    return (struct ls_cuda_map){s->dim[0], 1, 1, padded(s->dim[1])};
}

/* What the store keeps of a tensor beside its memory. */
struct stored {
    struct layout layout;
    size_t half; /* where the 16-bit copy begins; 0: none */
};

enum ls_status place_as(struct ls_program *p, int tensor, const struct layout *layout, bool half)
{
    struct tensor_layout *to = &p->layouts[tensor];
    enum ls_dtype t = p->core.g->tensors[tensor].dtype;
    struct ls_store_entry *entry;
    bool fresh;
    if (p->core.places[tensor].placed)
        return LS_OK;
    size_t bytes = aligned((size_t)layout->count * ls_dtype_size(t));
    struct stored kept = {*layout, half && p->core.g->act_dtype != LS_F32 ? bytes : 0};
    to->layout = *layout;
    to->t = t;
    LS_TRY(ls_program_place(p, tensor, bytes, kept.half ? aligned((size_t)layout->count * 2) : 0, &entry, &fresh));
    if (!entry)
        return LS_OK;
    if (fresh) {
        _Static_assert(sizeof kept <= LS_STORE_LAYOUT, "a layout fits its place in the store");
        memcpy(entry->layout, &kept, sizeof kept);
        entry->layout_bytes = sizeof kept;
    }
    memcpy(&kept, entry->layout, sizeof kept);
    to->layout = kept.layout;
    to->halved = kept.half > 0;
    to->half = to->halved && entry->memory ? p->core.places[tensor].data + kept.half : NULL;
    return LS_OK;
}

enum ls_status place_default(struct ls_program *p, int tensor)
{
    struct layout l = layout_default(&p->core.g->tensors[tensor].shape);
    return place_as(p, tensor, &l, false);
}

/* CUDA-3: like its parameter. */
static int parameter_of(const struct ls_program *p, int grad)
{
    for (int t = 0; t < p->core.g->n_tensors; t++)
        if (p->core.g->tensors[t].role == LS_ROLE_PARAM && p->core.g->tensors[t].grad == grad)
            return t;
    return LS_NONE;
}

enum ls_status place_outputs(struct ls_program *p, int node)
{
    for (int o = 0; o < LS_MAX_OUT; o++) {
        int tensor = p->core.g->nodes[node].out[o];
        if (tensor == LS_NONE)
            continue;
        int param = p->core.g->tensors[tensor].role == LS_ROLE_GRAD ? parameter_of(p, tensor) : LS_NONE;
        if (param != LS_NONE)
            LS_TRY(place_as(p, tensor, &p->layouts[param].layout, false));
        LS_TRY(place_default(p, tensor));
    }
    return LS_OK;
}

/* --- prepare ------------------------------------------------------------------------------------------------- */

static enum ls_status prepare_node(struct ls_program *p, int n)
{
    static const void *const kernels[] = {
#define X(name) ls_cuda_ops_##name,
#include "backend/cuda/ops/list.def"
        NULL};
    const void *found;
    LS_TRY(ls_kernel_find("cuda", &p->core.g->nodes[n], kernels, sizeof(struct kernel), &found));
    p->execs[n].kernel = found;
    return p->execs[n].kernel->prepare(p, n);
}

static void begin_early(const struct ls_program *p, int *first)
{
    for (int n = 0; n < p->core.g->n_nodes; n++)
        for (int o = p->execs[n].early_from; o < LS_MAX_OUT && p->execs[n].early != LS_NONE; o++) {
            int t = p->core.g->nodes[n].out[o], from = p->execs[n].early;
            if (p->execs[from].with != LS_NONE && p->execs[from].with < from)
                from = p->execs[from].with; /* MAPPED-1 */
            if (t != LS_NONE && from < first[t])
                first[t] = from;
        }
}

/* CUDA-5. Which node waits for those aside, and how long their tensors live. */
static void set_aside(struct ls_program *p, int *last)
{
    const struct ls_graph *g = p->core.g;
    for (int n = g->n_nodes - 1, join = g->n_nodes; n >= 0; n--) {
        if (p->execs[n].aside) {
            p->execs[n].join = join;
            for (int i = 0; i < LS_MAX_IN + LS_MAX_OUT; i++) {
                int t = i < LS_MAX_IN ? g->nodes[n].in[i] : g->nodes[n].out[i - LS_MAX_IN];
                if (t != LS_NONE && last[t] < join - 1)
                    last[t] = join - 1;
            }
        }
        if (p->execs[n].kernel->joins)
            join = n;
    }
}

static bool may_lie_on_input(const struct ls_program *p, int node)
{
    return !p->execs[node].kernel->moves;
}

/* CUDA-6: small scratches lie side by side; the others live as long as their node runs. */
static void place_scratch(struct ls_program *p)
{
    for (int n = 0; n < p->core.g->n_nodes; n++) {
        struct ls_node_memory *m = &p->core.nodes[n];
        m->scratch_apart = is_small_scratch(m->scratch_bytes);
        if (m->scratch_apart) {
            p->execs[n].small_place = p->small_bytes;
            p->small_bytes += aligned(m->scratch_bytes);
        } else if (p->execs[n].join != LS_NONE) {
            m->scratch_until = p->execs[n].join - 1;
        }
    }
}

static void adjust(struct ls_program *p, int *first, int *last)
{
    begin_early(p, first);
    set_aside(p, last);
    place_scratch(p);
}

static const struct ls_plan_rules rules = {.align = DEVICE_ALIGN, .adjust = adjust, .in_place = may_lie_on_input};

void program_forget(struct ls_program *p)
{
    if (!p->device->lost)
        cudaStreamSynchronize(p->device->compute);
    timeline_forget(p);
    for (int i = 0; i < p->n_captured && !p->device->lost; i++)
        if (p->captured[i].graph)
            cudaGraphExecDestroy(p->captured[i].graph);
    p->n_captured = 0;
}

static void release(struct ls_program *p)
{
    if (!p)
        return;
    if (p->collective)
        ls_cuda_peers.close(p, false);
    if (p->device)
        program_forget(p);
    for (int n = 0; p->execs && n < p->core.g->n_nodes; n++) {
        if (p->execs[n].state && p->execs[n].kernel->release && !p->device->lost)
            p->execs[n].kernel->release(p->execs[n].state);
        ls_free(p->execs[n].state);
    }
    program_close_queue(p);
    device_give(p->small);
    device_give(p->sums);
    device_give(p->updates);
    device_give(p->window);
    device_give(p->running);
    device_give(p->clip);
    device_give(p->clipped);
    device_give(p->norms);
    ls_free(p->host_squares);
    ls_free(p->host_clipped);
    ls_free(p->first_clipped);
    ls_free(p->host_updates);
    ls_free(p->captured);
    ls_free(p->layouts);
    ls_free(p->execs);
    ls_program_release(p);
    ls_free(p);
}

static const char *refuses(enum ls_dtype dtype)
{
    return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F16 ? NULL : "activations are f32, bf16 or fp16";
}

static const char *faster(enum ls_dtype dtype, bool tf32)
{
    return dtype != LS_F32 || tf32 ? "because the GPU's matrix units multiply it" : NULL;
}

static enum ls_status prepare(const struct ls_backend_options *options, struct ls_graph *g, struct ls_store *store,
                              struct ls_program **program)
{
    enum ls_status st = LS_OK;
    struct ls_program *p = ls_alloc(1, sizeof *p);
    if (!p)
        return LS_FAILED;
    ls_program_init(p, options, g, store);
    LS_TRY_GOTO(release_program, device_open(&p->device));
    LS_TRY_GOTO(release_program, stem_insert(p));
    LS_TRY_GOTO(release_program, ls_program_reserve(p));
    p->layouts = ls_alloc((size_t)g->n_tensors, sizeof *p->layouts);
    p->execs = ls_alloc((size_t)g->n_nodes, sizeof *p->execs);
    p->host_updates = ls_alloc((size_t)g->n_nodes, sizeof *p->host_updates);
    if (!p->layouts || !p->execs || !p->host_updates) {
        st = LS_FAILED;
        goto release_program;
    }
    for (int n = 0; n < g->n_nodes; n++)
        p->execs[n].twin = p->execs[n].with = p->execs[n].early = p->execs[n].join = LS_NONE;
    LS_TRY_GOTO(release_program, tune_open(p));
    for (int n = 0; n < g->n_nodes && st == LS_OK; n++)
        st = prepare_node(p, n);
    enum ls_status closed = tune_close(p);
    st = st == LS_OK ? closed : st;
    if (st == LS_OK)
        st = ls_program_plan(p, &rules);
    if (st == LS_OK)
        st = program_open_queue(p);
release_program:
    if (st != LS_OK) {
        release(p);
        return st;
    }
    *program = p;
    return LS_OK;
}

static enum ls_status bind(struct ls_program *p, void *arena, void *grads)
{
    ls_program_bind(p, arena, grads);
    if (p->small_bytes && !p->small)
        LS_TRY(device_take(p->small_bytes, "scratch", (void **)&p->small));
    for (int n = 0; n < p->core.g->n_nodes; n++)
        if (p->core.nodes[n].scratch_apart)
            p->core.nodes[n].scratch = p->small ? p->small + p->execs[n].small_place : NULL;
    p->sums_bytes = aligned(p->sums_bytes);
    if (p->sums_bytes && !p->sums)
        LS_TRY(device_take(2 * p->sums_bytes, "sums", (void **)&p->sums));
    LS_TRY(program_open_scale(p));
    return updates_bind(p);
}

/* --- run ----------------------------------------------------------------------------------------------------- */

static enum ls_status input(struct ls_program *p, int tensor, const void *values)
{
    if (tensor == p->core.g->input)
        return program_input_planes(p, values);
    p->labels = values;
    return LS_OK;
}

/* --- values from and to plain rows ----------------------------------------------------------------------------- */

static enum ls_status read_tensor(const struct ls_program *p, int tensor, void *values)
{
    const struct ls_place *place = &p->core.places[tensor];
    if (!place->placed || !place->data)
        return ls_fail(LS_FAILED, "tensor %s has no memory", p->core.g->tensors[tensor].name);
    char *stored = ls_alloc(place->bytes, 1);
    if (!stored)
        return LS_FAILED;
    enum ls_status st = cuda_check(cudaEventRecord(p->here, p->device->compute), "reading a tensor");
    if (st == LS_OK)
        st = program_await(p, p->here);
    if (st == LS_OK)
        st = cuda_check(cudaMemcpy(stored, place->data, place->bytes, cudaMemcpyDeviceToHost), "reading a tensor");
    if (st == LS_OK)
        layout_gather(&p->layouts[tensor].layout, p->layouts[tensor].t, stored, values);
    ls_free(stored);
    return st;
}

static enum ls_status write_tensor(struct ls_program *p, int tensor, const void *values)
{
    const struct ls_place *place = &p->core.places[tensor];
    if (!place->placed || !place->data)
        return ls_fail(LS_FAILED, "tensor %s has no memory", p->core.g->tensors[tensor].name);
    char *stored = ls_alloc(place->bytes, 1);
    if (!stored)
        return LS_FAILED;
    layout_scatter(&p->layouts[tensor].layout, p->layouts[tensor].t, values, stored);
    enum ls_status st = device_put(place->data, stored, place->bytes);
    ls_free(stored);
    if (st != LS_OK || !p->layouts[tensor].half)
        return st;
    ls_cuda_convert(p->device->compute, LS_F32, place->data, p->core.g->act_dtype, p->layouts[tensor].half,
                    p->layouts[tensor].layout.count);
    return cuda_check(cudaStreamSynchronize(p->device->compute), "writing a tensor");
}

static void point(struct ls_program *p, int tensor, void *memory, void *copy)
{
    ls_program_point(p, tensor, memory, NULL);
    p->layouts[tensor].half = p->layouts[tensor].halved ? copy : NULL;
}

static size_t stored(const struct ls_program *p, int tensor)
{
    return (size_t)stored_count(p, tensor);
}

static bool matrix(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block)
{
    const struct ls_place *place = &p->core.places[tensor];
    const struct layout *l = &p->layouts[tensor].layout;
    if (!place->placed || l->rank < 2 || place->bytes != (size_t)l->count * sizeof(float) || l->stride[0] == 1)
        return false;
    *cols = (size_t)l->stride[0];
    *rows = (size_t)(l->count / l->stride[0]);
    *block = 1;
    return true;
}

/* Twins, a normalisation with the product behind it, which may be a gradient of weights, what an earlier node computes of a
 * later one, and a sparse gradient with its reader. */
static bool joined(const struct ls_program *p, int node, int other)
{
    const struct node_exec *exec = &p->execs[node];
    return exec->twin == other || exec->early == other || exec->with == other ||
           (exec->sparse && ls_graph_producer(p->core.g, p->core.g->nodes[node].in[DY2]) == other);
}

static void describe(const struct ls_program *p, int node, char *text, size_t room)
{
    int out = p->core.g->nodes[node].out[0];
    char where[64];
    snprintf(text, room, "%-28s %-16s %s", p->execs[node].note[0] ? p->execs[node].note : "cuda",
             out != LS_NONE ? ls_dtype_name(p->layouts[out].t) : "", ls_program_where(p, out, where));
}

__attribute__((visibility("default"))) const struct ls_backend ls_backend_module = {
    .name = "cuda",
    .summary = "NVIDIA GPUs: cuDNN, cuBLASLt and Lockstep's own kernels",
    .queue = &ls_cuda_queue,
    .tf32 = true,
    .any_threads = true,
    .measures = true,
    .split = {LS_CUDA_TOGETHER, LS_CUDA_SPLIT_WEIGHTS},
    .peers = &ls_cuda_peers,
    .wires = &ls_cuda_wires,
    .about = ls_cuda_about,
    .cards = ls_cuda_cards,
    .refuses = refuses,
    .faster = faster,
    .prepare = prepare,
    .release = release,
    .arena_bytes = ls_program_arena_bytes,
    .grad_bytes = ls_program_grad_bytes,
    .bind = bind,
    .run = program_run,
    .profile = program_profile,
    .read = read_tensor,
    .write = write_tensor,
    .input = input,
    .memory = ls_program_memory,
    .stored = stored,
    .point = point,
    .matrix = matrix,
    .inspect = updates_inspect,
    .squares = updates_squares,
    .choices = ls_program_choices,
    .joined = joined,
    .describe = describe,
};
