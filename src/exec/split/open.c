/* The layers of a program that are split, and memory for what travels. */
#include "exec/split/split.h"
#include "base/log.h"
#include "graph/ops.h"

#include <string.h>

/* --- layers ------------------------------------------------------------------------------------------------------- */

static int next_of(const struct ls_graph *g, int *at, const struct ls_op *op)
{
    return *at < g->n_nodes && g->nodes[*at].op == op ? (*at)++ : LS_NONE;
}

static enum ls_status find_backward(const struct ls_graph *g, const char *name, struct ls_split_nodes *n)
{
    n->out_bwd = n->weights = n->data = n->in_bwd = LS_NONE;
    for (int i = n->out; i < g->n_nodes; i++)
        if (g->nodes[i].op == &ls_op_split_out_bwd && strcmp(g->nodes[i].name, name) == 0)
            n->out_bwd = i;
    if (n->out_bwd == LS_NONE)
        return LS_OK;
    int at = n->out_bwd + 1;
    n->weights = next_of(g, &at, &ls_op_dense_bwd_weights);
    n->data = next_of(g, &at, &ls_op_dense_bwd_data);
    n->in_bwd = next_of(g, &at, &ls_op_split_in_bwd);
    n->end = at;
    if ((n->data == LS_NONE) != (n->in_bwd == LS_NONE) || (n->data == LS_NONE && n->weights == LS_NONE))
        return ls_fail(LS_FAILED, "layer %s: the nodes of its gradient do not follow each other", name);
    return LS_OK;
}

static enum ls_status find_nodes(const struct ls_engine *e, const struct ls_net *net, int in, struct ls_split_nodes *n)
{
    const struct ls_graph *g = &net->graph;
    int x = g->nodes[in].in[0];
    *n = (struct ls_split_nodes){.batch = g->tensors[x].shape.dim[0],
                                 .inputs = e->backend->stored(net->program, x),
                                 .in = in,
                                 .dense = in + 1,
                                 .out = in + 2};
    if (in + 2 >= g->n_nodes || g->nodes[in + 1].op != &ls_op_dense || g->nodes[in + 2].op != &ls_op_split_out)
        return ls_fail(LS_FAILED, "layer %s: its nodes do not follow each other", g->nodes[in].name);
    return find_backward(g, g->nodes[in].name, n);
}

/* --- rooms -------------------------------------------------------------------------------------------------------- */

/* Zeroed. */
static enum ls_status open_room(const struct ls_engine *e, struct ls_split_room *room, size_t bytes)
{
    void *memory;
    room->bytes = bytes + sizeof(float); /* queues move whole floats */
    LS_TRY(ls_backend_take(e->backend, room->bytes, &memory));
    room->here = memory;
    if (e->backend->queue->own_memory) {
        LS_TRY(ls_region_map(room->bytes, &memory));
        e->backend->queue->pin(memory, room->bytes);
    }
    room->host = memory;
    return LS_OK;
}

/* The backend's memory is given back first, which waits for all that is enqueued: it may read and write the host's. */
static void close_room(const struct ls_engine *e, struct ls_split_room *room)
{
    bool apart = room->host && room->host != room->here;
    ls_backend_give(e->backend, room->here, room->bytes);
    if (!apart)
        return;
    e->backend->queue->unpin(room->host);
    ls_region_unmap(room->host, room->bytes);
}

/* --- sums of gradients --------------------------------------------------------------------------------------------- */

/* Gradients come in this order: in each round those of all workers, in the order of ranks. */
static int list_slices(struct ls_split *s, int *order)
{
    int n = 0;
    s->samples = INT64_MAX;
    for (s->round = 0; s->round < s->rounds; s->round++)
        for (int w = 0; w < s->workers; w++) {
            struct ls_split_slice slice = ls_split_slice_of(s, w);
            if (slice.replica >= 0)
                order[n++] = slice.replica * s->passes + slice.pass;
        }
    return n;
}

static enum ls_status open_sums(struct ls_split *s, struct ls_split_layer *l, const int *order, int n)
{
    struct ls_engine *e = s->engine;
    const struct ls_node *weights = &e->train.graph.nodes[l->train.weights];
    int first, parts = ls_tree_parts(&s->tree, s->mates.place, &first);
    LS_TRY(ls_sums_init(&l->sums, e->tree->replicas, s->passes, order, n, s->tree.parts + first, parts));
    for (int i = 0; i < 2; i++) {
        size_t bytes = 0;
        l->grads[i] = weights->out[i];
        if (l->grads[i] == LS_NONE)
            continue;
        l->sums.grads[i] = e->backend->memory(e->train.program, l->grads[i], &bytes);
        l->sums.counts[i] = bytes / sizeof(float);
        for (int k = 0; k + 1 < parts; k++)
            l->sums.aside[2 * k + i] = s->side[k].here + (l->sums.grads[i] - e->kept) - s->mates.first;
    }
    return ls_sums_open(&l->sums, e->backend, e->train.program);
}

/* Of both programs. */
static size_t most_inputs(const struct ls_split_layer *l)
{
    return l->train.inputs > l->eval.inputs ? l->train.inputs : l->eval.inputs;
}
static int64_t most_rows(const struct ls_split_layer *l)
{
    return l->train.batch > l->eval.batch ? l->train.batch : l->eval.batch;
}

/* Its nodes are known. */
static enum ls_status open_layer(struct ls_split *s, struct ls_split_layer *l, const int *order, int n)
{
    struct ls_engine *e = s->engine;
    const struct ls_graph *g = &e->train.graph;
    int y = g->nodes[l->train.out].out[0];
    size_t bytes, results = e->backend->stored(e->train.program, y);
    l->rows = g->nodes[l->train.dense].attr.whole_rows;
    l->grads[0] = l->grads[1] = LS_NONE;
    l->columns = (int64_t)results / l->train.batch;
    e->backend->memory(e->train.program, y, &bytes);
    s->size = bytes / results; /* what its memory is rounded up by is less than one more byte each */
    l->x = ls_alloc((size_t)s->workers, sizeof *l->x);
    if (!l->x)
        return LS_FAILED;
    for (int w = 0; w < s->workers; w++)
        LS_TRY(open_room(e, &l->x[w], most_inputs(l) * s->size));
    return l->train.weights == LS_NONE ? LS_OK : open_sums(s, l, order, n);
}

static enum ls_status open_layers(struct ls_split *s)
{
    const struct ls_graph *g = &s->engine->train.graph, *eval = &s->engine->eval.graph;
    enum ls_status st = LS_OK;
    int *order = ls_alloc((size_t)(s->engine->tree->replicas * s->passes), sizeof *order), at = 0;
    s->layers = ls_alloc((size_t)g->n_nodes, sizeof *s->layers);
    if (!order || !s->layers) {
        st = LS_FAILED;
        goto free_order;
    }
    int n = list_slices(s, order);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == &ls_op_split_in) {
            struct ls_split_layer *l = &s->layers[s->n_layers++];
            LS_TRY_GOTO(free_order, find_nodes(s->engine, &s->engine->train, i, &l->train));
            while (at < eval->n_nodes && eval->nodes[at].op != &ls_op_split_in)
                at++;
            if (at < eval->n_nodes)
                LS_TRY_GOTO(free_order, find_nodes(s->engine, &s->engine->eval, at++, &l->eval));
            LS_TRY_GOTO(free_order, open_layer(s, l, order, n));
        }
free_order:
    ls_free(order);
    return st;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* The stretch of the gradients that has all rows. */
static void find_stretch(const struct ls_engine *e, size_t *first, size_t *end)
{
    const struct ls_graph *g = &e->train.graph;
    *first = e->n_grads;
    *end = 0;
    for (int n = 0; n < e->train.end; n++)
        for (int i = 0; i < 2 && g->nodes[n].op == &ls_op_dense_bwd_weights; i++) {
            size_t bytes;
            if (g->nodes[n].out[i] == LS_NONE || g->nodes[n].attr.whole_rows == 0)
                continue;
            const float *grad = e->backend->memory(e->train.program, g->nodes[n].out[i], &bytes);
            size_t at = (size_t)(grad - e->kept),
                   last = at + (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN / sizeof *grad;
            *first = at < *first ? at : *first;
            *end = last > *end ? last : *end;
        }
}

static enum ls_status open_side(struct ls_split *s, int parts)
{
    size_t end;
    find_stretch(s->engine, &s->mates.first, &end);
    size_t floats = end > s->mates.first ? end - s->mates.first : 0;
    s->side = ls_alloc((size_t)parts + 1, sizeof *s->side);
    s->parts_beside = ls_alloc((size_t)parts + 1, sizeof *s->parts_beside);
    if (!s->side || !s->parts_beside)
        return LS_FAILED;
    for (s->n_side = 0; s->n_side + 1 < parts; s->n_side++) {
        LS_TRY(open_room(s->engine, &s->side[s->n_side], floats * sizeof(float)));
        s->parts_beside[s->n_side] = s->side[s->n_side].host;
    }
    s->mates.parts = s->parts_beside;
    return LS_OK;
}

static enum ls_status open_groups(struct ls_split *s)
{
    const struct ls_engine *e = s->engine;
    const struct ls_mesh_axis *data = &e->mesh.axes[LS_PARALLEL_DATA];
    int first, *group_of = ls_alloc((size_t)e->tree->size, sizeof *group_of);
    s->ranks = ls_alloc((size_t)s->workers, sizeof *s->ranks);
    s->mate_ranks = ls_alloc((size_t)data->size, sizeof *s->mate_ranks);
    enum ls_status st = group_of && s->ranks && s->mate_ranks ? LS_OK : LS_FAILED;
    if (st == LS_OK) {
        for (int w = 0; w < s->workers; w++)
            s->ranks[w] = ls_mesh_rank(&e->mesh, LS_PARALLEL_DENSE, w);
        for (int place = 0; place < data->size; place++)
            s->mate_ranks[place] = ls_mesh_rank(&e->mesh, LS_PARALLEL_DATA, place);
        for (int rank = 0; rank < e->tree->size; rank++)
            group_of[rank] = rank / s->workers;
        st = ls_tree_init_grouped(&s->tree, e->tree, data->size, group_of);
    }
    ls_free(group_of);
    if (st != LS_OK)
        return st;
    s->mates = (struct ls_sync_group){.tree = &s->tree, .ranks = s->mate_ranks, .place = data->place};
    int parts = ls_tree_parts(&s->tree, data->place, &first);
    if (ls_tree_most_parts(&s->tree) > LS_SYNC_LOCAL_PARTS)
        return ls_fail(LS_FAILED, "a group of workers has more than %d parts of a sum", LS_SYNC_LOCAL_PARTS);
    return open_side(s, parts);
}

const struct ls_sync_group *ls_split_mates(const struct ls_engine *e)
{
    return e->split && e->split->mates.tree->size > 1 ? &e->split->mates : NULL;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static enum ls_status open_lane(const struct ls_engine *e, struct ls_split_lane *lane, size_t bytes)
{
    LS_TRY(open_room(e, &lane->send, bytes));
    return open_room(e, &lane->receive, bytes);
}

static enum ls_status open_lanes(struct ls_split *s)
{
    const struct ls_split_way *way = &s->engine->backend->split;
    size_t rows = 0, parts = 0, longest = 0;
    for (int i = 0; i < s->n_layers; i++) {
        const struct ls_split_layer *l = &s->layers[i];
        int chunks = 0;
        for (int w = 0; w < s->workers; w++) {
            int n = ls_split_first_chunk(way, l->rows, w + 1, s->workers) -
                    ls_split_first_chunk(way, l->rows, w, s->workers);
            chunks = n > chunks ? n : chunks;
        }
        size_t most = (size_t)(most_rows(l) * ls_split_chunk(l->rows) * chunks);
        size_t results = (size_t)(most_rows(l) * l->columns);
        rows = most > rows ? most : rows;
        parts = LS_SPLIT_PARTS * l->train.inputs > parts ? LS_SPLIT_PARTS * l->train.inputs : parts;
        longest = results > longest ? results : longest;
        longest = most_inputs(l) > longest ? most_inputs(l) : longest;
    }
    s->rows = ls_alloc((size_t)s->workers, sizeof *s->rows);
    s->parts = ls_alloc((size_t)s->workers, sizeof *s->parts);
    if (!s->rows || !s->parts)
        return LS_FAILED;
    for (int w = 0; w < s->workers; w++) {
        LS_TRY(open_lane(s->engine, &s->rows[w], rows * s->size));
        LS_TRY(open_lane(s->engine, &s->parts[w], parts * sizeof(float)));
    }
    return open_room(s->engine, &s->zeros, longest * s->size);
}

/* --- */

enum ls_status ls_split_open(struct ls_engine *e, const struct ls_options *o)
{
    const struct ls_mesh_axis *axis = &e->mesh.axes[LS_PARALLEL_DENSE];
    if (axis->size < 2)
        return LS_OK;
    struct ls_split *s = e->split = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    *s = (struct ls_split){.engine = e, .workers = axis->size, .me = axis->place, .passes = (int)o->accumulate};
    LS_TRY(open_groups(s));
    for (int w = 0; w < s->workers; w++)
        s->rounds = ls_split_slices(s, w) > s->rounds ? ls_split_slices(s, w) : s->rounds;
    LS_TRY(open_layers(s));
    return open_lanes(s);
}

static void close_lanes(const struct ls_engine *e, struct ls_split_lane *lanes, int n)
{
    for (int i = 0; lanes && i < n; i++) {
        close_room(e, &lanes[i].send);
        close_room(e, &lanes[i].receive);
    }
    ls_free(lanes);
}

void ls_split_close(struct ls_engine *e)
{
    struct ls_split *s = e->split;
    if (!s)
        return;
    for (int i = 0; i < s->n_layers; i++) {
        for (int w = 0; s->layers[i].x && w < s->workers; w++)
            close_room(e, &s->layers[i].x[w]);
        ls_free(s->layers[i].x);
        ls_sums_release(&s->layers[i].sums);
    }
    close_lanes(e, s->rows, s->workers);
    close_lanes(e, s->parts, s->workers);
    close_room(e, &s->zeros);
    for (int i = 0; s->side && i <= s->n_side; i++)
        close_room(e, &s->side[i]);
    ls_tree_release(&s->tree);
    ls_free(s->side);
    ls_free(s->parts_beside);
    ls_free(s->ranks);
    ls_free(s->mate_ranks);
    ls_free(s->layers);
    ls_free(s);
    e->split = NULL;
}
