#include "backend/cuda/program.h"
#include "backend/cuda/conv/tune.h"
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

static bool in_store(const struct ls_tensor *t)
{
    return t->role == LS_ROLE_PARAM || t->role == LS_ROLE_STATE;
}

struct ls_cuda_map map_of(const struct ls_program *p, int tensor)
{
    const struct ls_shape *s = &p->g->tensors[tensor].shape;
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
    struct place *place = &p->places[tensor];
    const struct ls_tensor *t = &p->g->tensors[tensor];
    if (place->placed)
        return LS_OK;
    place->layout = *layout;
    place->t = t->dtype;
    place->bytes = aligned((size_t)layout->count * ls_dtype_size(t->dtype));
    place->placed = true;
    if (!in_store(t))
        return LS_OK;
    struct ls_store_entry *entry = ls_store_find(p->store, t->name);
    if (!entry) {
        struct stored kept = {*layout, half && p->g->act_dtype != LS_F32 ? place->bytes : 0};
        LS_TRY(ls_store_add(p->store, t->name, place->bytes + (kept.half ? aligned((size_t)layout->count * 2) : 0),
                            &entry));
        _Static_assert(sizeof kept <= LS_STORE_LAYOUT, "a layout fits its place in the store");
        memcpy(entry->layout, &kept, sizeof kept);
        entry->layout_bytes = sizeof kept;
    }
    const struct stored *kept = (const struct stored *)(const void *)entry->layout;
    place->layout = kept->layout;
    place->data = entry->memory;
    place->half = kept->half ? place->data + kept->half : NULL;
    return LS_OK;
}

enum ls_status place_default(struct ls_program *p, int tensor)
{
    struct layout l = layout_default(&p->g->tensors[tensor].shape);
    return place_as(p, tensor, &l, false);
}

/* C3: like its parameter. */
static int parameter_of(const struct ls_program *p, int grad)
{
    for (int t = 0; t < p->g->n_tensors; t++)
        if (p->g->tensors[t].role == LS_ROLE_PARAM && p->g->tensors[t].grad == grad)
            return t;
    return LS_NONE;
}

enum ls_status place_outputs(struct ls_program *p, int node)
{
    for (int o = 0; o < LS_MAX_OUT; o++) {
        int tensor = p->g->nodes[node].out[o];
        if (tensor == LS_NONE)
            continue;
        int param = p->g->tensors[tensor].role == LS_ROLE_GRAD ? parameter_of(p, tensor) : LS_NONE;
        if (param != LS_NONE)
            LS_TRY(place_as(p, tensor, &p->places[param].layout, false));
        LS_TRY(place_default(p, tensor));
    }
    return LS_OK;
}

/* --- prepare ------------------------------------------------------------------------------------------------- */

static const struct kernel *kernel_find(const char *op)
{
    const struct kernel *const lists[] = {ls_cuda_linear, ls_cuda_norms, ls_cuda_layers, ls_cuda_updates};
    for (int i = 0; i < 4; i++)
        for (const struct kernel *k = lists[i]; k->op; k++)
            if (strcmp(k->op, op) == 0)
                return k;
    return NULL;
}

static enum ls_status prepare_node(struct ls_program *p, int n)
{
    const struct ls_node *node = &p->g->nodes[n];
    p->execs[n].kernel = kernel_find(node->op->name);
    if (!p->execs[n].kernel)
        return ls_fail(LS_FAILED, "layer %s: backend cuda has no kernel for op %s", node->name, node->op->name);
    return p->execs[n].kernel->prepare(p, n);
}

static bool kept(const struct ls_program *p, int tensor)
{
    return p->g->tensors[tensor].role == LS_ROLE_GRAD && p->options.keep_grads;
}

/* Kept gradients lie one after the other in the order of completion. */
static void place_grads(struct ls_program *p)
{
    for (int n = 0; n < p->g->n_nodes; n++)
        for (int o = 0; o < LS_MAX_OUT; o++) {
            int t = p->g->nodes[n].out[o];
            if (t == LS_NONE || !kept(p, t))
                continue;
            p->places[t].offset = p->grad_bytes;
            p->grad_bytes += p->places[t].bytes;
        }
}

static void add_span(struct ls_program *p, int *span, size_t bytes, int first, int last)
{
    *span = p->n_spans;
    p->spans[p->n_spans++] = (struct ls_span){.bytes = aligned(bytes), .first = first, .last = last, .over = LS_NONE};
}

static void begin_early(const struct ls_program *p, int *first)
{
    for (int n = 0; n < p->g->n_nodes; n++)
        for (int o = p->execs[n].early_from; o < LS_MAX_OUT && p->execs[n].early != LS_NONE; o++) {
            int t = p->g->nodes[n].out[o];
            if (t != LS_NONE && p->execs[n].early < first[t])
                first[t] = p->execs[n].early;
        }
}

/* C5. Which node waits for those aside, and how long their tensors live. */
static void set_aside(struct ls_program *p, int *last)
{
    const struct ls_graph *g = p->g;
    for (int n = g->n_nodes - 1, join = g->n_nodes; n >= 0; n--) {
        if (p->execs[n].aside) {
            p->execs[n].join = join;
            for (int i = 0; i < LS_MAX_IN + LS_MAX_OUT; i++) {
                int t = i < LS_MAX_IN ? g->nodes[n].in[i] : g->nodes[n].out[i - LS_MAX_IN];
                if (t != LS_NONE && last[t] < join - 1)
                    last[t] = join - 1;
            }
        }
        if (strstr(g->nodes[n].op->name, "_bwd_weights") || updates_run_length(p, n, n + 1) > 0)
            join = n;
    }
}

/* flatten changes the order of values here, which cannot be done in place. */
static bool may_lie_on_input(const struct ls_node *n)
{
    return strcmp(n->op->name, "flatten") != 0 && strcmp(n->op->name, "unflatten") != 0;
}

static enum ls_status plan(struct ls_program *p)
{
    enum ls_status st = LS_OK;
    const struct ls_graph *g = p->g;
    int *first = ls_alloc((size_t)g->n_tensors, sizeof *first), *last = ls_alloc((size_t)g->n_tensors, sizeof *last);
    p->spans = ls_alloc((size_t)(g->n_tensors + 2 * g->n_nodes), sizeof *p->spans);
    if (!first || !last || !p->spans) {
        st = LS_FAILED;
        goto free_lives;
    }
    ls_plan_lifetimes(g, first, last);
    begin_early(p, first);
    set_aside(p, last);
    for (int t = 0; t < g->n_tensors; t++)
        if (last[t] >= 0 && p->places[t].placed && !p->places[t].unmade && !in_store(&g->tensors[t]) && !kept(p, t) &&
            g->tensors[t].role != LS_ROLE_INPUT)
            add_span(p, &p->places[t].span, p->places[t].bytes, first[t], last[t]);
    for (int n = 0; n < g->n_nodes; n++) {
        int in = may_lie_on_input(&g->nodes[n]) ? ls_plan_inplace(g, n, last) : LS_NONE;
        if (in != LS_NONE && p->places[in].span != LS_NONE && p->places[g->nodes[n].out[0]].span != LS_NONE)
            p->spans[p->places[g->nodes[n].out[0]].span].over = p->places[in].span;
        if (is_small_scratch(p->execs[n].scratch_bytes)) {
            p->execs[n].small_place = p->small_bytes;
            p->small_bytes += aligned(p->execs[n].scratch_bytes);
        } else {
            add_span(p, &p->execs[n].span, p->execs[n].scratch_bytes, n,
                     p->execs[n].join == LS_NONE ? n : p->execs[n].join - 1);
        }
        if (p->execs[n].keep_bytes)
            add_span(p, &p->execs[n].keep_span, p->execs[n].keep_bytes, n, p->execs[n].keep_until);
    }
    st = ls_plan_place(p->spans, p->n_spans, p->options.reuse, &p->arena_bytes);
    place_grads(p);
free_lives:
    ls_free(first);
    ls_free(last);
    return st;
}

void program_forget(struct ls_program *p)
{
    if (!p->device->lost)
        cudaStreamSynchronize(p->device->compute);
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
    for (int n = 0; p->execs && n < p->g->n_nodes; n++) {
        if (p->execs[n].state && p->execs[n].kernel->release && !p->device->lost)
            p->execs[n].kernel->release(p->execs[n].state);
        ls_free(p->execs[n].state);
    }
    program_close_queue(p);
    device_give(p->small);
    device_give(p->sums);
    device_give(p->updates);
    device_give(p->running);
    device_give(p->norms);
    ls_free(p->host_updates);
    ls_free(p->captured);
    ls_free(p->places);
    ls_free(p->execs);
    ls_free(p->spans);
    ls_free(p->choices);
    ls_free(p);
}

static const char *refuses(enum ls_dtype dtype)
{
    return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F16 ? NULL : "activations are f32, bf16 or fp16";
}

static enum ls_status prepare(const struct ls_backend_options *options, struct ls_graph *g, struct ls_store *store,
                              struct ls_program **program)
{
    enum ls_status st = LS_OK;
    struct ls_program *p = ls_alloc(1, sizeof *p);
    if (!p)
        return LS_FAILED;
    p->options = *options;
    p->g = g;
    p->store = store;
    LS_TRY_GOTO(release_program, device_open(&p->device));
    LS_TRY_GOTO(release_program, stem_insert(p));
    p->places = ls_alloc((size_t)g->n_tensors, sizeof *p->places);
    p->execs = ls_alloc((size_t)g->n_nodes, sizeof *p->execs);
    p->host_updates = ls_alloc((size_t)g->n_nodes, sizeof *p->host_updates);
    if (!p->places || !p->execs || !p->host_updates) {
        st = LS_FAILED;
        goto release_program;
    }
    for (int t = 0; t < g->n_tensors; t++)
        p->places[t].span = LS_NONE;
    for (int n = 0; n < g->n_nodes; n++)
        p->execs[n].span = p->execs[n].keep_span = p->execs[n].twin = p->execs[n].early = p->execs[n].join = LS_NONE;
    LS_TRY_GOTO(release_program, tune_open(p));
    for (int n = 0; n < g->n_nodes && st == LS_OK; n++)
        st = prepare_node(p, n);
    enum ls_status closed = tune_close(p);
    st = st == LS_OK ? closed : st;
    if (st == LS_OK)
        st = plan(p);
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

static size_t arena_bytes(const struct ls_program *p)
{
    return p->arena_bytes;
}

static size_t grad_bytes(const struct ls_program *p)
{
    return p->grad_bytes;
}

static enum ls_status bind(struct ls_program *p, void *arena, void *grads)
{
    for (int t = 0; t < p->g->n_tensors; t++)
        if (kept(p, t))
            p->places[t].data = (char *)grads + p->places[t].offset;
        else if (p->places[t].span != LS_NONE)
            p->places[t].data = (char *)arena + p->spans[p->places[t].span].offset;
    if (p->small_bytes && !p->small)
        LS_TRY(device_take(p->small_bytes, "scratch", (void **)&p->small));
    for (int n = 0; n < p->g->n_nodes; n++) {
        struct node_exec *exec = &p->execs[n];
        exec->scratch = p->small ? p->small + exec->small_place : NULL;
        if (exec->span != LS_NONE)
            exec->scratch = (char *)arena + p->spans[exec->span].offset;
        if (exec->keep_span != LS_NONE)
            exec->keep = p->execs[exec->keep_until].keep = (char *)arena + p->spans[exec->keep_span].offset;
    }
    p->sums_bytes = aligned(p->sums_bytes);
    if (p->sums_bytes && !p->sums)
        LS_TRY(device_take(2 * p->sums_bytes, "sums", (void **)&p->sums));
    return updates_bind(p);
}

/* --- run ----------------------------------------------------------------------------------------------------- */

static enum ls_status input(struct ls_program *p, int tensor, const void *values)
{
    if (tensor == p->g->input)
        return program_input_planes(p, values);
    p->labels = values;
    return LS_OK;
}

/* --- values from and to plain rows ----------------------------------------------------------------------------- */

static enum ls_status read_tensor(const struct ls_program *p, int tensor, void *values)
{
    const struct place *place = &p->places[tensor];
    if (!place->placed || !place->data)
        return ls_fail(LS_FAILED, "tensor %s has no memory", p->g->tensors[tensor].name);
    char *stored = ls_alloc(place->bytes, 1);
    if (!stored)
        return LS_FAILED;
    enum ls_status st = cuda_check(cudaEventRecord(p->here, p->device->compute), "reading a tensor");
    if (st == LS_OK)
        st = program_await(p, p->here);
    if (st == LS_OK)
        st = cuda_check(cudaMemcpy(stored, place->data, place->bytes, cudaMemcpyDeviceToHost), "reading a tensor");
    if (st == LS_OK)
        layout_gather(&place->layout, place->t, stored, values);
    ls_free(stored);
    return st;
}

static enum ls_status write_tensor(struct ls_program *p, int tensor, const void *values)
{
    const struct place *place = &p->places[tensor];
    if (!place->placed || !place->data)
        return ls_fail(LS_FAILED, "tensor %s has no memory", p->g->tensors[tensor].name);
    char *stored = ls_alloc(place->bytes, 1);
    if (!stored)
        return LS_FAILED;
    layout_scatter(&place->layout, place->t, values, stored);
    enum ls_status st = device_put(place->data, stored, place->bytes);
    ls_free(stored);
    if (st != LS_OK || !place->half)
        return st;
    ls_cuda_convert(p->device->compute, LS_F32, place->data, p->g->act_dtype, place->half, place->layout.count);
    return cuda_check(cudaStreamSynchronize(p->device->compute), "writing a tensor");
}

static void *memory(const struct ls_program *p, int tensor, size_t *bytes)
{
    *bytes = p->places[tensor].bytes;
    return p->places[tensor].data;
}

static bool matrix(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block)
{
    const struct place *place = &p->places[tensor];
    const struct layout *l = &place->layout;
    if (!place->placed || l->rank < 2 || place->bytes != (size_t)l->count * sizeof(float) || l->stride[0] == 1)
        return false;
    *cols = (size_t)l->stride[0];
    *rows = (size_t)(l->count / l->stride[0]);
    *block = 1;
    return true;
}

static const char *choices(const struct ls_program *p)
{
    return p->choices ? p->choices : "";
}

static void describe(const struct ls_program *p, int node, char *text, size_t room)
{
    const struct ls_node *n = &p->g->nodes[node];
    char where[48] = "";
    int out = n->out[0];
    if (out != LS_NONE && p->places[out].span != LS_NONE) {
        const struct ls_span *s = &p->spans[p->places[out].span];
        snprintf(where, sizeof where, "%zu+%zu%s", s->offset, s->bytes, s->over != LS_NONE ? " in place" : "");
    }
    snprintf(text, room, "%-28s %-16s %s", p->execs[node].note[0] ? p->execs[node].note : "cuda",
             out != LS_NONE ? ls_dtype_name(p->places[out].t) : "", where);
}

__attribute__((visibility("default"))) const struct ls_backend ls_backend_module = {
    .name = "cuda",
    .summary = "NVIDIA GPUs: cuDNN, cuBLASLt and Lockstep's own kernels",
    .queue = &ls_cuda_queue,
    .measures = true,
    .peers = &ls_cuda_peers,
    .about = ls_cuda_about,
    .cards = ls_cuda_cards,
    .refuses = refuses,
    .prepare = prepare,
    .release = release,
    .arena_bytes = arena_bytes,
    .grad_bytes = grad_bytes,
    .bind = bind,
    .run = program_run,
    .profile = program_profile,
    .read = read_tensor,
    .write = write_tensor,
    .input = input,
    .memory = memory,
    .matrix = matrix,
    .choices = choices,
    .describe = describe,
};
