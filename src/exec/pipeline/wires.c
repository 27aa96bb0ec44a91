/* Tensors that go from device to device by the backend's wires (struct ls_backend_wires, --collective nccl).
 *
 * What is sent is first copied to the outbox, and what arrives comes into an inbox of its transfer, so that messages travel
 * while both stages compute; outbox.c says when a copy may be written again. The host waits for no tensor. At the end of a step it
 * waits for the whole step. Before the first stage reads samples for a lane, it waits until those of the lane's last pass have been
 * copied to the device, because the loader then fills their memory anew. Only notes still go from host to host.
 *
 * A message under way holds a part of the device, and loading the code of a kernel waits for the whole device. So the first steps
 * go through the host, until each lane has run each of its nodes twice: once as they are, once to make graphs of them. */
#include "base/log.h"
#include "exec/pipeline/pipeline.h"
#include "exec/stepper.h"

#include <string.h>

enum { STEPS_BEFORE = 2 };

static enum ls_status take_inboxes(struct ls_engine *e, struct ls_lane *l)
{
    for (int i = 0; i < l->n_transfers; i++) {
        struct ls_transfer *m = &l->transfers[i];
        m->wired = m->peer == ls_pipeline_neighbour(e, m->side);
        if (m->wired && !m->send)
            LS_TRY(ls_backend_take(e->backend, m->bytes, &m->inbox));
    }
    return l->n_transfers < LS_WIRE_AHEAD
               ? LS_OK
               : ls_fail(LS_FAILED, "more than %d tensors travel between stages", LS_WIRE_AHEAD - 1);
}

enum ls_status ls_wires_open(struct ls_engine *e, const struct ls_options *o)
{
    struct ls_pipeline *p = e->pipeline;
    char why[256] = "";
    if (strcmp(o->collective, "nccl") != 0)
        return LS_OK;
    LS_TRY(ls_device_group_open(&p->devices, p->comm, o->deadline));
    struct ls_peers_group group = ls_device_group_of(&p->devices);
    const int peers[2] = {ls_pipeline_neighbour(e, 0), ls_pipeline_neighbour(e, 1)};
    LS_TRY(e->backend->wires->open(e->train.program, &group, peers, why, sizeof why));
    if (*why)
        return ls_fail(LS_USAGE, "--collective nccl: %s", why);
    p->wires = p->devices.begun = true;
    for (int lane = 0; lane < p->n_lanes; lane++)
        LS_TRY(take_inboxes(e, &p->lanes[lane]));
    return LS_OK;
}

void ls_wires_close(struct ls_engine *e)
{
    struct ls_pipeline *p = e->pipeline;
    if (p->wires)
        e->backend->wires->close(e->train.program);
    p->wires = false;
    ls_device_group_close(&p->devices);
}

/* --- messages ------------------------------------------------------------------------------------------------------- */

enum ls_status ls_wires_send(struct ls_engine *e, struct ls_transfer *m)
{
    m->turn = (m->turn + 1) % m->copies;
    LS_TRY(e->backend->queue->copy(m->program, m->copy[m->turn], m->memory, m->bytes / sizeof(float)));
    return e->backend->wires->send(e->train.program, m->side, m->copy[m->turn], m->bytes);
}

/* Messages are received in the order in which they are sent: that of passes. A stage with one lane waits for the results of a pass
 * before it begins the next one, so it receives ahead; others enqueue passes ahead. */
enum ls_status ls_wires_receive(struct ls_engine *e, struct ls_transfer *m, bool again)
{
    const struct ls_backend_wires *wires = e->backend->wires;
    struct ls_program *program = e->train.program;
    if (!m->ahead)
        LS_TRY(wires->receive(program, m->side, m->inbox, m->bytes));
    LS_TRY(wires->accept(program, m->side));
    LS_TRY(e->backend->queue->copy(m->program, m->memory, m->inbox, m->bytes / sizeof(float)));
    m->ahead = again && e->pipeline->n_lanes == 1;
    return m->ahead ? wires->receive(program, m->side, m->inbox, m->bytes) : LS_OK;
}

/* --- input ---------------------------------------------------------------------------------------------------------- */

/* The marks of a lane's transfers are free while these go by wire. */
enum ls_status ls_wires_mark_input(struct ls_engine *e, struct ls_lane *l)
{
    const struct ls_transfer *any = &l->transfers[0];
    if (!e->pipeline->by_wire || e->pipeline->stage > 0)
        return LS_OK;
    l->marked = true;
    return e->backend->queue->fetch(any->program, any->mark, NULL, NULL, 0);
}

enum ls_status ls_wires_await_input(struct ls_engine *e, struct ls_lane *l)
{
    if (!l->marked)
        return LS_OK;
    l->marked = false;
    return e->backend->queue->arrived(l->transfers[0].program, l->transfers[0].mark);
}

/* --- steps ---------------------------------------------------------------------------------------------------------- */

/* The same on all stages of a pipeline, as they have the same passes. */
void ls_wires_begin_step(struct ls_pipeline *p)
{
    p->by_wire = p->wires && p->steps_before >= STEPS_BEFORE;
}

enum ls_status ls_wires_end_step(struct ls_stepper *s, bool whole)
{
    struct ls_engine *e = s->engine;
    struct ls_pipeline *p = e->pipeline;
    if (!p->by_wire) {
        p->steps_before += whole && p->steps_before < STEPS_BEFORE;
        return LS_OK;
    }
    LS_TRY(ls_pipeline_drain(e, &p->lanes[0]));
    s->device_wait_seconds += e->backend->wires->waited(e->train.program);
    return LS_OK;
}
