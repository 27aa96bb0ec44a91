/* Messages between GPUs by NCCL (struct ls_backend_wires).
 *
 * Each direction between two processes has a communicator and a stream of its own. A call of NCCL holds its stream until the
 * other process makes the matching call, so that two neighbours that both send first, an activation and a gradient, would
 * otherwise wait for ever for each other. */
#include "backend/cuda/collective/nccl_library.h"
#include "base/log.h"
#include "base/system/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SIDES = 2, WAY_IN = 0, WAY_OUT, WAYS, PAUSES = 64 };

struct way {
    ncclComm_t comm;     /* owned; of two ranks: the sender is 0 */
    cudaStream_t stream; /* owned */
};

struct side {
    int peer; /* LS_NONE: nobody */
    struct way ways[WAYS];
    cudaEvent_t arrived[LS_WIRE_AHEAD]; /* owned; message i has entry i % LS_WIRE_AHEAD */
    uint64_t asked, accepted;           /* messages */
};

/* A time in which the compute stream waited for a message. */
struct pause {
    cudaEvent_t begin, end; /* owned */
    bool used;
};

struct wires {
    struct nccl_library lib;
    struct ls_peers_group g;
    struct device *device; /* borrowed */
    struct device_watch watch;
    struct side sides[SIDES];
    ncclUniqueId ids[SIDES][WAYS];
    cudaEvent_t here; /* owned */
    struct pause pauses[PAUSES];
    uint64_t n_pauses;
    double seconds; /* of pauses whose entries were used again */
    struct nccl_result result;
    struct nccl_errand errand;
};

/* --- connecting --------------------------------------------------------------------------------------------------- */

/* The ids of the ways between two ranks are made by the one before. What comes in on one end goes out of the other. */
static void take_ids(struct wires *w, const struct nccl_word *all)
{
    if (w->sides[1].peer != LS_NONE)
        memcpy(w->ids[1], all[w->g.rank].ids, sizeof w->ids[1]);
    if (w->sides[0].peer != LS_NONE) {
        w->ids[0][WAY_IN] = all[w->sides[0].peer].ids[WAY_OUT];
        w->ids[0][WAY_OUT] = all[w->sides[0].peer].ids[WAY_IN];
    }
}

static enum ls_status meet(struct wires *w, char *why, size_t room)
{
    struct nccl_word mine, *all = ls_alloc((size_t)w->g.size, sizeof *all);
    if (!all)
        return LS_FAILED;
    nccl_prepare(&w->lib, w->device, w->sides[1].peer != LS_NONE ? WAYS : 0, &mine);
    enum ls_status st = nccl_meet(&w->g, &mine, all, why, room);
    if (st == LS_OK)
        take_ids(w, all);
    ls_free(all);
    return st;
}

static void connect_way(struct wires *w, int side, int number)
{
    struct way *way = &w->sides[side].ways[number];
    if (w->result.nccl != ncclSuccess)
        return;
    w->result.nccl = w->lib.init(&way->comm, 2, w->ids[side][number], number == WAY_OUT ? 0 : 1);
}

/* A message of nothing but a float: connections are made when they are first used. */
static void try_way(struct wires *w, int side, int number, float *memory)
{
    struct way *way = &w->sides[side].ways[number];
    if (w->result.nccl == ncclSuccess)
        w->result.nccl = number == WAY_OUT
                             ? w->lib.send(memory, sizeof *memory, ncclUint8, 1, way->comm, way->stream)
                             : w->lib.receive(memory, sizeof *memory, ncclUint8, 0, way->comm, way->stream);
    if (w->result.nccl == ncclSuccess)
        w->result.cuda = cudaStreamSynchronize(way->stream);
}

/* A process takes part in two pairs, and pairs are connected one after the other from the first rank on: side 0 first. In a pair
 * the process before sends first. */
static void connect_all(void *wires)
{
    struct wires *w = wires;
    float *memory = NULL;
    w->result.cuda = cudaMalloc((void **)&memory, sizeof *memory);
    for (int side = 0; side < SIDES && w->result.cuda == cudaSuccess; side++) {
        int first = side == 0 ? WAY_IN : WAY_OUT;
        for (int i = 0; i < WAYS && w->sides[side].peer != LS_NONE; i++) {
            connect_way(w, side, i == 0 ? first : 1 - first);
            try_way(w, side, i == 0 ? first : 1 - first, memory);
        }
    }
    cudaFree(memory);
}

static enum ls_status connect(struct wires *w, char *why, size_t room)
{
    w->errand = (struct nccl_errand){.run = connect_all, .context = w, .device = w->device};
    LS_TRY(nccl_run(&w->errand, w->g.check_wait, w->g.context));
    if (w->errand.error != cudaSuccess)
        w->result.cuda = w->errand.error;
    return nccl_agree(&w->lib, &w->result, NULL, &w->g, why, room);
}

/* --- memory --------------------------------------------------------------------------------------------------------- */

static enum ls_status make_side(struct side *s)
{
    int least, greatest;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int way = 0; way < WAYS; way++)
        CUDA_TRY(cudaStreamCreateWithPriority(&s->ways[way].stream, cudaStreamNonBlocking, greatest));
    for (int i = 0; i < LS_WIRE_AHEAD; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&s->arrived[i], cudaEventDisableTiming));
    return LS_OK;
}

static enum ls_status make_all(struct wires *w)
{
    CUDA_TRY(cudaEventCreateWithFlags(&w->here, cudaEventDisableTiming));
    for (int i = 0; i < PAUSES; i++) {
        CUDA_TRY(cudaEventCreate(&w->pauses[i].begin));
        CUDA_TRY(cudaEventCreate(&w->pauses[i].end));
    }
    for (int side = 0; side < SIDES; side++)
        if (w->sides[side].peer != LS_NONE)
            LS_TRY(make_side(&w->sides[side]));
    return LS_OK;
}

static void destroy_event(cudaEvent_t event)
{
    if (event)
        cudaEventDestroy(event);
}

/* The communicators end without their peers, which may be gone. */
static void wires_free(struct wires *w)
{
    if (w->device->lost)
        return; /* NCCL may still use it */
    for (int side = 0; side < SIDES; side++) {
        struct side *s = &w->sides[side];
        for (int way = 0; way < WAYS; way++) {
            if (s->ways[way].comm)
                w->lib.end(s->ways[way].comm);
            if (s->ways[way].stream)
                cudaStreamDestroy(s->ways[way].stream);
        }
        for (int i = 0; i < LS_WIRE_AHEAD; i++)
            destroy_event(s->arrived[i]);
    }
    for (int i = 0; i < PAUSES; i++) {
        destroy_event(w->pauses[i].begin);
        destroy_event(w->pauses[i].end);
    }
    destroy_event(w->here);
    ls_free(w);
}

/* --- opened and closed ------------------------------------------------------------------------------------------------ */

static const char *trouble(const void *of)
{
    const struct wires *w = of;
    for (int side = 0; side < SIDES; side++)
        for (int way = 0; way < WAYS; way++) {
            ncclComm_t comm = w->sides[side].ways[way].comm;
            ncclResult_t state = ncclSuccess, asked = comm ? w->lib.async_error(comm, &state) : ncclSuccess;
            if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
                return w->lib.text(asked != ncclSuccess ? asked : state);
        }
    return NULL;
}

static enum ls_status wires_open(struct ls_program *p, const struct ls_peers_group *group, const int peers[2],
                                 char *why, size_t room)
{
    enum ls_status st = LS_OK;
    *why = 0;
    struct wires *w = ls_alloc(1, sizeof *w);
    if (!w)
        return LS_FAILED;
    w->g = *group;
    w->device = p->device;
    w->sides[0].peer = peers[0];
    w->sides[1].peer = peers[1];
    LS_TRY_GOTO(failed, make_all(w));
    LS_TRY_GOTO(failed, meet(w, why, room));
    if (*why)
        goto failed;
    LS_TRY_GOTO(failed, connect(w, why, room));
    if (*why)
        goto failed;
    w->watch = (struct device_watch){w->g.check_wait, w->g.context, trouble, w};
    w->device->watch = &w->watch;
    p->wires = w;
    return LS_OK;
failed:
    wires_free(w);
    return st;
}

static bool is_idle(const struct wires *w)
{
    cudaError_t state = cudaStreamQuery(w->device->compute);
    for (int side = 0; side < SIDES; side++)
        for (int way = 0; way < WAYS && state != cudaErrorNotReady; way++)
            if (w->sides[side].ways[way].stream)
                state = cudaStreamQuery(w->sides[side].ways[way].stream);
    return state != cudaErrorNotReady;
}

static void wires_close(struct ls_program *p)
{
    const double moment = 1;
    struct wires *w = p->wires;
    if (!w)
        return;
    for (double start = ls_now(); !w->device->lost && !is_idle(w);) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        w->device->lost = ls_now() - start > moment;
    }
    w->device->watch = NULL;
    p->wires = NULL;
    wires_free(w);
}

/* --- messages ------------------------------------------------------------------------------------------------------- */

/* An error of NCCL is often the first sign of a lost process. Give the group some seconds to name it. */
static enum ls_status check(struct wires *w, ncclResult_t result)
{
    const double hearing = 5;
    char why[COLLECTIVE_WHY];
    if (result == ncclSuccess)
        return LS_OK;
    nccl_describe(&w->lib, &(struct nccl_result){result, cudaSuccess}, NULL, why);
    w->device->lost = true; /* what is enqueued may wait for ever */
    for (double start = ls_now(), now = start; now - start < hearing; now = ls_now()) {
        LS_TRY(w->g.check_wait(w->g.context, now - start));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return ls_fail(LS_PEER_LOST, "%s", why);
}

static enum ls_status wires_send(struct ls_program *p, int side, const void *from, size_t bytes)
{
    struct wires *w = p->wires;
    struct way *way = &w->sides[side].ways[WAY_OUT];
    LS_TRY(collective_follow(w->device->compute, w->here, way->stream));
    return check(w, w->lib.send(from, bytes, ncclUint8, 1, way->comm, way->stream));
}

static enum ls_status wires_receive(struct ls_program *p, int side, void *to, size_t bytes)
{
    struct wires *w = p->wires;
    struct side *s = &w->sides[side];
    struct way *way = &s->ways[WAY_IN];
    LS_TRY(collective_follow(w->device->compute, w->here, way->stream));
    LS_TRY(check(w, w->lib.receive(to, bytes, ncclUint8, 0, way->comm, way->stream)));
    CUDA_TRY(cudaEventRecord(s->arrived[s->asked++ % LS_WIRE_AHEAD], way->stream));
    return LS_OK;
}

/* Adds a pause that is over; one that is not is left out, which no caller of `waited` sees. */
static void count_pause(struct wires *w, struct pause *pause)
{
    float milliseconds = 0;
    if (pause->used && cudaEventElapsedTime(&milliseconds, pause->begin, pause->end) == cudaSuccess)
        w->seconds += 1e-3 * (double)milliseconds;
    else
        cudaGetLastError();
    pause->used = false;
}

static enum ls_status wires_accept(struct ls_program *p, int side)
{
    struct wires *w = p->wires;
    struct side *s = &w->sides[side];
    struct pause *pause = &w->pauses[w->n_pauses++ % PAUSES];
    count_pause(w, pause);
    CUDA_TRY(cudaEventRecord(pause->begin, w->device->compute));
    CUDA_TRY(cudaStreamWaitEvent(w->device->compute, s->arrived[s->accepted++ % LS_WIRE_AHEAD], 0));
    CUDA_TRY(cudaEventRecord(pause->end, w->device->compute));
    pause->used = true;
    return LS_OK;
}

static double wires_waited(struct ls_program *p)
{
    struct wires *w = p->wires;
    for (int i = 0; i < PAUSES; i++)
        count_pause(w, &w->pauses[i]);
    double seconds = w->seconds;
    w->seconds = 0;
    return seconds;
}

const struct ls_backend_wires ls_cuda_wires = {
    .open = wires_open,
    .send = wires_send,
    .receive = wires_receive,
    .accept = wires_accept,
    .waited = wires_waited,
    .close = wires_close,
};
