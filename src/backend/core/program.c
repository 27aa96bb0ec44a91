#include "backend/core/program.h"
#include "base/log.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

void ls_program_init(struct ls_program *p, const struct ls_backend_options *options, struct ls_graph *g,
                     struct ls_store *store)
{
    struct ls_program_core *c = ls_core_of(p);
    c->options = *options;
    c->g = g;
    c->store = store;
}

void ls_program_release(struct ls_program *p)
{
    struct ls_program_core *c = ls_core_of(p);
    ls_free(c->places);
    ls_free(c->nodes);
    ls_free(c->spans);
    ls_free(c->choices);
}

/* --- lists as long as the graph's ------------------------------------------------------------------------------ */

static enum ls_status reserve_places(struct ls_program_core *c)
{
    if (c->g->n_tensors <= c->place_room)
        return LS_OK;
    int room = c->g->n_tensors * 2;
    struct ls_place *places = ls_realloc(c->places, (size_t)c->place_room, (size_t)room, sizeof *places);
    if (!places)
        return LS_FAILED;
    for (int t = c->place_room; t < room; t++)
        places[t].span = LS_NONE;
    c->places = places;
    c->place_room = room;
    return LS_OK;
}

static const struct ls_node_memory no_memory = {
    .scratch_until = LS_NONE, .keep_until = LS_NONE, .scratch_span = LS_NONE, .keep_span = LS_NONE};

enum ls_status ls_program_reserve(struct ls_program *p)
{
    struct ls_program_core *c = ls_core_of(p);
    LS_TRY(reserve_places(c));
    if (c->g->n_nodes <= c->node_room)
        return LS_OK;
    int room = c->g->n_nodes * 2;
    struct ls_node_memory *nodes = ls_realloc(c->nodes, (size_t)c->node_room, (size_t)room, sizeof *nodes);
    if (!nodes)
        return LS_FAILED;
    for (int n = c->node_room; n < room; n++)
        nodes[n] = no_memory;
    c->nodes = nodes;
    c->node_room = room;
    return LS_OK;
}

enum ls_status ls_program_insert_node(struct ls_program *p, int at)
{
    struct ls_program_core *c = ls_core_of(p);
    LS_TRY(ls_program_reserve(p));
    memmove(c->nodes + at + 1, c->nodes + at, (size_t)(c->g->n_nodes - 1 - at) * sizeof *c->nodes);
    c->nodes[at] = no_memory;
    return LS_OK;
}

enum ls_status ls_kernel_find(const char *backend, const struct ls_node *node, const void *const *lists, size_t bytes,
                              const void **kernel)
{
    for (int i = 0; lists[i]; i++)
        for (const char *k = lists[i]; *(const char *const *)(const void *)k; k += bytes)
            if (strcmp(*(const char *const *)(const void *)k, node->op->name) == 0) {
                *kernel = k;
                return LS_OK;
            }
    return ls_fail(LS_FAILED, "layer %s: backend %s has no kernel for op %s", node->name, backend, node->op->name);
}

/* --- placing ---------------------------------------------------------------------------------------------------- */

bool ls_program_keeps(const struct ls_program *p, int tensor)
{
    const struct ls_program_core *c = ls_core_of(p);
    return c->g->tensors[tensor].role == LS_ROLE_GRAD && c->options.keep_grads;
}

enum ls_status ls_program_place(struct ls_program *p, int tensor, size_t bytes, size_t extra,
                                struct ls_store_entry **entry, bool *fresh)
{
    struct ls_program_core *c = ls_core_of(p);
    const struct ls_tensor *t = &c->g->tensors[tensor];
    struct ls_place *place = &c->places[tensor];
    *entry = NULL;
    *fresh = false;
    place->bytes = bytes;
    place->placed = true;
    if (!ls_role_kept(t->role) || (t->apart && t->role == LS_ROLE_OPTIMIZER)) /* one program has such state */
        return LS_OK;
    *entry = ls_store_find(c->store, t->name);
    if (!*entry) {
        LS_TRY((t->apart ? ls_store_note : ls_store_add)(c->store, t->name, bytes + extra, entry));
        *fresh = true;
    }
    place->data = (*entry)->memory;
    return LS_OK;
}

/* --- planning ------------------------------------------------------------------------------------------------- */

void ls_program_place_grads(struct ls_program *p)
{
    struct ls_program_core *c = ls_core_of(p);
    for (int n = 0; n < c->g->n_nodes; n++)
        for (int o = 0; o < LS_MAX_OUT; o++) {
            int t = c->g->nodes[n].out[o];
            if (t == LS_NONE || !ls_program_keeps(p, t))
                continue;
            c->places[t].offset = c->grad_bytes;
            c->grad_bytes += c->places[t].bytes;
        }
}

static int add_span(struct ls_program_core *c, size_t align, size_t bytes, int first, int last)
{
    bytes = (bytes + align - 1) / align * align;
    c->spans[c->n_spans] = (struct ls_span){.bytes = bytes, .first = first, .last = last, .over = LS_NONE};
    return c->n_spans++;
}

static bool in_arena(const struct ls_program *p, int tensor)
{
    const struct ls_program_core *c = ls_core_of(p);
    const struct ls_tensor *t = &c->g->tensors[tensor];
    return c->places[tensor].placed && !c->places[tensor].unmade && !ls_role_kept(t->role) &&
           !ls_program_keeps(p, tensor) && t->role != LS_ROLE_INPUT;
}

/* The result of node n lies on its input, where graph and backend allow it. */
static void plan_in_place(struct ls_program *p, const struct ls_plan_rules *rules, int n, const int *last)
{
    struct ls_program_core *c = ls_core_of(p);
    const struct ls_node *node = &c->g->nodes[n];
    if (rules->in_place && !rules->in_place(p, n))
        return;
    int in = ls_plan_inplace(c->g, n, last);
    if (in == LS_NONE)
        return;
    const struct ls_place *from = &c->places[in], *to = &c->places[node->out[0]];
    if (from->span != LS_NONE && to->span != LS_NONE && from->bytes == to->bytes)
        c->spans[to->span].over = from->span;
}

/* Where gradients are kept, a strategy may run an update while the pass still runs. */
static bool runs_early(const struct ls_program_core *c, int n)
{
    return c->options.keep_grads && c->g->nodes[n].phase == LS_UPDATE;
}

/* Such updates share scratch with each other and with nothing else. */
static void plan_early_scratch(struct ls_program_core *c, const struct ls_plan_rules *rules)
{
    size_t most = 0;
    for (int n = 0; n < c->g->n_nodes; n++)
        if (runs_early(c, n) && !c->nodes[n].scratch_apart && c->nodes[n].scratch_bytes > most)
            most = c->nodes[n].scratch_bytes;
    int span = most > 0 ? add_span(c, rules->align, most, 0, c->g->n_nodes - 1) : LS_NONE;
    for (int n = 0; n < c->g->n_nodes; n++)
        if (runs_early(c, n) && !c->nodes[n].scratch_apart && c->nodes[n].scratch_bytes > 0)
            c->nodes[n].scratch_span = span;
}

static void plan_node(struct ls_program_core *c, const struct ls_plan_rules *rules, int n)
{
    struct ls_node_memory *m = &c->nodes[n];
    if (m->scratch_bytes && !m->scratch_apart && !runs_early(c, n))
        m->scratch_span =
            add_span(c, rules->align, m->scratch_bytes, n, m->scratch_until == LS_NONE ? n : m->scratch_until);
    if (m->keep_bytes)
        m->keep_span = add_span(c, rules->align, m->keep_bytes, n, m->keep_until);
}

enum ls_status ls_program_plan(struct ls_program *p, const struct ls_plan_rules *rules)
{
    enum ls_status st = LS_OK;
    struct ls_program_core *c = ls_core_of(p);
    const struct ls_graph *g = c->g;
    int *first = ls_alloc((size_t)g->n_tensors, sizeof *first), *last = ls_alloc((size_t)g->n_tensors, sizeof *last);
    c->spans = ls_alloc((size_t)(g->n_tensors + 2 * g->n_nodes), sizeof *c->spans);
    if (!first || !last || !c->spans) {
        st = LS_FAILED;
        goto free_lives;
    }
    ls_plan_lifetimes(g, first, last);
    if (rules->adjust)
        rules->adjust(p, first, last);
    for (int t = 0; t < g->n_tensors; t++)
        if (last[t] >= 0 && in_arena(p, t))
            c->places[t].span = add_span(c, rules->align, c->places[t].bytes, first[t], last[t]);
    for (int n = 0; n < g->n_nodes; n++) {
        plan_in_place(p, rules, n, last);
        plan_node(c, rules, n);
    }
    plan_early_scratch(c, rules);
    ls_program_place_grads(p);
    st = ls_plan_place(c->spans, c->n_spans, c->options.reuse, &c->arena_bytes);
free_lives:
    ls_free(first);
    ls_free(last);
    return st;
}

/* --- for struct ls_backend --------------------------------------------------------------------------------------- */

size_t ls_program_arena_bytes(const struct ls_program *p)
{
    return ls_core_of(p)->arena_bytes;
}

size_t ls_program_grad_bytes(const struct ls_program *p)
{
    return ls_core_of(p)->grad_bytes;
}

void ls_program_bind(struct ls_program *p, void *arena, void *grads)
{
    struct ls_program_core *c = ls_core_of(p);
    for (int t = 0; t < c->g->n_tensors; t++) {
        struct ls_place *place = &c->places[t];
        if (ls_program_keeps(p, t))
            place->data = (char *)grads + place->offset;
        else if (place->span != LS_NONE)
            place->data = (char *)arena + c->spans[place->span].offset;
    }
    for (int n = 0; n < c->g->n_nodes; n++) {
        struct ls_node_memory *m = &c->nodes[n];
        if (m->scratch_span != LS_NONE)
            m->scratch = (char *)arena + c->spans[m->scratch_span].offset;
        if (m->keep_span != LS_NONE)
            m->keep = c->nodes[m->keep_until].keep = (char *)arena + c->spans[m->keep_span].offset;
    }
}

void *ls_program_memory(const struct ls_program *p, int tensor, size_t *bytes)
{
    const struct ls_place *place = &ls_core_of(p)->places[tensor];
    *bytes = place->bytes;
    return place->data;
}

void ls_program_point(struct ls_program *p, int tensor, void *memory, void *copy)
{
    (void)copy; /* without copies in 16 bits */
    ls_core_of(p)->places[tensor].data = memory;
}

const char *ls_program_choices(const struct ls_program *p)
{
    const char *choices = ls_core_of(p)->choices;
    return choices ? choices : "";
}

const char *ls_program_where(const struct ls_program *p, int tensor, char text[64])
{
    const struct ls_program_core *c = ls_core_of(p);
    *text = 0;
    if (tensor == LS_NONE || c->places[tensor].span == LS_NONE)
        return text;
    const struct ls_span *s = &c->spans[c->places[tensor].span];
    snprintf(text, 64, "%zu+%zu%s", s->offset, s->bytes, s->over != LS_NONE ? " in place" : "");
    return text;
}
