/* What travels between the stages of a pipeline. */
#include "base/memory.h"
#include "exec/pipeline/pipeline.h"
#include "graph/ops.h"

#include <string.h>

/* --- one transfer ------------------------------------------------------------------------------------------------- */

void ls_transfer_post(struct ls_pipeline *p, struct ls_transfer *m, int pass)
{
    m->work = (struct ls_work){.kind = m->send ? LS_WORK_SEND : LS_WORK_RECEIVE,
                               .peer = m->peer,
                               .tag = m->tag + (uint32_t)(pass % LS_PASS_TAGS),
                               .data = m->buffer,
                               .bytes = m->bytes};
    m->posted = true;
    ls_comm_post(p->comm, &m->work);
}

enum ls_status ls_transfer_wait(struct ls_pipeline *p, struct ls_transfer *m)
{
    if (!m->posted)
        return LS_OK;
    m->posted = false;
    return ls_comm_wait(p->comm, &m->work);
}

static enum ls_status send(struct ls_pipeline *p, struct ls_transfer *m, int pass, const void *data)
{
    LS_TRY(ls_transfer_wait(p, m)); /* the buffer may still be on its way */
    memcpy(m->buffer, data, m->bytes);
    ls_transfer_post(p, m, pass);
    return LS_OK;
}

/* again: the buffer is posted anew at once, for the next pass of this lane. */
static enum ls_status receive(struct ls_pipeline *p, struct ls_transfer *m, int pass, bool again)
{
    if (!m->posted)
        ls_transfer_post(p, m, pass);
    LS_TRY(ls_transfer_wait(p, m));
    memcpy(m->memory, m->buffer, m->bytes);
    if (again)
        ls_transfer_post(p, m, pass + p->n_lanes);
    return LS_OK;
}

/* --- a lane ------------------------------------------------------------------------------------------------------- */

enum ls_status ls_lane_run(struct ls_engine *e, struct ls_lane *l, int first, int end, bool again)
{
    int at = first;
    for (int i = 0; i < l->n_transfers; i++) {
        struct ls_transfer *m = &l->transfers[i];
        if (m->node < first || m->node >= end)
            continue;
        if (m->node > at)
            LS_TRY(e->backend->run(l->net->program, at, m->node, &l->run));
        at = m->node;
        LS_TRY(m->send ? send(e->pipeline, m, l->pass, m->memory) : receive(e->pipeline, m, l->pass, again));
    }
    return at < end ? e->backend->run(l->net->program, at, end, &l->run) : LS_OK;
}

enum ls_status ls_lane_take_note(struct ls_pipeline *p, struct ls_lane *l, bool again)
{
    return receive(p, &l->note_in, l->pass, again);
}

enum ls_status ls_lane_send_note(struct ls_pipeline *p, struct ls_lane *l)
{
    return l->note_out.buffer ? send(p, &l->note_out, l->pass, l->note) : LS_OK;
}

enum ls_status ls_lane_flush(struct ls_pipeline *p, struct ls_lane *l)
{
    for (int i = 0; i < l->n_transfers; i++)
        if (l->transfers[i].send)
            LS_TRY(ls_transfer_wait(p, &l->transfers[i]));
    return ls_transfer_wait(p, &l->note_out);
}

/* --- opened and closed -------------------------------------------------------------------------------------------- */

static enum ls_status take_buffer(struct ls_pipeline *p, struct ls_transfer *m)
{
    m->buffer = ls_alloc(m->bytes, 1);
    p->buffer_bytes += m->bytes;
    return m->buffer ? LS_OK : LS_FAILED;
}

static enum ls_status open_transfer(struct ls_engine *e, struct ls_lane *l, int node, uint32_t base)
{
    const struct ls_node *n = &l->net->graph.nodes[node];
    struct ls_transfer *m = &l->transfers[l->n_transfers++];
    bool sends = n->op == &ls_op_send;
    *m = (struct ls_transfer){.node = node, .tensor = sends ? n->in[0] : n->out[0], .send = sends};
    m->peer = ls_mesh_rank(&e->mesh, LS_PARALLEL_PIPELINE, (int)n->attr.size);
    m->tag = base + n->attr.layer * LS_PASS_TAGS;
    m->memory = e->backend->memory(l->net->program, m->tensor, &m->bytes);
    return take_buffer(e->pipeline, m);
}

/* Notes go from each stage to the next. */
static enum ls_status open_notes(struct ls_engine *e, struct ls_lane *l, uint32_t base)
{
    struct ls_pipeline *p = e->pipeline;
    size_t bytes = sizeof *l->note + (size_t)e->size.batch * sizeof *l->note->labels;
    struct ls_transfer note = {.tensor = LS_NONE, .tag = base, .bytes = bytes};
    l->note = ls_alloc(1, bytes);
    if (!l->note)
        return LS_FAILED;
    l->note_in = l->note_out = note;
    l->note_in.memory = (char *)l->note;
    l->note_out.send = true;
    if (p->stage > 0) {
        l->note_in.peer = ls_mesh_rank(&e->mesh, LS_PARALLEL_PIPELINE, p->stage - 1);
        LS_TRY(take_buffer(p, &l->note_in));
    }
    if (p->stage + 1 < p->stages) {
        l->note_out.peer = ls_mesh_rank(&e->mesh, LS_PARALLEL_PIPELINE, p->stage + 1);
        LS_TRY(take_buffer(p, &l->note_out));
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

static void close_transfer(struct ls_pipeline *p, struct ls_transfer *m)
{
    if (m->posted)
        ls_comm_give_up(p->comm, &m->work, 1);
    ls_free(m->buffer);
}

void ls_lane_close(struct ls_engine *e, struct ls_lane *l)
{
    for (int i = 0; i < l->n_transfers; i++)
        close_transfer(e->pipeline, &l->transfers[i]);
    close_transfer(e->pipeline, &l->note_in);
    close_transfer(e->pipeline, &l->note_out);
    ls_free(l->transfers);
    ls_free(l->note);
    ls_free(l->early);
    if (l->net == &l->own) {
        if (l->own.program)
            e->backend->release(l->own.program);
        ls_graph_release(&l->own.graph);
        ls_backend_give(e->backend, l->arena, e->arena_bytes);
    }
}
