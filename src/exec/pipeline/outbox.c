/* Memory of the backend that a stage copies to what it sends. Processes of one machine read it in place, where the backend can
 * map the memory of another process; a message then only says where.
 *
 * No message says that a copy has been read, because another one implies it:
 *   - An activation's memory is used again for the lane's next pass. By then the gradient of its pass has come back, which the
 *     next stage computed after it had read the activation.
 *   - A gradient's memory is used again two passes of the lane later. That pass's activation has come, which the stage before
 *     enqueued after it had taken the gradient backward (parallel/stages.h: it has at most one lane more).
 * Evaluations have nothing that comes back, and go through the host. */
#include "base/memory.h"
#include "exec/pipeline/pipeline.h"

#include <string.h>

enum { ALIGN = 256 };

/* --- the memory ----------------------------------------------------------------------------------------------------- */

static size_t place_lane(struct ls_lane *l, bool train, char *memory, size_t at)
{
    for (int i = 0; i < l->n_transfers; i++) {
        struct ls_transfer *m = &l->transfers[i];
        bool back = train && m->node >= l->backward;
        for (m->copies = 0; m->send && m->copies < (back ? 2 : 1); m->copies++) {
            m->copy[m->copies] = memory ? memory + at : NULL;
            m->offset[m->copies] = at;
            at += (m->bytes + ALIGN - 1) / ALIGN * ALIGN;
        }
    }
    return at;
}

static size_t place(struct ls_pipeline *p, char *memory)
{
    size_t at = 0;
    for (int lane = 0; lane < p->n_lanes; lane++)
        at = place_lane(&p->lanes[lane], true, memory, at);
    return p->eval.net ? place_lane(&p->eval, false, memory, at) : at;
}

/* --- other processes ------------------------------------------------------------------------------------------------- */

struct offer {
    bool there;
    char ticket[LS_TICKET_ROOM];
};

/* The first float of a rank's memory shows, for the moment, that it is what others see. */
static float mark_of(int rank)
{
    return (float)(rank + 1);
}

int ls_pipeline_neighbour(const struct ls_engine *e, int side)
{
    const struct ls_pipeline *p = e->pipeline;
    int stage = side == 0 ? p->stage - 1 : p->stage + 1;
    return stage < 0 || stage >= p->stages ? LS_NONE : ls_mesh_rank(&e->mesh, LS_PARALLEL_PIPELINE, stage);
}

static enum ls_status make_offer(struct ls_engine *e, bool wanted, struct offer *mine)
{
    struct ls_pipeline *p = e->pipeline;
    float mark = mark_of(ls_comm_rank(p->comm));
    memset(mine, 0, sizeof *mine);
    if (!wanted || !e->backend->queue->lend || !p->outbox)
        return LS_OK;
    LS_TRY(e->backend->queue->send(e->train.program, p->outbox, &mark, 1));
    LS_TRY(e->backend->queue->fetch(e->train.program, 0, NULL, NULL, 0));
    LS_TRY(e->backend->queue->arrived(e->train.program, 0));
    mine->there = e->backend->queue->lend(p->outbox, mine->ticket);
    return LS_OK;
}

/* Maps the memory of a neighbour; p->inbox stays NULL where that is not possible. */
static enum ls_status reach(struct ls_engine *e, int side, const struct offer *offers)
{
    struct ls_pipeline *p = e->pipeline;
    int rank = ls_pipeline_neighbour(e, side);
    float mark = 0;
    if (rank == LS_NONE || !offers[rank].there ||
        ls_comm_node(p->comm, rank) != ls_comm_node(p->comm, ls_comm_rank(p->comm)))
        return LS_OK;
    void *memory = e->backend->queue->map(offers[rank].ticket);
    if (!memory)
        return LS_OK;
    p->inbox[side] = memory;
    LS_TRY(e->backend->queue->fetch(e->train.program, 0, &mark, memory, 1));
    LS_TRY(e->backend->queue->arrived(e->train.program, 0));
    if (mark == mark_of(rank))
        return LS_OK;
    e->backend->queue->unmap(memory);
    p->inbox[side] = NULL;
    return LS_OK;
}

/* Both ends of a way must have the other's memory. */
static enum ls_status meet(struct ls_engine *e, bool wanted)
{
    struct ls_pipeline *p = e->pipeline;
    size_t size = (size_t)ls_comm_size(p->comm);
    struct offer mine, *offers = ls_alloc(size, sizeof *offers);
    bool(*able)[2] = ls_alloc(size, sizeof *able), own[2];
    enum ls_status st = offers && able ? make_offer(e, wanted, &mine) : LS_FAILED;
    if (st == LS_OK)
        st = ls_comm_allgather(p->comm, &mine, sizeof mine, offers);
    for (int side = 0; st == LS_OK && side < 2; side++) {
        st = reach(e, side, offers);
        own[side] = p->inbox[side] != NULL;
    }
    if (st == LS_OK)
        st = ls_comm_allgather(p->comm, own, sizeof own, able);
    for (int side = 0; st == LS_OK && side < 2; side++) {
        int rank = ls_pipeline_neighbour(e, side);
        p->direct[side] = rank != LS_NONE && own[side] && able[rank][1 - side];
    }
    ls_free(offers);
    ls_free(able);
    return st;
}

/* --- opened and closed ------------------------------------------------------------------------------------------------ */

enum ls_status ls_outbox_open(struct ls_engine *e, bool wanted)
{
    struct ls_pipeline *p = e->pipeline;
    if (e->backend->queue->delay == 0)
        return LS_OK;
    p->outbox_bytes = place(p, NULL);
    LS_TRY(ls_backend_take(e->backend, p->outbox_bytes, &p->outbox));
    place(p, p->outbox);
    LS_TRY(meet(e, wanted));
    for (int lane = 0; lane < p->n_lanes; lane++)
        for (int i = 0; i < p->lanes[lane].n_transfers; i++) {
            struct ls_transfer *m = &p->lanes[lane].transfers[i];
            m->side = m->peer == ls_pipeline_neighbour(e, 0) ? 0 : 1;
            m->direct = m->peer == ls_pipeline_neighbour(e, m->side) && p->direct[m->side];
        }
    return LS_OK;
}

void ls_outbox_close(struct ls_engine *e)
{
    struct ls_pipeline *p = e->pipeline;
    for (int side = 0; side < 2; side++)
        if (p->inbox[side])
            e->backend->queue->unmap(p->inbox[side]);
    ls_backend_give(e->backend, p->outbox, p->outbox_bytes);
}
