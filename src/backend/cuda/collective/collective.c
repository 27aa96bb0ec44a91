#include "backend/cuda/collective/collective.h"
#include "backend/cuda/timeline.h"
#include "base/system/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum ls_status collective_agree(const struct ls_peers_group *g, const char *mine, char *why, size_t room)
{
    char word[COLLECTIVE_WHY], *all = ls_alloc((size_t)g->size, COLLECTIVE_WHY);
    snprintf(word, sizeof word, "%s", mine);
    enum ls_status st = all ? g->gather(g->context, word, sizeof word, all) : LS_FAILED;
    *why = 0;
    for (int rank = 0; st == LS_OK && rank < g->size && !*why; rank++) {
        const char *said = all + (size_t)rank * COLLECTIVE_WHY;
        if (*said && rank > 0)
            snprintf(why, room, "rank %d: %s", rank, said);
        else
            snprintf(why, room, "%s", said);
    }
    ls_free(all);
    return st;
}

/* --- waiting ---------------------------------------------------------------------------------------------------- */

static void nap(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

/* An error of CUDA or NCCL is often the first sign of a lost process. Give comm some seconds to name it. */
static enum ls_status look_around(const struct device_watch *w, cudaError_t state, double seconds,
                                  double *trouble_since)
{
    const double hearing = 5;
    const char *trouble = w->trouble ? w->trouble(w->of) : NULL;
    bool failed = state != cudaErrorNotReady;
    if ((failed || trouble) && *trouble_since < 0)
        *trouble_since = seconds;
    LS_TRY(w->check(w->context, seconds));
    if ((!failed && !trouble) || seconds < *trouble_since + hearing)
        return LS_OK;
    return failed ? cuda_check(state, "waiting for a step") : ls_fail(LS_PEER_LOST, "NCCL: %s", trouble);
}

enum ls_status program_await(const struct ls_program *p, cudaEvent_t event)
{
    const double brisk = 200e-6, look = 10e-3, stopped = 0.5;
    double start = ls_now(), looked = start, trouble_since = -1;
    if (p->device->lost)
        return LS_PEER_LOST;
    if (!p->device->watch) {
        CUDA_TRY(cudaEventSynchronize(event));
        return LS_OK;
    }
    for (cudaError_t state; (state = cudaEventQuery(event)) != cudaSuccess;) {
        double now = ls_now();
        if (now - looked > look + stopped)
            start += now - looked; /* this process itself was stopped: do not count that time */
        if (now - looked > look) {
            enum ls_status st = look_around(p->device->watch, state, now - start, &trouble_since);
            p->device->lost = p->device->lost || st != LS_OK;
            LS_TRY(st);
            looked = now;
        }
        if (now - start > brisk)
            nap(50e-6);
    }
    return LS_OK;
}

static bool idle(const struct collective *s)
{
    cudaStream_t streams[] = {s->device->compute, s->sums, s->device->copies};
    for (int i = 0; i < 3; i++)
        if (cudaStreamQuery(streams[i]) == cudaErrorNotReady)
            return false;
    return true;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

enum ls_status collective_follow(cudaStream_t from, cudaEvent_t event, cudaStream_t to)
{
    CUDA_TRY(cudaEventRecord(event, from));
    CUDA_TRY(cudaStreamWaitEvent(to, event, 0));
    return LS_OK;
}

void collective_end_mark(struct ls_program *p, struct mark *mark, int cut, size_t count)
{
    timeline_end(
        p, mark,
        &(struct ls_slice){.kind = LS_SLICE_SUM, .name = "sum", .number = cut, .bytes = count * sizeof(float)});
}

enum ls_status collective_skip_pass(struct ls_program *p)
{
    const struct ls_peers_group *g = &p->collective->g;
    CUDA_TRY(cudaMemsetAsync(g->grads, 0, g->count * sizeof *g->grads, p->device->compute));
    return LS_OK;
}

static enum ls_status sum_cut(struct ls_program *p, int cut)
{
    struct collective *s = p->collective;
    struct mark *mark = timeline_begin(p, s->sums);
    LS_TRY(nccl_sum(s, cut));
    collective_end_mark(p, mark, cut, s->cuts[cut].count);
    return LS_OK;
}

/* From node `at` on; the end of the pass where this rank has no samples. */
static enum ls_status enqueue_step(struct ls_program *p, int at)
{
    struct collective *s = p->collective;
    for (int cut = 0; cut < s->n_cuts; cut++) {
        int end = s->cuts[cut].ready + 1 > at ? s->cuts[cut].ready + 1 : at;
        LS_TRY(program_enqueue(p, at, end));
        LS_TRY(s->g.settle(s->g.context, cut));
        LS_TRY(collective_follow(p->device->compute, s->fork, s->sums));
        LS_TRY(sum_cut(p, cut));
        at = end;
    }
    LS_TRY(program_enqueue(p, at, s->end));
    LS_TRY(collective_follow(s->sums, s->join, p->device->compute));
    return program_enqueue(p, s->end, p->core.g->n_nodes);
}

enum ls_status program_enqueue_shared(struct ls_program *p)
{
    return enqueue_step(p, 0);
}

/* Without a graph. Either all ranks launch a graph or none does, so that NCCL sees the same calls on every rank. */
static enum ls_status step_directly(struct ls_program *p, const struct ls_run *run)
{
    bool pass = run->valid > 0;
    LS_TRY(program_feed(p, run, pass));
    if (!pass)
        LS_TRY(collective_skip_pass(p));
    LS_TRY(enqueue_step(p, pass ? 0 : p->collective->end));
    program_fed(p);
    return LS_OK;
}

static enum ls_status step(struct ls_program *p, const struct ls_run *run, bool scarce)
{
    if (p->device->lost)
        return LS_PEER_LOST;
    if (p->collective->kind == LS_PEERS_MEMORY)
        return ipc_step(p, run);
    return scarce ? step_directly(p, run) : program_run(p, 0, p->core.g->n_nodes, run);
}

/* --- open and close ---------------------------------------------------------------------------------------------- */

/* When the GPU is lost, a thread of NCCL may still use it: free nothing. */
static void collective_free(struct collective *s)
{
    if (s->device->lost)
        return;
    if (s->sums)
        cudaStreamDestroy(s->sums);
    if (s->fork)
        cudaEventDestroy(s->fork);
    if (s->join)
        cudaEventDestroy(s->join);
    ls_free(s->cuts);
    ls_free(s);
}

static enum ls_status make_streams(struct collective *s)
{
    int least, greatest;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&s->sums, cudaStreamNonBlocking, greatest));
    CUDA_TRY(cudaEventCreateWithFlags(&s->fork, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&s->join, cudaEventDisableTiming));
    return LS_OK;
}

static enum ls_status open_collective(struct ls_program *p, enum ls_peers_kind kind, const struct ls_peers_group *group,
                                      char *why, size_t room)
{
    enum ls_status st = LS_OK;
    *why = 0;
    struct collective *s = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    s->kind = kind;
    s->g = *group;
    s->device = p->device;
    LS_TRY_GOTO(failed, make_streams(s));
    LS_TRY_GOTO(failed, kind == LS_PEERS_NCCL ? nccl_open(s, why, room) : ipc_open(s, why, room));
    if (*why)
        goto failed;
    s->watch = (struct device_watch){s->g.check_wait, s->g.context, s->nccl ? nccl_trouble : NULL, s};
    s->device->watch = &s->watch;
    p->collective = s;
    return LS_OK;
failed:
    collective_free(s);
    return st;
}

static enum ls_status share(struct ls_program *p, const struct ls_peers_cut *cuts, int n, int end)
{
    struct collective *s = p->collective;
    s->cuts = ls_alloc((size_t)n, sizeof *s->cuts);
    if (!s->cuts)
        return LS_FAILED;
    memcpy(s->cuts, cuts, (size_t)n * sizeof *cuts);
    s->n_cuts = n;
    s->end = end;
    return s->kind == LS_PEERS_NCCL ? nccl_share(s) : ipc_share(s);
}

/* Wait until every rank is idle, so that no rank frees what another one still uses. */
static bool part(const struct ls_program *p)
{
    struct collective *s = p->collective;
    char nothing[1] = "", *all = ls_alloc((size_t)s->g.size, 1);
    bool parted = all && cudaEventRecord(s->join, p->device->compute) == cudaSuccess &&
                  program_await(p, s->join) == LS_OK && s->g.gather(s->g.context, nothing, 1, all) == LS_OK;
    ls_free(all);
    return parted;
}

static void close_collective(struct ls_program *p, bool together)
{
    const double moment = 1;
    struct collective *s = p->collective;
    if (!s)
        return;
    together = together && part(p);
    for (double start = ls_now(); !s->device->lost && !idle(s); nap(1e-3))
        s->device->lost = ls_now() - start > moment;
    together = together && !s->device->lost;
    if (!s->device->lost)
        program_forget(p); /* graphs hold references to NCCL */
    if (s->nccl && together)
        nccl_close(s);
    if (s->ipc)
        ipc_close(s, together);
    s->device->watch = NULL;
    collective_free(s);
    p->collective = NULL;
}

const struct ls_backend_peers ls_cuda_peers = {
    .open = open_collective,
    .share = share,
    .step = step,
    .meet = ipc_meet,
    .reach = ipc_reach,
    .close = close_collective,
    .nccl = nccl_there,
};
