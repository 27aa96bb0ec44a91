/* A layer in a round. The messages of a worker to another have one tag for each layer and kind.
 *
 * A node runs once for each worker, so its scratch may lie over the inputs of nodes before it and the results of nodes behind
 * it. Therefore own values are put aside before the first node runs, and results are written when the last one has run. */
#include "exec/split/split.h"
#include "base/log.h"

#include <string.h>

enum kind { INPUTS, RESULTS, RESULT_GRADIENTS, INPUT_GRADIENTS, KINDS };
enum { FIRST_TAG = 1 << 17 };

static const struct ls_backend_queue *queue_of(const struct ls_split *s)
{
    return s->engine->backend->queue;
}

static void *values_of(const struct ls_split *s, const struct ls_split_turn *t, int tensor)
{
    size_t bytes;
    return s->engine->backend->memory(t->net->program, tensor, &bytes);
}

static const struct ls_node *node_at(const struct ls_split_turn *t, int node)
{
    return &t->net->graph.nodes[node];
}

/* The columns of a worker's rows in results, as stored: the last rows have the padding. */
static int64_t first_column(const struct ls_split *s, const struct ls_split_layer *l, int worker)
{
    return worker == s->workers ? l->columns
                                : ls_split_first_row(&s->engine->backend->split, l->rows, worker, s->workers);
}
static int64_t columns_of(const struct ls_split *s, const struct ls_split_layer *l, int worker)
{
    return first_column(s, l, worker + 1) - first_column(s, l, worker);
}

/* Bytes of a worker's inputs; of the results of a worker's rows for the samples of one. */
static size_t input_bytes(const struct ls_split *s, const struct ls_split_turn *t)
{
    return t->nodes->inputs * s->size;
}
static size_t result_bytes(const struct ls_split *s, const struct ls_split_turn *t, const struct ls_split_layer *l,
                           int worker)
{
    return (size_t)(t->nodes->batch * columns_of(s, l, worker)) * s->size;
}
/* Queues move whole floats: all memory has room for that. */
static size_t floats_in(size_t bytes)
{
    return (bytes + sizeof(float) - 1) / sizeof(float);
}

/* The chunks of a worker, and its parts: part i is chunks [at[i], at[i + 1]). Returns their number. */
static int parts_of(const struct ls_split *s, const struct ls_split_layer *l, int worker, int at[LS_SPLIT_CHUNKS + 1])
{
    const struct ls_split_way *way = &s->engine->backend->split;
    return ls_split_parts(ls_split_first_chunk(way, l->rows, worker, s->workers),
                          ls_split_first_chunk(way, l->rows, worker + 1, s->workers), ls_split_count(l->rows), at);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* The mark of what is fetched for a worker. The last one is that of values (device/host_copy.c). */
static int mark_of(int worker)
{
    return LS_QUEUE_MARKS - 2 - worker;
}

static void post(struct ls_split *s, const struct ls_split_layer *l, enum kind kind, bool send, int worker,
                 const struct ls_split_room *room, size_t bytes, struct ls_work *work)
{
    *work = (struct ls_work){.kind = send ? LS_WORK_SEND : LS_WORK_RECEIVE,
                             .peer = s->ranks[worker],
                             .tag = FIRST_TAG + (uint32_t)((l - s->layers) * KINDS) + kind,
                             .data = room->host,
                             .bytes = bytes};
    ls_comm_post(s->engine->comm, work);
}

/* Between a room's two memories. What is fetched has arrived after `fetched`. */
static enum ls_status fetch(const struct ls_split *s, const struct ls_split_turn *t, int worker,
                            const struct ls_split_room *room, size_t bytes)
{
    return queue_of(s)->fetch(t->net->program, mark_of(worker), room->host, room->here, floats_in(bytes));
}
static enum ls_status fetched(const struct ls_split *s, const struct ls_split_turn *t, int worker)
{
    return queue_of(s)->arrived(t->net->program, mark_of(worker));
}
static enum ls_status take(const struct ls_split *s, const struct ls_split_turn *t, const struct ls_split_room *room,
                           size_t bytes)
{
    return queue_of(s)->send(t->net->program, room->here, room->host, floats_in(bytes));
}

static enum ls_status copy(const struct ls_split *s, const struct ls_split_turn *t, void *to, const void *from,
                           size_t bytes)
{
    return queue_of(s)->copy(t->net->program, to, from, floats_in(bytes));
}

/* SPLIT-4. */
static enum ls_status drain(struct ls_split *s, const struct ls_split_turn *t)
{
    if (queue_of(s)->delay == 0)
        return LS_OK;
    LS_TRY(queue_of(s)->fetch(t->net->program, mark_of(s->me), NULL, NULL, 0));
    return fetched(s, t, s->me);
}

/* After an error, nothing may be under way that reads or writes memory which is given back. */
static enum ls_status give_up(struct ls_split *s, enum ls_status st)
{
    for (int w = 0; st != LS_OK && w < s->workers; w++) {
        ls_comm_give_up(s->engine->comm, &s->rows[w].sent, 1);
        ls_comm_give_up(s->engine->comm, &s->rows[w].received, 1);
        ls_comm_give_up(s->engine->comm, &s->parts[w].sent, 1);
        ls_comm_give_up(s->engine->comm, &s->parts[w].received, 1);
    }
    return st;
}

static enum ls_status await_sent(struct ls_split *s, struct ls_split_lane *lanes, const bool *to, bool all)
{
    for (int w = 0; w < s->workers; w++)
        if (w != s->me && (all || to[w]))
            LS_TRY(ls_comm_wait(s->engine->comm, &lanes[w].sent));
    return LS_OK;
}

/* The columns of a worker's rows, of all samples: out of whole results, or into them. */
static enum ls_status copy_columns(const struct ls_split *s, const struct ls_split_turn *t,
                                   const struct ls_split_layer *l, int worker, void *columns, void *whole, bool out)
{
    size_t n = (size_t)columns_of(s, l, worker) * s->size, all = (size_t)l->columns * s->size;
    char *at = (char *)whole + (size_t)first_column(s, l, worker) * s->size;
    return queue_of(s)->columns(t->net->program, out ? columns : at, out ? n : all, out ? at : columns, out ? all : n,
                                n, (size_t)t->nodes->batch);
}

static enum ls_status run_node(struct ls_split *s, const struct ls_split_turn *t, int node)
{
    return s->engine->backend->run(t->net->program, node, node + 1, t->run);
}

/* The worker that comes `i` turns after this one: no two workers send to the same one first. */
static int after_me(const struct ls_split *s, int i)
{
    return (s->me + i) % s->workers;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* The results of our rows for the samples of a worker. */
static enum ls_status rows_forward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t, int w)
{
    const struct ls_node *dense = node_at(t, t->nodes->dense);
    const struct ls_split_room *to = w == s->me ? &s->rows[w].receive : &s->rows[w].send;
    size_t bytes = result_bytes(s, t, l, s->me);
    LS_TRY(copy(s, t, values_of(s, t, dense->in[0]), l->x[w].here, input_bytes(s, t)));
    LS_TRY(run_node(s, t, t->nodes->dense));
    LS_TRY(copy(s, t, to->here, values_of(s, t, dense->out[0]), bytes));
    return w == s->me ? LS_OK : fetch(s, t, w, to, bytes);
}

static enum ls_status post_rows(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t, int w)
{
    LS_TRY(fetched(s, t, w));
    post(s, l, RESULTS, true, w, &s->rows[w].send, result_bytes(s, t, l, s->me), &s->rows[w].sent);
    return LS_OK;
}

/* The rows of all workers' samples, our own first. Results are sent when the next worker's are enqueued. */
static enum ls_status all_rows_forward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    int due = LS_NONE;
    for (int i = 0; i < s->workers; i++) {
        int w = after_me(s, i);
        if (!t->active[w])
            continue;
        if (i > 0) {
            LS_TRY(ls_comm_wait(s->engine->comm, &s->parts[w].received));
            LS_TRY(take(s, t, &l->x[w], input_bytes(s, t)));
        }
        LS_TRY(rows_forward(s, l, t, w));
        if (due != LS_NONE)
            LS_TRY(post_rows(s, l, t, due));
        due = i > 0 ? w : LS_NONE;
        if (due != LS_NONE && queue_of(s)->delay == 0) {
            LS_TRY(post_rows(s, l, t, due));
            due = LS_NONE;
        }
    }
    return due != LS_NONE ? post_rows(s, l, t, due) : LS_OK;
}

/* Whole results for our own samples. */
static enum ls_status take_results(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    void *y = values_of(s, t, node_at(t, t->nodes->out)->out[0]);
    for (int i = 0; i < s->workers; i++) {
        int w = after_me(s, i);
        const struct ls_split_room *room = &s->rows[w].receive;
        if (i > 0)
            LS_TRY(ls_comm_wait(s->engine->comm, &s->rows[w].received));
        if (t->serves)
            continue;
        if (i > 0)
            LS_TRY(take(s, t, room, result_bytes(s, t, l, w)));
        LS_TRY(copy_columns(s, t, l, w, room->here, y, false));
    }
    return LS_OK;
}

static enum ls_status forward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    bool mine = t->active[s->me];
    const void *x = t->serves ? s->zeros.here : values_of(s, t, node_at(t, t->nodes->in)->in[0]);
    if (mine) {
        LS_TRY(copy(s, t, l->x[s->me].here, x, input_bytes(s, t)));
        LS_TRY(fetch(s, t, s->me, &l->x[s->me], input_bytes(s, t)));
    }
    LS_TRY(mine ? fetched(s, t, s->me) : drain(s, t));
    for (int i = 1; i < s->workers; i++) {
        int w = after_me(s, i);
        if (t->active[w])
            post(s, l, INPUTS, false, w, &l->x[w], input_bytes(s, t), &s->parts[w].received);
        if (mine) {
            post(s, l, RESULTS, false, w, &s->rows[w].receive, result_bytes(s, t, l, w), &s->rows[w].received);
            post(s, l, INPUTS, true, w, &l->x[s->me], input_bytes(s, t), &s->parts[w].sent);
        }
    }
    LS_TRY(all_rows_forward(s, l, t));
    if (mine)
        LS_TRY(take_results(s, l, t));
    LS_TRY(await_sent(s, s->rows, t->active, false));
    return mine ? await_sent(s, s->parts, t->active, true) : LS_OK;
}

enum ls_status ls_split_forward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    return give_up(s, forward(s, l, t));
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* The gradient of the results of our rows, for the samples of a worker: where the nodes read it. */
static enum ls_status load_gradient(struct ls_split *s, const struct ls_split_layer *l, const struct ls_split_turn *t,
                                    int w)
{
    void *to = values_of(s, t, node_at(t, t->nodes->out_bwd)->out[0]);
    return copy(s, t, to, s->rows[w].receive.here, result_bytes(s, t, l, s->me));
}

/* Bytes of a worker's parts of the gradient of another one's inputs. */
static size_t part_bytes(const struct ls_split *s, const struct ls_split_layer *l, int worker)
{
    int at[LS_SPLIT_CHUNKS + 1];
    return (size_t)parts_of(s, l, worker, at) * l->train.inputs * sizeof(float);
}

/* Our parts of the gradient of a worker's inputs. */
static enum ls_status rows_data(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t, int w)
{
    const struct ls_split_room *room = &s->parts[w].send;
    size_t bytes = part_bytes(s, l, s->me);
    LS_TRY(load_gradient(s, l, t, w));
    LS_TRY(run_node(s, t, t->nodes->data));
    LS_TRY(copy(s, t, room->here, values_of(s, t, node_at(t, t->nodes->data)->out[0]), bytes));
    return w == s->me ? LS_OK : fetch(s, t, w, room, bytes);
}

static enum ls_status post_parts(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t, int w)
{
    LS_TRY(fetched(s, t, w));
    post(s, l, INPUT_GRADIENTS, true, w, &s->parts[w].send, part_bytes(s, l, s->me), &s->parts[w].sent);
    return LS_OK;
}

static enum ls_status rows_weights(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t, int w)
{
    struct ls_split_slice slice = ls_split_slice_of(s, w);
    if (slice.replica < 0)
        return LS_OK;
    if (slice.active) {
        LS_TRY(load_gradient(s, l, t, w));
        LS_TRY(copy(s, t, values_of(s, t, node_at(t, t->nodes->weights)->in[1]), l->x[w].here, input_bytes(s, t)));
        LS_TRY(run_node(s, t, t->nodes->weights));
    }
    return ls_sums_take(&l->sums, slice.replica, slice.pass, slice.active);
}

/* Adds the parts of all workers along the tree of SPLIT-1. The last node makes dx of the sum. */
static enum ls_status add_parts(struct ls_split *s, const struct ls_split_layer *l, const struct ls_split_turn *t)
{
    float *stack[LS_SPLIT_CHUNKS];
    int starts[LS_SPLIT_CHUNKS], depth = 0, chunks = ls_split_count(l->rows);
    for (int w = 0; w < s->workers; w++) {
        int at[LS_SPLIT_CHUNKS + 1], n = parts_of(s, l, w, at);
        const struct ls_split_room *room = w == s->me ? &s->parts[w].send : &s->parts[w].receive;
        if (w != s->me)
            LS_TRY(take(s, t, room, part_bytes(s, l, w)));
        for (int i = 0; i < n; i++) {
            stack[depth] = room->here + (size_t)i * l->train.inputs;
            for (starts[depth++] = at[i]; depth > 1; depth--) {
                if (!ls_split_joins(starts[depth - 2], starts[depth - 1], at[i + 1], chunks))
                    break;
                LS_TRY(queue_of(s)->add(t->net->program, stack[depth - 2], stack[depth - 1], l->train.inputs));
            }
        }
    }
    void *sum = values_of(s, t, node_at(t, t->nodes->in_bwd)->in[0]);
    LS_TRY(copy(s, t, sum, stack[0], l->train.inputs * sizeof(float)));
    return run_node(s, t, t->nodes->in_bwd);
}

/* The columns of each worker's rows of the gradient of our own results, on their way to the host. */
static enum ls_status divide_gradient(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    void *dy = t->serves ? s->zeros.here : values_of(s, t, node_at(t, t->nodes->out_bwd)->in[0]);
    for (int i = 0; i < s->workers; i++) {
        int w = after_me(s, i);
        const struct ls_split_room *to = w == s->me ? &s->rows[w].receive : &s->rows[w].send;
        LS_TRY(copy_columns(s, t, l, w, to->here, dy, true));
        if (w != s->me)
            LS_TRY(fetch(s, t, w, to, result_bytes(s, t, l, w)));
    }
    for (int i = 1; i < s->workers; i++)
        LS_TRY(fetched(s, t, after_me(s, i)));
    return LS_OK;
}

static void post_gradients(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    for (int i = 1; i < s->workers; i++) {
        int w = after_me(s, i);
        if (t->active[w])
            post(s, l, RESULT_GRADIENTS, false, w, &s->rows[w].receive, result_bytes(s, t, l, s->me),
                 &s->rows[w].received);
        if (!t->active[s->me])
            continue;
        if (t->nodes->data != LS_NONE)
            post(s, l, INPUT_GRADIENTS, false, w, &s->parts[w].receive, part_bytes(s, l, w), &s->parts[w].received);
        post(s, l, RESULT_GRADIENTS, true, w, &s->rows[w].send, result_bytes(s, t, l, w), &s->rows[w].sent);
    }
}

/* Gradients of inputs first: they travel while those of the weights are computed. */
static enum ls_status backward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    bool mine = t->active[s->me], data = t->nodes->data != LS_NONE, at_once = queue_of(s)->delay == 0;
    LS_TRY(mine ? divide_gradient(s, l, t) : drain(s, t));
    post_gradients(s, l, t);
    for (int i = 0; i < s->workers; i++) {
        int w = after_me(s, i);
        if (!t->active[w])
            continue;
        if (i > 0) {
            LS_TRY(ls_comm_wait(s->engine->comm, &s->rows[w].received));
            LS_TRY(take(s, t, &s->rows[w].receive, result_bytes(s, t, l, s->me)));
        }
        if (data)
            LS_TRY(rows_data(s, l, t, w));
        if (data && i > 0 && at_once)
            LS_TRY(post_parts(s, l, t, w));
    }
    for (int w = 0; t->nodes->weights != LS_NONE && w < s->workers; w++)
        LS_TRY(rows_weights(s, l, t, w));
    for (int i = 1; data && !at_once && i < s->workers; i++)
        if (t->active[after_me(s, i)])
            LS_TRY(post_parts(s, l, t, after_me(s, i)));
    for (int i = 1; mine && data && i < s->workers; i++)
        LS_TRY(ls_comm_wait(s->engine->comm, &s->parts[after_me(s, i)].received));
    if (data)
        LS_TRY(await_sent(s, s->parts, t->active, false));
    if (mine)
        LS_TRY(await_sent(s, s->rows, t->active, true));
    return mine && data && !t->serves ? add_parts(s, l, t) : LS_OK;
}

enum ls_status ls_split_backward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    return give_up(s, backward(s, l, t));
}
