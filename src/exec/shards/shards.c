/* Which process updates what, and the state that it holds for that. */
#include "exec/shards/shards.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/shards/params.h"
#include "exec/shards/plan.h"
#include "graph/ops.h"

#include <string.h>

#define PIECE ((size_t)2 << 20) /* floats; the parameters of one piece come back while the next one is updated */
#define COPY 65536              /* floats that a thread copies at once */

/* --- the graph -------------------------------------------------------------------------------------------------- */

bool ls_shards_updates(const struct ls_graph *g, int node)
{
    const struct ls_node *n = &g->nodes[node];
    return n->phase == LS_UPDATE && n->op->update && n->op != &ls_op_ema && g->tensors[n->in[0]].role == LS_ROLE_PARAM;
}

int ls_shards_average(const struct ls_graph *g, int update)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == &ls_op_ema && g->nodes[n].in[0] == g->nodes[update].in[0])
            return n;
    return LS_NONE;
}

int ls_shards_tensors(const struct ls_graph *g, int update, int tensors[LS_SHARDED])
{
    int n = 0, average = ls_shards_average(g, update);
    for (int i = 0; i < LS_MAX_STATES; i++)
        if (g->nodes[update].in[2 + i] != LS_NONE)
            tensors[n++] = g->nodes[update].in[2 + i];
    if (!g->tensors[g->nodes[update].in[0]].apart)
        return n;
    tensors[n++] = g->nodes[update].in[0];
    if (average != LS_NONE)
        tensors[n++] = g->nodes[average].in[2];
    return n;
}

void ls_shards_mark(struct ls_graph *g, bool parameters)
{
    for (int node = 0; node < g->n_nodes; node++) {
        int tensors[LS_SHARDED];
        if (!ls_shards_updates(g, node))
            continue;
        g->tensors[g->nodes[node].in[0]].apart = parameters;
        for (int i = ls_shards_tensors(g, node, tensors) - 1; i >= 0; i--)
            g->tensors[tensors[i]].apart = true;
    }
}

void ls_shards_mark_like(struct ls_graph *other, const struct ls_graph *g)
{
    for (int t = 0; t < other->n_tensors; t++) {
        int number = other->tensors[t].role == LS_ROLE_PARAM ? ls_graph_find(g, other->tensors[t].name) : LS_NONE;
        other->tensors[t].apart = number != LS_NONE && g->tensors[number].apart;
    }
}

bool ls_shards_by_norm(const struct ls_engine *e)
{
    const struct ls_graph *g = &e->train.graph;
    bool any = false;
    for (int n = e->train.end; n < g->n_nodes; n++)
        any = any || g->nodes[n].op->by_norm;
    return any;
}

/* --- pieces ----------------------------------------------------------------------------------------------------- */

static bool bucket_by_norm(const struct ls_engine *e, int bucket)
{
    for (int i = e->update_first[bucket]; i < e->update_first[bucket + 1]; i++)
        if (e->train.graph.nodes[e->update_nodes[i]].op->by_norm)
            return true;
    return false;
}

static size_t most_floats(const struct ls_engine *e)
{
    size_t most = ls_comm_most_scattered(e->comm) / sizeof(float) / 16 * 16;
    return most < PIECE ? most : PIECE;
}

static void cut_bucket(struct ls_shards *h, const struct ls_engine *e, int bucket, int owner)
{
    const struct ls_bucket *b = &e->buckets[bucket];
    size_t most = owner == LS_OWNER_EACH && !e->peers ? most_floats(e) : b->count;
    for (size_t at = 0; at < b->count; at += most)
        h->pieces[h->n_pieces++] = (struct ls_sync_piece){.bucket = bucket,
                                                          .first = b->first + at,
                                                          .count = b->count - at < most ? b->count - at : most,
                                                          .owner = owner};
}

static enum ls_status cut_pieces(struct ls_shards *h, const struct ls_engine *e)
{
    enum ls_status st = LS_FAILED;
    size_t n = (size_t)e->n_buckets, room = n + e->n_grads / most_floats(e) + 1;
    size_t *counts = ls_alloc(n, sizeof *counts);
    int *owners = ls_alloc(n, sizeof *owners);
    h->pieces = ls_alloc(room, sizeof *h->pieces);
    if (!counts || !owners || !h->pieces)
        goto free_lists;
    for (int b = 0; b < e->n_buckets; b++)
        counts[b] = bucket_by_norm(e, b) ? e->buckets[b].count : 0;
    LS_TRY_GOTO(free_lists, ls_shards_balance(counts, e->n_buckets, ls_comm_size(e->comm), owners));
    for (int b = 0; b < e->n_buckets; b++)
        cut_bucket(h, e, b, e->buckets[b].plain ? LS_OWNER_ALL : counts[b] > 0 ? owners[b] : LS_OWNER_EACH);
free_lists:
    ls_free(counts);
    ls_free(owners);
    return st;
}

/* --- segments --------------------------------------------------------------------------------------------------- */

void ls_shards_own(const struct ls_engine *e, int piece, int rank, size_t *first, size_t *last)
{
    const struct ls_sync_piece *p = &e->shards->pieces[piece];
    *first = 0;
    *last = p->owner == rank ? p->count : 0;
    if (p->owner == LS_OWNER_EACH)
        ls_comm_range(e->comm, p->count, rank, first, last);
    *first += p->first;
    *last += p->first;
}

struct ls_window ls_shards_window(const struct ls_engine *e, const struct ls_segment *s, int rank)
{
    size_t first, last;
    ls_shards_own(e, s->piece, rank, &first, &last);
    first = first > s->grad ? first : s->grad;
    last = last < s->grad + s->count ? last : s->grad + s->count;
    return last > first ? (struct ls_window){.on = true, .first = s->offset + first - s->grad, .count = last - first}
                        : (struct ls_window){.on = true};
}

/* A parameter and the memory of its gradient. */
static float *grad_memory(const struct ls_engine *e, int node, size_t *floats)
{
    const struct ls_node *n = &e->train.graph.nodes[node];
    size_t bytes;
    e->backend->memory(e->train.program, n->in[0], &bytes);
    *floats = (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN / sizeof(float);
    return e->backend->memory(e->train.program, n->in[1], &bytes);
}

/* The part of an update's tensors that lies in a piece; count 0: none. */
static struct ls_segment segment_of(const struct ls_engine *e, int piece, int node)
{
    const struct ls_sync_piece *p = &e->shards->pieces[piece];
    size_t floats, at = (size_t)(grad_memory(e, node, &floats) - e->kept);
    size_t first = at > p->first ? at : p->first;
    size_t last = at + floats < p->first + p->count ? at + floats : p->first + p->count;
    return (struct ls_segment){
        .piece = piece, .node = node, .grad = first, .count = last > first ? last - first : 0, .offset = first - at};
}

static enum ls_status list_segments(struct ls_engine *e)
{
    struct ls_shards *h = e->shards;
    const struct ls_graph *g = &e->train.graph;
    for (int round = 0; round < 2; round++) {
        h->n_segments = 0;
        for (int piece = 0; piece < h->n_pieces; piece++) {
            h->first[piece] = h->n_segments;
            for (int node = e->train.end; h->pieces[piece].owner != LS_OWNER_ALL && node < g->n_nodes; node++) {
                if (!ls_shards_updates(g, node))
                    continue;
                struct ls_segment s = segment_of(e, piece, node);
                if (s.count > 0 && round == 1)
                    h->segments[h->n_segments] = s;
                h->n_segments += s.count > 0;
            }
        }
        h->first[h->n_pieces] = h->n_segments;
        if (round == 0 && !(h->segments = ls_alloc((size_t)h->n_segments, sizeof *h->segments)))
            return LS_FAILED;
    }
    return LS_OK;
}

/* --- state ------------------------------------------------------------------------------------------------------ */

/* This process's windows of an update lie one after the other in the memory of each of its state tensors. */
static size_t place_windows(struct ls_engine *e, int node)
{
    struct ls_shards *h = e->shards;
    size_t at = 0;
    for (int i = 0; i < h->n_segments; i++) {
        struct ls_segment *s = &h->segments[i];
        if (s->node != node)
            continue;
        s->own = ls_shards_window(e, s, ls_comm_rank(e->comm));
        s->own.at = at;
        at += s->own.count;
    }
    return at;
}

/* Adds the parameters of this process to `bytes`, or its state, and gives them memory where there is some. */
static size_t place_held(struct ls_engine *e, char *memory, size_t bytes, bool params)
{
    const struct ls_graph *g = &e->train.graph;
    for (int node = e->train.end; node < g->n_nodes; node++) {
        size_t each = ls_shards_updates(g, node) ? place_windows(e, node) * sizeof(float) : 0;
        int tensors[LS_SHARDED], n = each > 0 ? ls_shards_tensors(g, node, tensors) : 0;
        for (int i = 0; i < n; i++) {
            if ((g->tensors[tensors[i]].role == LS_ROLE_PARAM) != params)
                continue;
            if (memory && params)
                e->shards->params[node] = (float *)(void *)(memory + bytes);
            else if (memory)
                e->backend->point(e->train.program, tensors[i], memory + bytes, NULL);
            bytes += (each + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
        }
    }
    return bytes;
}

enum ls_status ls_shards_open(struct ls_engine *e, const struct ls_options *o)
{
    struct ls_shards *h = e->shards = ls_alloc(1, sizeof *h);
    if (!h)
        return LS_FAILED;
    h->whole = o->clip_norm > 0 || e->train.graph.act_dtype == LS_F16;
    LS_TRY(cut_pieces(h, e));
    h->first = ls_alloc((size_t)h->n_pieces + 1, sizeof *h->first);
    h->params = ls_alloc((size_t)e->train.graph.n_nodes, sizeof *h->params);
    if (!h->first || !h->params)
        return LS_FAILED;
    LS_TRY(list_segments(e));
    h->param_bytes = place_held(e, NULL, 0, true);
    h->bytes = place_held(e, NULL, h->param_bytes, false);
    LS_TRY(ls_backend_take(e->backend, h->bytes, &h->memory));
    place_held(e, h->memory, 0, true);
    place_held(e, h->memory, h->param_bytes, false);
    return ls_params_take_pieces(e);
}

void ls_shards_close(struct ls_engine *e)
{
    struct ls_shards *h = e->shards;
    if (!h)
        return;
    ls_backend_give(e->backend, h->memory, h->bytes);
    ls_free(h->pieces);
    ls_free(h->segments);
    ls_free(h->first);
    ls_free(h->params);
    ls_free(h);
    e->shards = NULL;
}

size_t ls_shards_held(const struct ls_engine *e)
{
    return e->shards ? e->shards->bytes : 0;
}

const struct ls_sync_piece *ls_shards_pieces(const struct ls_engine *e, int *n)
{
    *n = e->shards ? e->shards->n_pieces : 0;
    return e->shards ? e->shards->pieces : NULL;
}

/* --- a step ----------------------------------------------------------------------------------------------------- */

void ls_shards_copy(float *to, const float *from, size_t count)
{
#pragma omp parallel for schedule(static) if (count > COPY)
    for (size_t i = 0; i < count; i += COPY)
        memcpy(to + i, from + i, (count - i < COPY ? count - i : COPY) * sizeof *to);
}

/* Gives the backend sums of gradients, where they are not in its memory. */
static enum ls_status send_sums(const struct ls_engine *e, size_t first, size_t count)
{
    if (e->grads == e->kept)
        return LS_OK;
    return e->backend->queue->send(e->train.program, e->kept + first, e->grads + first, count);
}

/* Copies floats first .. last-1 of a segment's parameter to where its gradient was, or back. A parameter may have fewer floats
 * than its gradient: the rest is padding. Where memory is not the host's, they come with the mark. */
static enum ls_status move_values(const struct ls_engine *e, const struct ls_segment *s, size_t first, size_t last,
                                  bool back)
{
    const struct ls_backend_queue *queue = e->backend->queue;
    int tensor = e->train.graph.nodes[s->node].in[0];
    size_t bytes;
    float *param = e->backend->memory(e->train.program, tensor, &bytes), *grads = e->grads + s->grad - s->offset;
    last = last < bytes / sizeof *param ? last : bytes / sizeof *param;
    if (last <= first)
        return LS_OK;
    if (e->peers) /* back is copy_others */
        return queue->copy(e->train.program, grads + first, param + first, last - first);
    if (queue->own_memory)
        return back ? queue->send_values(e->train.program, tensor, grads + first, first, last - first)
                    : queue->fetch(e->train.program, LS_SHARD_MARK, grads + first, param + first, last - first);
    ls_shards_copy(back ? param + first : grads + first, back ? grads + first : param + first, last - first);
    return LS_OK;
}

/* Looks at all gradients, and clips them: the first update does so in a window without values. When it returns, the host's sums
 * are no longer needed: parameters take their place. */
static enum ls_status look_at_all(struct ls_engine *e, const struct ls_run *run)
{
    struct ls_graph *g = &e->train.graph;
    int node = e->train.end;
    float any;
    while (node < g->n_nodes && !ls_shards_updates(g, node))
        node++;
    if (node == g->n_nodes)
        return LS_OK;
    LS_TRY(send_sums(e, 0, e->n_grads));
    g->nodes[node].window = (struct ls_window){.on = true};
    LS_TRY(e->backend->run(e->train.program, node, node + 1, run));
    if (e->grads == e->kept)
        return LS_OK;
    LS_TRY(e->backend->queue->fetch(e->train.program, LS_SHARD_MARK, &any, e->kept, 1));
    return e->backend->queue->arrived(e->train.program, LS_SHARD_MARK);
}

static enum ls_status run_window(struct ls_engine *e, int node, const struct ls_window *window,
                                 const struct ls_run *run)
{
    e->train.graph.nodes[node].window = *window;
    return e->backend->run(e->train.program, node, node + 1, run);
}

/* The parameter's windows are updated, and averaged. Passes read it in the ring (params.h). */
static enum ls_status update_apart(struct ls_engine *e, const struct ls_segment *s, const struct ls_run *run)
{
    struct ls_window own = s->own;
    int average = ls_shards_average(&e->train.graph, s->node);
    own.apart = e->shards->params[s->node];
    LS_TRY(run_window(e, s->node, &own, run));
    return average != LS_NONE ? run_window(e, average, &own, run) : LS_OK;
}

enum ls_status ls_shards_update(struct ls_engine *e, int piece, const struct ls_run *run)
{
    struct ls_shards *h = e->shards;
    if (piece == 0 && h->whole)
        LS_TRY(look_at_all(e, run));
    for (int i = h->first[piece]; i < h->first[piece + 1]; i++) {
        const struct ls_segment *s = &h->segments[i];
        if (s->own.count == 0)
            continue;
        if (!h->whole)
            LS_TRY(send_sums(e, s->grad - s->offset + s->own.first, s->own.count));
        if (e->params) {
            LS_TRY(update_apart(e, s, run));
            continue;
        }
        LS_TRY(run_window(e, s->node, &s->own, run));
        LS_TRY(move_values(e, s, s->own.first, s->own.first + s->own.count, false));
    }
    return e->peers ? LS_OK : e->backend->queue->arrived(e->train.program, LS_SHARD_MARK);
}

/* Running statistics and averages, which every process has. */
static enum ls_status follow(struct ls_engine *e, int bucket, const struct ls_run *run)
{
    const struct ls_graph *g = &e->train.graph;
    if (e->buckets[bucket].plain)
        LS_TRY(send_sums(e, e->buckets[bucket].first, e->buckets[bucket].count));
    for (int i = e->update_first[bucket]; i < e->update_first[bucket + 1]; i++) {
        int node = e->update_nodes[i];
        if (!ls_shards_updates(g, node) && !g->tensors[g->nodes[node].in[0]].apart)
            LS_TRY(e->backend->run(e->train.program, node, node + 1, run));
    }
    return LS_OK;
}

enum ls_status ls_shards_take(struct ls_engine *e, int piece, const struct ls_run *run)
{
    const struct ls_shards *h = e->shards;
    for (int i = h->first[piece]; !e->params && i < h->first[piece + 1]; i++) {
        const struct ls_segment *s = &h->segments[i];
        size_t end = s->offset + s->count, own = s->own.count > 0 ? s->own.first : end;
        LS_TRY(move_values(e, s, s->offset, own, true));
        LS_TRY(move_values(e, s, own + s->own.count, end, true));
    }
    if (piece + 1 < h->n_pieces && h->pieces[piece + 1].bucket == h->pieces[piece].bucket)
        return LS_OK;
    const struct ls_bucket *b = &e->buckets[h->pieces[piece].bucket];
    LS_TRY(follow(e, h->pieces[piece].bucket, run));
    if (e->drops_grads)
        ls_region_drop(e->grads + b->first, b->count * sizeof *e->grads);
    return LS_OK;
}

/* --- on devices ------------------------------------------------------------------------------------------------- */

/* Takes the parameters that another rank has updated from where its gradients were. */
static enum ls_status copy_others(struct ls_engine *e, int rank)
{
    const struct ls_shards *h = e->shards;
    const float *theirs = e->backend->peers->reach(e->train.program, rank);
    for (int i = 0; i < h->n_segments; i++) {
        const struct ls_segment *s = &h->segments[i];
        struct ls_window w = ls_shards_window(e, s, rank);
        int tensor = e->train.graph.nodes[s->node].in[0];
        size_t bytes;
        e->backend->memory(e->train.program, tensor, &bytes);
        size_t all = bytes / sizeof(float), end = w.first + w.count < all ? w.first + w.count : all;
        if (w.count > 0 && end > w.first)
            LS_TRY(e->backend->queue->copy_values(e->train.program, tensor, theirs + s->grad + w.first - s->offset,
                                                  w.first, end - w.first));
    }
    return LS_OK;
}

/* All that stands behind the updates in shards: running statistics and averages. */
static enum ls_status follow_all(struct ls_engine *e, const struct ls_run *run)
{
    const struct ls_graph *g = &e->train.graph;
    for (int node = e->train.end; node < g->n_nodes;) {
        int first = node;
        while (node < g->n_nodes && !ls_shards_updates(g, node))
            node++;
        if (node > first)
            LS_TRY(e->backend->run(e->train.program, first, node, run));
        while (node < g->n_nodes && ls_shards_updates(g, node))
            node++;
    }
    return LS_OK;
}

/* Before the second meeting no rank's gradients may be written again. */
enum ls_status ls_shards_run(struct ls_engine *e, const struct ls_run *run)
{
    for (int piece = 0; piece < e->shards->n_pieces; piece++)
        LS_TRY(ls_shards_update(e, piece, run));
    LS_TRY(e->backend->peers->meet(e->train.program));
    for (int rank = 0; rank < ls_comm_size(e->comm); rank++)
        if (rank != ls_comm_rank(e->comm))
            LS_TRY(copy_others(e, rank));
    LS_TRY(e->backend->peers->meet(e->train.program));
    return follow_all(e, run);
}
