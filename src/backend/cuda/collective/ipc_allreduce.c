/* All-reduce through mapped memory (CUDA IPC), for processes of one machine with a GPU each or one GPU for several. Every rank
 * owns a range of each cut: it reads that range of all parts, adds them in the order of the group, and writes the sum to all
 * parts.
 *
 *   ready[r][c]  event: the part of rank r of cut c is complete
 *   done[r]      event: rank r has summed its ranges and accesses no other memory any more
 *
 * A process can wait for an event of another process only after it was recorded. So the hosts meet twice in a step, while the
 * GPUs still compute what was enqueued: when all have recorded ready, and when all have recorded done. A GPU waits for ready of
 * all ranks before it sums, and for done of all ranks before it updates. Steps cannot mix: a part is written again, and ready
 * recorded again, only behind done of all ranks.
 *
 * An update may meet again, by the same events: one that was recorded anew in the meantime comes later, and nothing
 * that it waits for comes after this wait. */
#include "backend/cuda/collective/collective.h"
#include "backend/cuda/timeline.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { LEAST = 64 /* floats that a range is made of: gradients lie at multiples of 256 bytes */ };

struct ipc_allreduce {
    struct ls_cuda_parts parts; /* of all ranks; all but mine are mapped */
    cudaEvent_t *ready;         /* owned; rank * n_cuts + cut */
    cudaEvent_t *done;          /* owned; one a rank */
    char *words;                /* owned; where all meet */
};

/* --- opening ------------------------------------------------------------------------------------------------------- */

struct word {
    char why[COLLECTIVE_WHY];
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t done;
};

static cudaError_t make_event(cudaEvent_t *event, cudaIpcEventHandle_t *handle)
{
    cudaError_t error = cudaEventCreateWithFlags(event, cudaEventInterprocess | cudaEventDisableTiming);
    return error == cudaSuccess ? cudaIpcGetEventHandle(handle, *event) : error;
}

/* The first value of a rank's gradients shows, for the moment, that its memory is what others see. */
static float mark_of(int rank)
{
    return (float)(rank + 1);
}

static enum ls_status prepare_word(struct collective *s, struct word *w)
{
    int able = 0;
    float mark = mark_of(s->g.rank);
    LS_TRY(device_put(s->g.grads, &mark, sizeof mark));
    cudaError_t error = cudaDeviceGetAttribute(&able, cudaDevAttrIpcEventSupport, s->device->number);
    if (s->g.size > LS_CUDA_PARTS)
        snprintf(w->why, sizeof w->why, "there are more than %d processes", LS_CUDA_PARTS);
    else if (error == cudaSuccess && !able)
        snprintf(w->why, sizeof w->why, "the card cannot share events with other processes");
    else if (error == cudaSuccess)
        error = cudaIpcGetMemHandle(&w->memory, s->g.grads);
    if (error == cudaSuccess && !*w->why)
        error = make_event(&s->ipc->done[s->g.rank], &w->done);
    if (error != cudaSuccess)
        snprintf(w->why, sizeof w->why, "the card's memory cannot be shared (%s)", cudaGetErrorString(error));
    cudaGetLastError();
    return LS_OK;
}

static void reach_other(struct collective *s, int rank, const struct word *w, char why[COLLECTIVE_WHY])
{
    struct ipc_allreduce *r = s->ipc;
    void *memory = NULL;
    float mark = 0;
    cudaError_t error = cudaIpcOpenMemHandle(&memory, w->memory, cudaIpcMemLazyEnablePeerAccess);
    r->parts.part[rank] = memory;
    if (error == cudaSuccess)
        error = cudaIpcOpenEventHandle(&r->done[rank], w->done);
    if (error == cudaSuccess)
        error = cudaMemcpy(&mark, memory, sizeof mark, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess)
        snprintf(why, COLLECTIVE_WHY, "rank %d's memory cannot be reached (%s)", rank, cudaGetErrorString(error));
    else if (mark != mark_of(rank))
        snprintf(why, COLLECTIVE_WHY, "rank %d's memory is not what it seems", rank);
    cudaGetLastError();
}

/* Everybody's memory; why[]: "", or why not. */
static enum ls_status meet(struct collective *s, char why[COLLECTIVE_WHY])
{
    struct word mine = {.why = ""}, *all = ls_alloc((size_t)s->g.size, sizeof *all);
    if (!all)
        return LS_FAILED;
    enum ls_status st = prepare_word(s, &mine);
    if (st == LS_OK)
        st = s->g.gather(s->g.context, &mine, sizeof mine, all);
    for (int rank = 0; st == LS_OK && rank < s->g.size && !*why; rank++)
        snprintf(why, COLLECTIVE_WHY, "%s", all[rank].why);
    for (int rank = 0; st == LS_OK && rank < s->g.size && !*why; rank++)
        if (rank != s->g.rank)
            reach_other(s, rank, &all[rank], why);
    ls_free(all);
    return st;
}

static void drop_event(cudaEvent_t *event)
{
    if (*event)
        cudaEventDestroy(*event);
    *event = NULL;
}

/* What a rank has, or what was opened of it. */
static void let_go(struct collective *s, int rank)
{
    struct ipc_allreduce *r = s->ipc;
    if (rank >= LS_CUDA_PARTS)
        return; /* nothing was shared */
    float **part = &r->parts.part[rank];
    if (rank != s->g.rank && *part)
        cudaIpcCloseMemHandle(*part);
    *part = NULL;
    drop_event(&r->done[rank]);
    for (int cut = 0; r->ready && cut < s->n_cuts; cut++)
        drop_event(&r->ready[rank * s->n_cuts + cut]);
    cudaGetLastError();
}

static void reach_free(struct collective *s)
{
    struct ipc_allreduce *r = s->ipc;
    ls_free(r->ready);
    ls_free(r->done);
    ls_free(r->words);
    ls_free(r);
    s->ipc = NULL;
}

enum ls_status ipc_open(struct collective *s, char *why, size_t room)
{
    enum ls_status st = LS_FAILED;
    const float zero = 0;
    char mine[COLLECTIVE_WHY] = "";
    struct ipc_allreduce *r = s->ipc = ls_alloc(1, sizeof *r);
    if (!r)
        return LS_FAILED;
    r->done = ls_alloc((size_t)s->g.size, sizeof *r->done);
    r->words = ls_alloc((size_t)s->g.size, 1);
    if (!r->done || !r->words)
        goto free_reach;
    LS_TRY_GOTO(failed, meet(s, mine));
    LS_TRY_GOTO(failed, collective_agree(&s->g, mine, why, room)); /* all have looked at the marks */
    LS_TRY_GOTO(failed, device_put(s->g.grads, &zero, sizeof zero));
    if (*why)
        goto failed;
    r->parts.part[s->g.rank] = s->g.grads;
    r->parts.n = s->g.size;
    for (int i = 0; i < s->g.n_sums; i++) {
        r->parts.to[i] = (int8_t)s->g.sums[i].to;
        r->parts.from[i] = (int8_t)s->g.sums[i].from;
    }
    return LS_OK;
failed:
    ipc_close(s, st == LS_OK);
    return st;
free_reach:
    reach_free(s);
    return st;
}

static void open_ready(struct collective *s, const cudaIpcEventHandle_t *all, char why[COLLECTIVE_WHY])
{
    cudaError_t error = cudaSuccess;
    for (int rank = 0; rank < s->g.size; rank++)
        for (int cut = 0; rank != s->g.rank && cut < s->n_cuts && error == cudaSuccess; cut++) {
            int at = rank * s->n_cuts + cut;
            error = cudaIpcOpenEventHandle(&s->ipc->ready[at], all[at]);
        }
    if (error != cudaSuccess)
        snprintf(why, COLLECTIVE_WHY, "CUDA: events of other processes: %s", cudaGetErrorString(error));
}

enum ls_status ipc_share(struct collective *s)
{
    enum ls_status st = LS_OK;
    size_t n = (size_t)s->n_cuts, size = (size_t)s->g.size;
    char mine[COLLECTIVE_WHY] = "", why[COLLECTIVE_WHY] = "";
    cudaIpcEventHandle_t *own = ls_alloc(n, sizeof *own), *all = ls_alloc(size * n, sizeof *all);
    cudaError_t error = cudaSuccess;
    s->ipc->ready = ls_alloc(size * n, sizeof *s->ipc->ready);
    if (!own || !all || !s->ipc->ready) {
        st = LS_FAILED;
        goto free_handles;
    }
    for (size_t cut = 0; cut < n && error == cudaSuccess; cut++)
        error = make_event(&s->ipc->ready[(size_t)s->g.rank * n + cut], &own[cut]);
    if (error != cudaSuccess)
        snprintf(mine, sizeof mine, "CUDA: events for other processes: %s", cudaGetErrorString(error));
    LS_TRY_GOTO(free_handles, collective_agree(&s->g, mine, why, sizeof why));
    LS_TRY_GOTO(free_handles, s->g.gather(s->g.context, own, n * sizeof *own, all));
    if (!*why)
        open_ready(s, all, mine);
    if (!*why)
        LS_TRY_GOTO(free_handles, collective_agree(&s->g, mine, why, sizeof why));
    if (*why)
        st = ls_fail(LS_FAILED, "%s", why);
free_handles:
    ls_free(own);
    ls_free(all);
    return st;
}

/* --- a step ---------------------------------------------------------------------------------------------------------- */

static enum ls_status all_are_here(struct collective *s)
{
    char nothing = 0;
    return s->g.gather(s->g.context, &nothing, 1, s->ipc->words);
}

static enum ls_status run_pass(struct ls_program *p, const struct ls_run *run)
{
    struct collective *s = p->collective;
    const cudaEvent_t *ready = s->ipc->ready + s->g.rank * s->n_cuts;
    int at = run->valid > 0 ? 0 : s->end;
    if (run->valid == 0)
        LS_TRY(collective_skip_pass(p));
    for (int cut = 0; cut < s->n_cuts; cut++) {
        int end = s->cuts[cut].ready + 1 > at ? s->cuts[cut].ready + 1 : at;
        LS_TRY(program_run(p, at, end, run));
        LS_TRY(s->g.settle(s->g.context, cut));
        CUDA_TRY(cudaEventRecord(ready[cut], p->device->compute));
        at = end;
    }
    return program_run(p, at, s->end, run);
}

/* My range of a cut. */
static enum ls_status sum(struct ls_program *p, int cut)
{
    struct collective *s = p->collective;
    const struct ls_peers_cut *c = &s->cuts[cut];
    size_t pieces = c->count / LEAST, size = (size_t)s->g.size, rank = (size_t)s->g.rank;
    size_t first = pieces * rank / size * LEAST, last = rank + 1 < size ? pieces * (rank + 1) / size * LEAST : c->count;
    for (int r = 0; r < s->g.size; r++)
        CUDA_TRY(cudaStreamWaitEvent(s->sums, s->ipc->ready[r * s->n_cuts + cut], 0));
    struct mark *mark = timeline_begin(p, s->sums);
    ls_cuda_sum_parts(s->sums, &s->ipc->parts, (int64_t)(c->first + first), (int64_t)(last - first));
    collective_end_mark(p, mark, cut, last - first);
    return cuda_check(cudaGetLastError(), "summing gradients");
}

/* What is enqueued from now on comes behind what every rank has enqueued on this stream of its own. */
static enum ls_status meet_behind(struct ls_program *p, cudaStream_t stream)
{
    struct collective *s = p->collective;
    CUDA_TRY(cudaEventRecord(s->ipc->done[s->g.rank], stream));
    LS_TRY(all_are_here(s));
    for (int rank = 0; rank < s->g.size; rank++)
        CUDA_TRY(cudaStreamWaitEvent(p->device->compute, s->ipc->done[rank], 0));
    return LS_OK;
}

enum ls_status ipc_step(struct ls_program *p, const struct ls_run *run)
{
    struct collective *s = p->collective;
    LS_TRY(run_pass(p, run));
    LS_TRY(all_are_here(s));
    for (int cut = 0; cut < s->n_cuts; cut++)
        LS_TRY(sum(p, cut));
    LS_TRY(meet_behind(p, s->sums));
    return s->g.update ? s->g.update(s->g.context, run) : program_run(p, s->end, p->core.g->n_nodes, run);
}

enum ls_status ipc_meet(struct ls_program *p)
{
    return meet_behind(p, p->device->compute);
}

const float *ipc_reach(const struct ls_program *p, int rank)
{
    return p->collective->ipc->parts.part[rank];
}

/* What others have opened goes when they no longer have it, or not at all. */
void ipc_close(struct collective *s, bool together)
{
    for (int rank = 0; rank < s->g.size && !s->device->lost; rank++)
        if (rank != s->g.rank)
            let_go(s, rank);
    if (together && all_are_here(s) == LS_OK)
        let_go(s, s->g.rank);
    else
        device_leave(s->g.grads);
    reach_free(s);
}
