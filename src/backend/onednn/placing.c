/* Layouts of tensors (DNN-1 to DNN-4), and the reorder nodes between layouts. */
#include "backend/onednn/program.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

/* --- tensors ------------------------------------------------------------------------------------------------- */

int64_t tensor_stored(const struct ls_program *p, int tensor)
{
    const struct ls_tensor *t = &p->core.g->tensors[tensor];
    int64_t count = ls_shape_count(&t->shape);
    if (!p->layouts[tensor].blocked)
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

/* layouts grows with the graph's tensors, as reorders add some. */
static enum ls_status ensure_layouts(struct ls_program *p)
{
    LS_TRY(ls_program_reserve(p));
    if (p->core.place_room <= p->layout_room)
        return LS_OK;
    struct tensor_layout *layouts =
        ls_realloc(p->layouts, (size_t)p->layout_room, (size_t)p->core.place_room, sizeof *layouts);
    if (!layouts)
        return LS_FAILED;
    p->layouts = layouts;
    p->layout_room = p->core.place_room;
    return LS_OK;
}

static void release_layout(void *layout)
{
    dnn_md_release(layout);
}

enum ls_status place_as(struct ls_program *p, int tensor, const struct dnn_md *md)
{
    struct ls_store_entry *entry;
    bool fresh;
    LS_TRY(ensure_layouts(p));
    if (p->core.places[tensor].placed)
        return LS_OK;
    LS_TRY(dnn_md_copy(&p->layouts[tensor].md, md));
    LS_TRY(ls_program_place(p, tensor, (dnn_md_bytes(md) + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN, 0, &entry, &fresh));
    if (!fresh)
        return LS_OK;
    struct dnn_md *stored = (struct dnn_md *)entry->layout;
    _Static_assert(sizeof *stored <= LS_STORE_LAYOUT, "a layout fits its place in the store");
    LS_TRY(dnn_md_copy(stored, md));
    entry->layout_bytes = sizeof *stored;
    entry->layout_release = release_layout;
    return LS_OK;
}

enum ls_status place_default(struct ls_program *p, int tensor)
{
    LS_TRY(ensure_layouts(p));
    const struct ls_tensor *t = &p->core.g->tensors[tensor];
    struct dnn_md md = {0};
    if (p->core.places[tensor].placed)
        return LS_OK;
    bool blocked = t->shape.rank == 4 && t->role == LS_ROLE_ACT;
    enum dnn_tag tag = !blocked ? DNN_PLAIN : p->k.block == 16 ? DNN_BLOCKED_16 : DNN_BLOCKED_8;
    LS_TRY(dnn_md_init(&md, t->shape.rank, t->shape.dim, t->dtype, tag));
    enum ls_status st = place_as(p, tensor, &md);
    p->layouts[tensor].blocked = blocked;
    dnn_md_release(&md);
    return st;
}

/* --- nodes --------------------------------------------------------------------------------------------------- */

enum ls_status ensure_execs(struct ls_program *p, int n)
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
    struct ls_graph *g = p->core.g;
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
    p->execs[at] = (struct node_exec){0};
    return ls_program_insert_node(p, at);
}

static int tensor_copy(struct ls_program *p, int tensor, enum ls_role role)
{
    char name[256];
    const struct ls_tensor *t = &p->core.g->tensors[tensor];
    snprintf(name, sizeof name, "%s (reordered)", t->name);
    return ls_graph_tensor(p->core.g, name, role, t->dtype, t->shape);
}

enum ls_status insert_reorder_before(struct ls_program *p, int *node, int tensor, const struct dnn_md *md, int *copy)
{
    *copy = tensor_copy(p, tensor, LS_ROLE_ACT);
    if (*copy == LS_NONE)
        return LS_FAILED;
    p->core.g->tensors[*copy].dtype = p->core.g->act_dtype; /* the only reason for a copy besides its layout */
    LS_TRY(place_as(p, *copy, md));
    LS_TRY(insert_reorder(p, *node, *node, tensor, *copy));
    LS_TRY(kernel_find(p, *node, &p->execs[*node].kernel));
    LS_TRY(p->execs[*node].kernel->prepare(p, *node));
    ++*node;
    return LS_OK;
}

enum ls_status insert_reorder_after(struct ls_program *p, int node, int slot, const struct dnn_md *md)
{
    int wanted = p->core.g->nodes[node].out[slot];
    int copy = tensor_copy(p, wanted, LS_ROLE_ACT);
    if (copy == LS_NONE)
        return LS_FAILED;
    LS_TRY(place_as(p, copy, md));
    p->core.g->nodes[node].out[slot] = copy;
    return insert_reorder(p, node + 1, node, copy, wanted); /* prepared when the walk comes to it */
}
