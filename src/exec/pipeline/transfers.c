/* What travels between the stages of a pipeline. */
#include "base/log.h"
#include "base/memory.h"
#include "exec/pipeline/pipeline.h"
#include "graph/ops.h"

#include <string.h>

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* A message has the values, or where they are. */
static size_t message_bytes(const struct ls_transfer *m)
{
    return m->direct ? sizeof(uint64_t) : m->bytes;
}

static void post(struct ls_pipeline *p, struct ls_transfer *m, int pass)
{
    m->work = (struct ls_work){.kind = m->send ? LS_WORK_SEND : LS_WORK_RECEIVE,
                               .peer = m->peer,
                               .tag = m->tag + (uint32_t)(pass % LS_PASS_TAGS),
                               .data = m->buffer,
                               .bytes = message_bytes(m)};
    m->posted = true;
    m->pass = LS_NONE;
    ls_comm_post(p->comm, &m->work);
}

static enum ls_status wait(struct ls_pipeline *p, struct ls_transfer *m)
{
    if (!m->posted)
        return LS_OK;
    m->posted = false;
    return ls_comm_wait(p->comm, &m->work);
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

/* PIPE-5. */
void ls_pipeline_reach(struct ls_pipeline *p, uint64_t at)
{
    p->reached = at > p->reached ? at : p->reached;
    for (int lane = 0; lane < p->n_lanes; lane++)
        for (int i = 0; i < p->lanes[lane].n_transfers; i++) {
            struct ls_transfer *m = &p->lanes[lane].transfers[i];
            if (!m->send && m->pass != LS_NONE && m->at <= p->reached)
                post(p, m, m->pass);
        }
}

/* Waits until the oldest fetch has arrived, and posts its message. */
static enum ls_status post_oldest(struct ls_engine *e)
{
    struct ls_pipeline *p = e->pipeline;
    struct ls_transfer *m = p->due;
    LS_TRY(e->backend->queue->arrived(m->program, m->mark));
    p->due = m->next;
    if (m->direct)
        memcpy(m->buffer, &m->offset[m->turn], sizeof m->offset[0]);
    post(p, m, m->pass);
    ls_pipeline_reach(p, m->at);
    return LS_OK;
}

enum ls_status ls_pipeline_post_due(struct ls_engine *e, bool all)
{
    struct ls_pipeline *p = e->pipeline;
    while (p->due && (all || p->due->part < p->part))
        LS_TRY(post_oldest(e));
    return LS_OK;
}

enum ls_status ls_pipeline_drain(struct ls_engine *e, const struct ls_lane *l)
{
    struct ls_pipeline *p = e->pipeline;
    const struct ls_transfer *any = &l->transfers[0];
    LS_TRY(ls_pipeline_post_due(e, true));
    if (p->reached == p->at || e->backend->queue->delay == 0)
        return LS_OK;
    LS_TRY(e->backend->queue->fetch(any->program, any->mark, NULL, NULL, 0));
    LS_TRY(e->backend->queue->arrived(any->program, any->mark));
    ls_pipeline_reach(p, p->at);
    return LS_OK;
}

/* PIPE-4. When the host comes to wait for the message alone, the queue is empty: so the time that a process waits for others
 * is time that it is idle. */
static enum ls_status await(struct ls_engine *e, const struct ls_lane *l, struct ls_transfer *m)
{
    struct ls_pipeline *p = e->pipeline;
    while (p->due && !ls_comm_done(&m->work))
        LS_TRY(post_oldest(e));
    if (!ls_comm_done(&m->work))
        LS_TRY(ls_pipeline_drain(e, l));
    return wait(p, m);
}

static enum ls_status send(struct ls_engine *e, struct ls_transfer *m, int pass)
{
    struct ls_pipeline *p = e->pipeline;
    const struct ls_backend_queue *queue = e->backend->queue;
    size_t floats = m->bytes / sizeof(float);
    if (p->by_wire && m->wired)
        return ls_wires_send(e, m);
    while (m->pass != LS_NONE) /* the buffer has still to be sent, */
        LS_TRY(post_oldest(e));
    if (m->posted && !ls_comm_done(&m->work)) /* or is on its way, to a stage that may wait for something else first */
        LS_TRY(ls_pipeline_post_due(e, true));
    LS_TRY(wait(p, m));
    m->turn = m->copies > 0 ? (m->turn + 1) % m->copies : 0;
    void *from = m->copies > 0 ? m->copy[m->turn] : m->memory;
    if (m->copies > 0)
        LS_TRY(queue->copy(m->program, from, m->memory, floats));
    LS_TRY(queue->fetch(m->program, m->mark, m->buffer, from, m->direct ? 1 : floats));
    m->pass = pass;
    m->part = p->part;
    m->at = ++p->at;
    m->next = NULL;
    *(p->due ? &p->last_due->next : &p->due) = m;
    p->last_due = m;
    return queue->delay > 0 ? LS_OK : post_oldest(e);
}

static enum ls_status read_in_place(struct ls_pipeline *p, const struct ls_backend_queue *queue,
                                    const struct ls_transfer *m)
{
    uint64_t offset;
    memcpy(&offset, m->buffer, sizeof offset);
    return queue->copy(m->program, m->memory, (float *)((char *)p->inbox[m->side] + offset), m->bytes / sizeof(float));
}

/* again: the buffer is posted anew as soon as it is free, for the next pass of this lane. */
static enum ls_status receive(struct ls_engine *e, const struct ls_lane *l, struct ls_transfer *m, bool again)
{
    struct ls_pipeline *p = e->pipeline;
    const struct ls_backend_queue *queue = e->backend->queue;
    if (p->by_wire && m->wired)
        return ls_wires_receive(e, m, again);
    if (!m->posted && m->at > p->reached)
        LS_TRY(ls_pipeline_drain(e, l));
    if (!m->posted)
        post(p, m, l->pass);
    LS_TRY(await(e, l, m));
    LS_TRY(m->direct ? read_in_place(p, queue, m)
                     : queue->send(m->program, m->memory, m->buffer, m->bytes / sizeof(float)));
    m->at = ++p->at;
    m->pass = again ? l->pass + p->n_lanes : LS_NONE;
    if (queue->delay == 0)
        ls_pipeline_reach(p, p->at);
    return LS_OK;
}

/* --- a lane ------------------------------------------------------------------------------------------------------- */

enum ls_status ls_lane_run(struct ls_engine *e, struct ls_lane *l, int first, int end, bool again)
{
    int at = first;
    e->pipeline->part++;
    for (int i = 0; i < l->n_transfers; i++) {
        struct ls_transfer *m = &l->transfers[i];
        if (m->node < first || m->node >= end)
            continue;
        if (m->node > at)
            LS_TRY(e->backend->run(l->net->program, at, m->node, &l->run));
        at = m->node;
        LS_TRY(m->send ? send(e, m, l->pass) : receive(e, l, m, again));
    }
    if (at < end)
        LS_TRY(e->backend->run(l->net->program, at, end, &l->run));
    e->pipeline->at++;
    return ls_pipeline_post_due(e, false);
}

enum ls_status ls_lane_take_note(struct ls_engine *e, struct ls_lane *l, bool again)
{
    struct ls_pipeline *p = e->pipeline;
    struct ls_transfer *m = &l->note_in;
    if (!m->posted)
        post(p, m, l->pass);
    LS_TRY(await(e, l, m));
    memcpy(m->memory, m->buffer, m->bytes);
    if (again)
        post(p, m, l->pass + p->n_lanes);
    return LS_OK;
}

enum ls_status ls_lane_send_note(struct ls_pipeline *p, struct ls_lane *l)
{
    struct ls_transfer *m = &l->note_out;
    if (!m->buffer)
        return LS_OK;
    LS_TRY(wait(p, m));
    memcpy(m->buffer, l->note, m->bytes);
    post(p, m, l->pass);
    return LS_OK;
}

enum ls_status ls_lane_flush(struct ls_pipeline *p, struct ls_lane *l)
{
    for (int i = 0; i < l->n_transfers; i++)
        if (l->transfers[i].send)
            LS_TRY(wait(p, &l->transfers[i]));
    return wait(p, &l->note_out);
}

/* --- opened and closed -------------------------------------------------------------------------------------------- */

/* Pages of their own, which can be pinned. */
static enum ls_status take_buffer(struct ls_engine *e, struct ls_transfer *m)
{
    LS_TRY(ls_region_map(message_bytes(m), &m->buffer));
    e->backend->queue->pin(m->buffer, message_bytes(m));
    return LS_OK;
}

/* The last marks but one; that is of values (host_copy.c). */
static enum ls_status take_mark(const struct ls_lane *l, struct ls_transfer *m)
{
    m->mark = LS_QUEUE_MARKS - 1 - l->n_transfers;
    return m->mark > 0 ? LS_OK : ls_fail(LS_FAILED, "more than %d tensors travel between stages", LS_QUEUE_MARKS);
}

static enum ls_status open_transfer(struct ls_engine *e, struct ls_lane *l, int node, uint32_t base)
{
    const struct ls_node *n = &l->net->graph.nodes[node];
    struct ls_transfer *m = &l->transfers[l->n_transfers++];
    bool sends = n->op == &ls_op_send;
    *m = (struct ls_transfer){.node = node,
                              .tensor = sends ? n->in[0] : n->out[0],
                              .send = sends,
                              .pass = LS_NONE,
                              .program = l->net->program};
    m->peer = ls_mesh_rank(&e->mesh, LS_PARALLEL_PIPELINE, (int)n->attr.size);
    m->tag = base + n->attr.layer * LS_PASS_TAGS;
    m->memory = e->backend->memory(l->net->program, m->tensor, &m->bytes);
    m->bytes = (m->bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float); /* memory is aligned */
    return take_mark(l, m);
}

/* Notes go from each stage to the next. */
static enum ls_status open_notes(struct ls_engine *e, struct ls_lane *l, uint32_t base)
{
    struct ls_pipeline *p = e->pipeline;
    size_t bytes = sizeof *l->note + (size_t)e->size.batch * sizeof *l->note->labels;
    struct ls_transfer note = {.tensor = LS_NONE, .tag = base, .bytes = bytes, .pass = LS_NONE};
    l->note = ls_alloc(1, bytes);
    if (!l->note)
        return LS_FAILED;
    l->note_in = l->note_out = note;
    l->note_in.memory = l->note;
    l->note_out.send = true;
    if (p->stage > 0) {
        l->note_in.peer = ls_mesh_rank(&e->mesh, LS_PARALLEL_PIPELINE, p->stage - 1);
        LS_TRY(take_buffer(e, &l->note_in));
    }
    if (p->stage + 1 < p->stages) {
        l->note_out.peer = ls_mesh_rank(&e->mesh, LS_PARALLEL_PIPELINE, p->stage + 1);
        LS_TRY(take_buffer(e, &l->note_out));
    }
    return LS_OK;
}

enum ls_status ls_lane_open(struct ls_engine *e, struct ls_lane *l, uint32_t base)
{
    const struct ls_graph *g = &l->net->graph;
    int n = 0;
    for (int node = 0; node < g->n_nodes; node++)
        n += g->nodes[node].op == &ls_op_send || g->nodes[node].op == &ls_op_receive;
    l->transfers = ls_alloc((size_t)n, sizeof *l->transfers);
    if (!l->transfers)
        return LS_FAILED;
    for (int node = 0; node < g->n_nodes; node++)
        if (g->nodes[node].op == &ls_op_send || g->nodes[node].op == &ls_op_receive)
            LS_TRY(open_transfer(e, l, node, base));
    while (l->backward < l->net->end && g->nodes[l->backward].phase == LS_FORWARD)
        l->backward++;
    return open_notes(e, l, base);
}

enum ls_status ls_lane_take_buffers(struct ls_engine *e, struct ls_lane *l)
{
    for (int i = 0; i < l->n_transfers; i++)
        LS_TRY(take_buffer(e, &l->transfers[i]));
    return LS_OK;
}

static void close_transfer(struct ls_engine *e, struct ls_transfer *m)
{
    if (m->posted)
        ls_comm_give_up(e->pipeline->comm, &m->work, 1);
    ls_backend_give(e->backend, m->inbox, m->bytes);
    if (!m->buffer)
        return;
    e->backend->queue->unpin(m->buffer);
    ls_region_unmap(m->buffer, message_bytes(m));
}

/* The backend's memory is given back first, which waits for all that is enqueued: it may read and write buffers. */
void ls_lane_close(struct ls_engine *e, struct ls_lane *l)
{
    ls_backend_give(e->backend, l->early, e->pipeline->early * sizeof *l->early);
    if (l->net == &l->own) {
        if (l->own.program)
            e->backend->release(l->own.program);
        ls_graph_release(&l->own.graph);
        ls_backend_give(e->backend, l->arena, e->arena_bytes);
    }
    for (int i = 0; i < l->n_transfers; i++)
        close_transfer(e, &l->transfers[i]);
    close_transfer(e, &l->note_in);
    close_transfer(e, &l->note_out);
    ls_free(l->transfers);
    ls_free(l->note);
}
