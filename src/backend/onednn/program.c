#include "backend/onednn/program.h"
#include "base/log.h"
#include "graph/ops.h"
#include "graph/plan.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- tensors ------------------------------------------------------------------------------------------------- */

int64_t tensor_stored(const struct ls_program *p, int tensor)
{
    const struct ls_tensor *t = &p->g->tensors[tensor];
    int64_t count = ls_shape_count(&t->shape);
    if (!p->places[tensor].blocked)
        return count;
    int64_t b = p->k.block;
    return count / t->shape.dim[1] * ((t->shape.dim[1] + b - 1) / b * b);
}

struct ls_map tensor_map(const struct ls_program *p, int tensor, const struct ls_run *run)
{
    const struct ls_shape *s = tensor_shape(p, tensor);
    int64_t b = p->k.block;
    return (struct ls_map){.n = s->dim[0],
                           .valid = run ? run->valid : s->dim[0],
                           .blocks = (s->dim[1] + b - 1) / b,
                           .h = s->dim[2],
                           .w = s->dim[3]};
}

/* places grows with the graph's tensors (reorders add some). */
static enum ls_status ensure_places(struct ls_program *p)
{
    if (p->g->n_tensors <= p->place_room)
        return LS_OK;
    int room = p->g->n_tensors * 2;
    struct place *places = ls_realloc(p->places, (size_t)p->place_room, (size_t)room, sizeof *places);
    if (!places)
        return LS_FAILED;
    for (int t = p->place_room; t < room; t++)
        places[t].span = LS_NONE;
    p->places = places;
    p->place_room = room;
    return LS_OK;
}

static bool in_store(const struct ls_tensor *t)
{
    return t->role == LS_ROLE_PARAM || t->role == LS_ROLE_STATE;
}

static void release_layout(void *layout)
{
    dnn_md_release(layout);
}

enum ls_status place_as(struct ls_program *p, int tensor, const struct dnn_md *md)
{
    LS_TRY(ensure_places(p));
    struct place *place = &p->places[tensor];
    const struct ls_tensor *t = &p->g->tensors[tensor];
    if (place->placed)
        return LS_OK;
    LS_TRY(dnn_md_copy(&place->md, md));
    place->bytes = (dnn_md_bytes(md) + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
    place->placed = true;
    if (!in_store(t))
        return LS_OK;
    struct ls_store_entry *entry = ls_store_find(p->store, t->name);
    if (!entry) {
        LS_TRY(ls_store_add(p->store, t->name, place->bytes, &entry));
        struct dnn_md *kept = (struct dnn_md *)entry->layout;
        _Static_assert(sizeof *kept <= LS_STORE_LAYOUT, "a layout fits its place in the store");
        LS_TRY(dnn_md_copy(kept, md));
        entry->layout_bytes = sizeof *kept;
        entry->layout_release = release_layout;
    }
    place->data = entry->memory;
    return LS_OK;
}

enum ls_status place_default(struct ls_program *p, int tensor)
{
    LS_TRY(ensure_places(p));
    const struct ls_tensor *t = &p->g->tensors[tensor];
    struct dnn_md md = {0};
    if (p->places[tensor].placed)
        return LS_OK;
    bool blocked = t->shape.rank == 4 && t->role == LS_ROLE_ACT;
    enum dnn_tag tag = !blocked ? DNN_PLAIN : p->k.block == 16 ? DNN_BLOCKED_16 : DNN_BLOCKED_8;
    LS_TRY(dnn_md_init(&md, t->shape.rank, t->shape.dim, t->dtype, tag));
    enum ls_status st = place_as(p, tensor, &md);
    p->places[tensor].blocked = blocked;
    dnn_md_release(&md);
    return st;
}

/* --- nodes --------------------------------------------------------------------------------------------------- */

static enum ls_status ensure_execs(struct ls_program *p, int n)
{
    if (n <= p->exec_room)
        return LS_OK;
    int room = n * 2;
    struct node_exec *execs = ls_realloc(p->execs, (size_t)p->exec_room, (size_t)room, sizeof *execs);
    if (!execs)
        return LS_FAILED;
    p->execs = execs;
    p->exec_room = room;
    return LS_OK;
}

/* A reorder node from -> to at position `at`, moving nodes and steps from there up by one. */
static enum ls_status insert_reorder(struct ls_program *p, int at, int like, int from, int to)
{
    struct ls_graph *g = p->g;
    struct ls_attr attr = {0};
    int node, n_tensors = g->n_tensors;
    LS_TRY(ls_graph_node(g, &ls_op_reorder, g->nodes[like].name, &attr, &from, 1, &node));
    g->n_tensors = n_tensors; /* the output is `to`, not the one infer made */
    struct ls_node fresh = g->nodes[node];
    fresh.out[0] = to;
    fresh.phase = g->nodes[like].phase;
    memmove(g->nodes + at + 1, g->nodes + at, (size_t)(node - at) * sizeof *g->nodes);
    g->nodes[at] = fresh;
    LS_TRY(ensure_execs(p, g->n_nodes));
    memmove(p->execs + at + 1, p->execs + at, (size_t)(node - at) * sizeof *p->execs);
    p->execs[at] = (struct node_exec){.span = LS_NONE};
    return LS_OK;
}

static int tensor_copy(struct ls_program *p, int tensor, enum ls_role role)
{
    char name[256];
    const struct ls_tensor *t = &p->g->tensors[tensor];
    snprintf(name, sizeof name, "%s (reordered)", t->name);
    return ls_graph_tensor(p->g, name, role, t->dtype, t->shape);
}

enum ls_status insert_reorder_before(struct ls_program *p, int *node, int tensor, const struct dnn_md *md, int *copy)
{
    *copy = tensor_copy(p, tensor, LS_ROLE_ACT);
    if (*copy == LS_NONE)
        return LS_FAILED;
    p->g->tensors[*copy].dtype = p->g->act_dtype; /* the only reason for a copy besides its layout */
    LS_TRY(place_as(p, *copy, md));
    LS_TRY(insert_reorder(p, *node, *node, tensor, *copy));
    p->execs[*node].kernel = kernel_find(&ls_op_reorder);
    LS_TRY(p->execs[*node].kernel->prepare(p, *node));
    ++*node;
    return LS_OK;
}

enum ls_status insert_reorder_after(struct ls_program *p, int node, int slot, const struct dnn_md *md)
{
    int wanted = p->g->nodes[node].out[slot];
    int copy = tensor_copy(p, wanted, LS_ROLE_ACT);
    if (copy == LS_NONE)
        return LS_FAILED;
    LS_TRY(place_as(p, copy, md));
    p->g->nodes[node].out[slot] = copy;
    return insert_reorder(p, node + 1, node, copy, wanted); /* prepared when the walk comes to it */
}

const struct kernel *kernel_find(const struct ls_op *op)
{
    const struct kernel *const lists[] = {ls_onednn_linear, ls_onednn_layers};
    for (int i = 0; i < 2; i++)
        for (const struct kernel *k = lists[i]; k->op; k++)
            if (k->op == op)
                return k;
    return NULL;
}

/* --- prepare ------------------------------------------------------------------------------------------------- */

/* Vector kernels read blocked maps; the images come plain. oneDNN takes them as they are. */
static enum ls_status block_images(struct ls_program *p, int *n)
{
    for (int i = 0; i < LS_MAX_IN; i++) {
        int copy, in = p->g->nodes[*n].in[i];
        if (in == LS_NONE || p->g->tensors[in].role != LS_ROLE_INPUT || p->g->tensors[in].shape.rank != 4)
            continue;
        struct dnn_md md = {0};
        LS_TRY(dnn_md_init(&md, 4, p->g->tensors[in].shape.dim, p->g->act_dtype,
                           p->k.block == 16 ? DNN_BLOCKED_16 : DNN_BLOCKED_8));
        enum ls_status st = insert_reorder_before(p, n, in, &md, &copy);
        dnn_md_release(&md);
        LS_TRY(st);
        p->places[copy].blocked = true;
        p->g->nodes[*n].in[i] = copy;
    }
    return LS_OK;
}

/* A node that was prepared when it was inserted, or moved up by an insertion, has its kernel already. */
static enum ls_status prepare_node(struct ls_program *p, int n)
{
    const struct ls_node *node = &p->g->nodes[n];
    LS_TRY(ensure_execs(p, p->g->n_nodes));
    if (p->execs[n].kernel)
        return LS_OK;
    const struct kernel *kernel = kernel_find(node->op);
    if (!kernel)
        return ls_fail(LS_FAILED, "layer %s: backend onednn has no kernel for op %s", node->name, node->op->name);
    p->execs[n] = (struct node_exec){.kernel = kernel, .span = LS_NONE};
    for (int i = 0; i < LS_MAX_IN; i++)
        if (node->in[i] != LS_NONE && p->g->tensors[node->in[i]].role == LS_ROLE_INPUT)
            LS_TRY(place_default(p, node->in[i]));
    if (!kernel->bind)
        LS_TRY(block_images(p, &n));
    return kernel->prepare(p, n);
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

static enum ls_status plan(struct ls_program *p)
{
    enum ls_status st = LS_OK;
    const struct ls_graph *g = p->g;
    int *first = ls_alloc((size_t)g->n_tensors, sizeof *first), *last = ls_alloc((size_t)g->n_tensors, sizeof *last);
    p->spans = ls_alloc((size_t)(g->n_tensors + g->n_nodes), sizeof *p->spans);
    if (!first || !last || !p->spans) {
        st = LS_FAILED;
        goto free_lives;
    }
    ls_plan_lifetimes(g, first, last);
    for (int t = 0; t < g->n_tensors; t++) {
        if (last[t] < 0 || !p->places[t].placed || in_store(&g->tensors[t]) || kept(p, t) ||
            g->tensors[t].role == LS_ROLE_INPUT)
            continue;
        p->places[t].span = p->n_spans;
        p->spans[p->n_spans++] =
            (struct ls_span){.bytes = p->places[t].bytes, .first = first[t], .last = last[t], .over = LS_NONE};
    }
    for (int n = 0; n < g->n_nodes; n++) {
        int in = ls_plan_inplace(g, n, last);
        if (in != LS_NONE && p->places[in].span != LS_NONE && p->places[g->nodes[n].out[0]].span != LS_NONE &&
            p->places[in].bytes == p->places[g->nodes[n].out[0]].bytes)
            p->spans[p->places[g->nodes[n].out[0]].span].over = p->places[in].span;
        if (p->execs[n].scratch_bytes) {
            p->execs[n].span = p->n_spans;
            p->spans[p->n_spans++] =
                (struct ls_span){.bytes = p->execs[n].scratch_bytes, .first = n, .last = n, .over = LS_NONE};
        }
    }
    place_grads(p);
    st = ls_plan_place(p->spans, p->n_spans, p->options.reuse, &p->arena_bytes);
free_lives:
    ls_free(first);
    ls_free(last);
    return st;
}

static void release(struct ls_program *p)
{
    if (!p)
        return;
    for (int n = 0; n < p->g->n_nodes && n < p->exec_room; n++) {
        dnn_prim_release(&p->execs[n].prim);
        ls_axis_release(&p->execs[n].y);
        ls_axis_release(&p->execs[n].x);
    }
    for (int t = 0; t < p->place_room; t++)
        dnn_md_release(&p->places[t].md);
    ls_free(p->places);
    ls_free(p->execs);
    ls_free(p->spans);
    ls_free(p->choices);
    dnn_close(&p->dnn);
    ls_free(p);
}

/* Asked before anything else, so that the guard comes before oneDNN settles on AMX. */
static const char *refuses(enum ls_dtype dtype)
{
    if (dtype == LS_F16)
        return LS_GPU_DTYPES;
    if (dtype == LS_BF16)
        switch (dnn_guard_amx()) {
        case DNN_AMX_FINE:
            break;
        case DNN_AMX_OFF:
            ls_warn("this machine advertises AMX and faults on it; bf16 runs without it");
            break;
        case DNN_AMX_FAULTS:
            return "this machine advertises AMX and faults on it; set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16";
        }
    if (dtype == LS_BF16 && dnn_isa())
        return "oneDNN computes in bf16 only with AVX-512, which this processor lacks; use --dtype f32";
    return NULL;
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
    omp_set_num_threads(options->threads);
    const char *why_not = refuses(g->act_dtype);
    if (why_not) {
        st = ls_fail(LS_USAGE, "%s", why_not);
        goto release_program;
    }
    if (!ls_kernels_pick(g->act_dtype, dnn_isa(), &p->k)) {
        st = ls_fail(LS_FAILED, "no kernels for this processor were built");
        goto release_program;
    }
    LS_TRY_GOTO(release_program, dnn_open(&p->dnn));
    LS_TRY_GOTO(release_program, tune_open(p));
    for (int n = 0; n < g->n_nodes && st == LS_OK; n++)
        st = prepare_node(p, n);
    enum ls_status kept = tune_close(p);
    st = st == LS_OK ? kept : st;
    if (st == LS_OK)
        st = plan(p);
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
    for (int n = 0; n < p->g->n_nodes; n++) {
        if (p->execs[n].span != LS_NONE)
            p->execs[n].scratch = (char *)arena + p->spans[p->execs[n].span].offset;
        if (p->execs[n].kernel->bind)
            p->execs[n].kernel->bind(p, n);
    }
    return LS_OK;
}

/* --- run ----------------------------------------------------------------------------------------------------- */

static enum ls_status run_nodes(struct ls_program *p, int first, int last, const struct ls_run *run)
{
    for (int n = first; n < last; n++)
        LS_TRY(p->execs[n].kernel->run(p, n, run));
    return LS_OK;
}

static enum ls_status input(struct ls_program *p, int tensor, const void *values)
{
    if (p->places[tensor].data == values)
        return LS_OK;
    p->places[tensor].data = (char *)(uintptr_t)values;
    for (int n = 0; n < p->g->n_nodes; n++)
        for (int i = 0; i < LS_MAX_IN; i++)
            if (p->g->nodes[n].in[i] == tensor && p->execs[n].kernel->bind)
                p->execs[n].kernel->bind(p, n);
    return LS_OK;
}

/* --- values from and to plain rows ----------------------------------------------------------------------------- */

/* Copy between a tensor's memory and plain f32 (i32 for integer tensors) in row-major order. */
static enum ls_status convert(const struct ls_program *p, int tensor, void *values, bool out)
{
    const struct ls_tensor *t = &p->g->tensors[tensor];
    const struct place *place = &p->places[tensor];
    enum ls_dtype dtype = t->dtype == LS_I32 ? LS_I32 : LS_F32;
    if (!place->placed || !place->data)
        return ls_fail(LS_FAILED, "tensor %s has no memory", t->name);
    if (t->dtype == dtype && !place->blocked && t->shape.rank <= 1) {
        memcpy(out ? values : place->data, out ? place->data : values, (size_t)ls_shape_count(&t->shape) * 4);
        return LS_OK;
    }
    enum ls_status st = LS_OK;
    struct dnn_md plain = {0};
    struct dnn_pd pd = {0};
    struct dnn_prim prim = {0};
    void *scratch = NULL;
    static const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO, DNNL_ARG_SCRATCHPAD};
    LS_TRY(dnn_md_plain(&plain, &place->md, dtype));
    LS_TRY_GOTO(release_plain, dnn_reorder_pd(&p->dnn, out ? &place->md : &plain, out ? &plain : &place->md, &pd));
    struct dnn_md scratch_md;
    LS_TRY_GOTO(release_plain, dnn_pd_md(&pd, DNNL_ARG_SCRATCHPAD, &scratch_md));
    if (scratch_md.set && !(scratch = ls_alloc(dnn_md_bytes(&scratch_md), 1)))
        st = LS_FAILED;
    dnn_md_release(&scratch_md);
    if (st == LS_OK)
        st = dnn_prim_init(&p->dnn, &pd, args, 3, &prim);
    if (st == LS_OK) {
        dnn_prim_point(&prim, DNNL_ARG_FROM, out ? place->data : values);
        dnn_prim_point(&prim, DNNL_ARG_TO, out ? values : place->data);
        dnn_prim_point(&prim, DNNL_ARG_SCRATCHPAD, scratch);
        st = dnn_prim_run(&p->dnn, &prim);
    }
    dnn_prim_release(&prim);
    ls_free(scratch);
release_plain:
    dnn_pd_release(&pd);
    dnn_md_release(&plain);
    return st;
}

static enum ls_status read_tensor(const struct ls_program *p, int tensor, void *values)
{
    return convert(p, tensor, values, true);
}

static enum ls_status write_tensor(struct ls_program *p, int tensor, const void *values)
{
    return convert(p, tensor, (void *)(uintptr_t)values, false);
}

static void *memory(const struct ls_program *p, int tensor, size_t *bytes)
{
    *bytes = p->places[tensor].bytes;
    return p->places[tensor].data;
}

/* Layout texts begin with the outermost dimension, in capitals when it is blocked, and end with the innermost block:
 * ABcd16b16a is blocks of 16 of dimension a, and within a block one after the other. */
static bool matrix(const struct ls_program *p, int tensor, size_t *rows, size_t *cols, size_t *block)
{
    const struct ls_shape *s = &p->g->tensors[tensor].shape;
    const struct place *place = &p->places[tensor];
    char layout[48];
    size_t length;
    if (s->rank < 2 || !place->placed)
        return false;
    dnn_md_text(&place->md, layout, sizeof layout);
    length = strlen(layout);
    size_t digits = strcspn(layout, "0123456789");
    int outer = layout[0] | 0x20, inner = layout[length - 1];
    *block = 1;
    if (digits < length) { /* blocked: the innermost block must be of the outermost dimension, and its only one */
        const char *last = layout + length - 1;
        while (last > layout && last[-1] >= '0' && last[-1] <= '9')
            last--;
        *block = strtoull(last, NULL, 10);
        for (const char *c = layout + digits; c < last; c++)
            if (*c == inner)
                return false;
        if (inner != outer)
            return false;
    }
    if (outer != 'a' && (outer != 'b' || digits == length))
        return false;
    size_t dim = (size_t)s->dim[outer - 'a'];
    *rows = (dim + *block - 1) / *block * *block;
    *cols = place->bytes / sizeof(float) / *rows;
    return *rows * *cols * sizeof(float) == place->bytes;
}

static const char *choices(const struct ls_program *p)
{
    return p->choices;
}

static void describe(const struct ls_program *p, int node, char *text, size_t room)
{
    const struct ls_node *n = &p->g->nodes[node];
    char layout[48] = "", where[48] = "";
    int out = n->out[0];
    if (out != LS_NONE) {
        dnn_md_text(&p->places[out].md, layout, sizeof layout);
        if (p->places[out].span != LS_NONE) {
            const struct ls_span *s = &p->spans[p->places[out].span];
            snprintf(where, sizeof where, "%zu+%zu%s", s->offset, s->bytes, s->over != LS_NONE ? " in place" : "");
        }
    }
    snprintf(text, room, "%-28s %-16s %s", p->execs[node].note[0] ? p->execs[node].note : p->k.isa, layout, where);
}

static void about(struct ls_backend_about *a)
{
    struct ls_kernels k = {0};
    char version[32];
    *a = (struct ls_backend_about){.caution = ""};
    snprintf(a->library, sizeof a->library, "oneDNN %s", dnn_version(version));
    snprintf(a->isa, sizeof a->isa, "%s", ls_kernels_pick(LS_F32, dnn_isa(), &k) ? k.isa : "unknown");
}

static const char *fault(void)
{
    return dnn_guard_amx() == DNN_AMX_FINE ? NULL
                                           : "the processor advertises AMX and faults on it; bf16 runs without it";
}

const struct ls_backend ls_backend_onednn = {
    .name = "onednn",
    .dense_1x1 = true,
    .summary = "CPU: oneDNN and Lockstep's own vector kernels",
    .about = about,
    .fault = fault,
    .refuses = refuses,
    .prepare = prepare,
    .release = release,
    .arena_bytes = arena_bytes,
    .grad_bytes = grad_bytes,
    .bind = bind,
    .run = run_nodes,
    .read = read_tensor,
    .write = write_tensor,
    .input = input,
    .memory = memory,
    .matrix = matrix,
    .choices = choices,
    .describe = describe,
};
