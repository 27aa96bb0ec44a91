/* A layer in a round. The messages of a worker to another have one tag for each layer and kind.
 *
 * A node runs once for each worker, so its scratch may lie over the inputs of nodes before it and the results of nodes behind
 * it. Therefore own values are put aside before the first node runs, and results are written when the last one has run. */
#include "exec/split/split.h"
#include "base/log.h"

#include <string.h>

enum kind { INPUTS, RESULTS, RESULT_GRADIENTS, INPUT_GRADIENTS, KINDS };
enum { FIRST_TAG = 1 << 17 };

static void *values_of(const struct ls_split *s, const struct ls_split_turn *t, int tensor)
{
    size_t bytes;
    return s->engine->backend->memory(t->net->program, tensor, &bytes);
}

static const struct ls_node *node_at(const struct ls_split_turn *t, int node)
{
    return &t->net->graph.nodes[node];
}

static int64_t first_row(const struct ls_split *s, const struct ls_split_layer *l, int worker)
{
    return ls_split_first_row(l->rows, worker, s->workers);
}
static int64_t rows_of(const struct ls_split *s, const struct ls_split_layer *l, int worker)
{
    return first_row(s, l, worker + 1) - first_row(s, l, worker);
}

/* Bytes of a worker's inputs; of the results of so many rows for the samples of a worker. */
static size_t input_bytes(const struct ls_split *s, const struct ls_split_layer *l)
{
    return l->inputs * s->size;
}
static size_t result_bytes(const struct ls_split *s, int64_t rows)
{
    return (size_t)(s->batch * rows) * s->size;
}

/* The chunks of a worker, and its parts: part i is chunks [at[i], at[i + 1]). Returns their number. */
static int parts_of(const struct ls_split *s, const struct ls_split_layer *l, int worker, int at[LS_SPLIT_CHUNKS + 1])
{
    int chunks = ls_split_count(l->rows);
    return ls_split_parts(chunks * worker / s->workers, chunks * (worker + 1) / s->workers, chunks, at);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static void post(struct ls_split *s, const struct ls_split_layer *l, enum kind kind, bool send, int worker, void *data,
                 size_t bytes, struct ls_work *work)
{
    *work = (struct ls_work){.kind = send ? LS_WORK_SEND : LS_WORK_RECEIVE,
                             .peer = s->ranks[worker],
                             .tag = FIRST_TAG + (uint32_t)((l - s->layers) * KINDS) + kind,
                             .data = data,
                             .bytes = bytes};
    ls_comm_post(s->engine->comm, work);
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
static void copy_columns(const struct ls_split *s, const struct ls_split_layer *l, int worker, void *columns,
                         void *whole, bool out)
{
    size_t n = (size_t)rows_of(s, l, worker) * s->size, all = (size_t)l->rows * s->size;
    char *a = columns, *b = (char *)whole + (size_t)first_row(s, l, worker) * s->size;
    for (int64_t i = 0; i < s->batch; i++, a += n, b += all)
        memcpy(out ? a : b, out ? b : a, n);
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
    size_t bytes = result_bytes(s, rows_of(s, l, s->me));
    memcpy(values_of(s, t, dense->in[0]), l->x[w], input_bytes(s, l));
    LS_TRY(run_node(s, t, t->nodes->dense));
    memcpy(w == s->me ? s->rows[w].receive : s->rows[w].send, values_of(s, t, dense->out[0]), bytes);
    if (w != s->me)
        post(s, l, RESULTS, true, w, s->rows[w].send, bytes, &s->rows[w].sent);
    return LS_OK;
}

static enum ls_status forward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    bool mine = t->active[s->me];
    const void *x = t->serves ? s->zeros : values_of(s, t, node_at(t, t->nodes->in)->in[0]);
    if (mine)
        memcpy(l->x[s->me], x, input_bytes(s, l));
    for (int i = 1; i < s->workers; i++) {
        int w = after_me(s, i);
        if (t->active[w])
            post(s, l, INPUTS, false, w, l->x[w], input_bytes(s, l), &s->parts[w].received);
        if (mine) {
            post(s, l, RESULTS, false, w, s->rows[w].receive, result_bytes(s, rows_of(s, l, w)), &s->rows[w].received);
            post(s, l, INPUTS, true, w, l->x[s->me], input_bytes(s, l), &s->parts[w].sent);
        }
    }
    for (int i = 0; i < s->workers; i++) {
        int w = after_me(s, i);
        if (!t->active[w])
            continue;
        if (i > 0)
            LS_TRY(ls_comm_wait(s->engine->comm, &s->parts[w].received));
        LS_TRY(rows_forward(s, l, t, w));
    }
    void *y = values_of(s, t, node_at(t, t->nodes->out)->out[0]);
    for (int i = 0; mine && i < s->workers; i++) {
        int w = after_me(s, i);
        if (i > 0)
            LS_TRY(ls_comm_wait(s->engine->comm, &s->rows[w].received));
        if (!t->serves)
            copy_columns(s, l, w, s->rows[w].receive, y, false);
    }
    LS_TRY(await_sent(s, s->rows, t->active, false));
    return mine ? await_sent(s, s->parts, t->active, true) : LS_OK;
}

enum ls_status ls_split_forward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    return give_up(s, forward(s, l, t));
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* The gradient of the results of our rows, for the samples of a worker: where the nodes read it. */
static void load_gradient(struct ls_split *s, const struct ls_split_layer *l, const struct ls_split_turn *t, int w)
{
    memcpy(values_of(s, t, node_at(t, t->nodes->out_bwd)->out[0]), s->rows[w].receive,
           result_bytes(s, rows_of(s, l, s->me)));
}

/* Our parts of the gradient of a worker's inputs. */
static enum ls_status rows_data(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t, int w)
{
    int at[LS_SPLIT_CHUNKS + 1];
    size_t bytes = (size_t)parts_of(s, l, s->me, at) * l->inputs * sizeof(float);
    LS_TRY(run_node(s, t, t->nodes->data));
    memcpy(s->parts[w].send, values_of(s, t, node_at(t, t->nodes->data)->out[0]), bytes);
    if (w != s->me)
        post(s, l, INPUT_GRADIENTS, true, w, s->parts[w].send, bytes, &s->parts[w].sent);
    return LS_OK;
}

static enum ls_status rows_weights(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t, int w)
{
    struct ls_split_slice slice = ls_split_slice_of(s, w);
    if (slice.replica < 0)
        return LS_OK;
    if (slice.active) {
        load_gradient(s, l, t, w);
        memcpy(values_of(s, t, node_at(t, t->nodes->weights)->in[1]), l->x[w], input_bytes(s, l));
        LS_TRY(run_node(s, t, t->nodes->weights));
    }
    return ls_sums_take(&l->sums, slice.replica, slice.pass, slice.active);
}

/* Adds the parts of all workers along the tree of SPLIT-1. The last node makes dx of the sum. */
static enum ls_status add_parts(struct ls_split *s, const struct ls_split_layer *l, const struct ls_split_turn *t)
{
    const struct ls_backend_queue *q = s->engine->backend->queue;
    float *stack[LS_SPLIT_CHUNKS];
    int starts[LS_SPLIT_CHUNKS], depth = 0, chunks = ls_split_count(l->rows);
    for (int w = 0; w < s->workers; w++) {
        int at[LS_SPLIT_CHUNKS + 1], n = parts_of(s, l, w, at);
        for (int i = 0; i < n; i++) {
            stack[depth] = (float *)(w == s->me ? s->parts[w].send : s->parts[w].receive) + (size_t)i * l->inputs;
            for (starts[depth++] = at[i]; depth > 1; depth--) {
                if (!ls_split_joins(starts[depth - 2], starts[depth - 1], at[i + 1], chunks))
                    break;
                LS_TRY(q->add(t->net->program, stack[depth - 2], stack[depth - 1], l->inputs));
            }
        }
    }
    memcpy(values_of(s, t, node_at(t, t->nodes->in_bwd)->in[0]), stack[0], l->inputs * sizeof(float));
    return run_node(s, t, t->nodes->in_bwd);
}

static void send_gradients(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t, int w, void *dy)
{
    int at[LS_SPLIT_CHUNKS + 1];
    if (t->nodes->data != LS_NONE)
        post(s, l, INPUT_GRADIENTS, false, w, s->parts[w].receive,
             (size_t)parts_of(s, l, w, at) * l->inputs * sizeof(float), &s->parts[w].received);
    copy_columns(s, l, w, s->rows[w].send, dy, true);
    post(s, l, RESULT_GRADIENTS, true, w, s->rows[w].send, result_bytes(s, rows_of(s, l, w)), &s->rows[w].sent);
}

/* Gradients of inputs first: they travel while those of the weights are computed. */
static enum ls_status backward(struct ls_split *s, struct ls_split_layer *l, const struct ls_split_turn *t)
{
    bool mine = t->active[s->me], data = t->nodes->data != LS_NONE;
    void *dy = t->serves ? s->zeros : values_of(s, t, node_at(t, t->nodes->out_bwd)->in[0]);
    if (mine)
        copy_columns(s, l, s->me, s->rows[s->me].receive, dy, true);
    for (int i = 1; i < s->workers; i++) {
        int w = after_me(s, i);
        if (t->active[w])
            post(s, l, RESULT_GRADIENTS, false, w, s->rows[w].receive, result_bytes(s, rows_of(s, l, s->me)),
                 &s->rows[w].received);
        if (mine)
            send_gradients(s, l, t, w, dy);
    }
    for (int i = 0; i < s->workers; i++) {
        int w = after_me(s, i);
        if (!t->active[w])
            continue;
        if (i > 0)
            LS_TRY(ls_comm_wait(s->engine->comm, &s->rows[w].received));
        if (!data)
            continue;
        load_gradient(s, l, t, w);
        LS_TRY(rows_data(s, l, t, w));
    }
    for (int w = 0; t->nodes->weights != LS_NONE && w < s->workers; w++)
        LS_TRY(rows_weights(s, l, t, w));
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
