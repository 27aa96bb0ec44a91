/* Running a range of nodes: captured as CUDA graphs (CUDA-4), or timed node by node. */
#include "backend/cuda/conv/tune.h"
#include "backend/cuda/timeline.h"
#include "base/log.h"

static enum ls_status run_node(struct ls_program *p, int node)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    if (p->fronts)
        LS_TRY(fronts_add(p->fronts, p->device->compute));
    LS_TRY(p->execs[node].kernel->run(p, node));
    timeline_end_nodes(p, mark, node, node + 1);
    return LS_OK;
}

static enum ls_status run_updates(struct ls_program *p, int first, int last)
{
    struct mark *mark = timeline_begin(p, p->device->compute);
    LS_TRY(updates_run(p, first, last));
    timeline_end_nodes(p, mark, first, last);
    return LS_OK;
}

/* CUDA-5. */
static enum ls_status run_aside(struct ls_program *p, int node)
{
    struct device *d = p->device;
    CUDA_TRY(cudaEventRecord(p->fork, d->compute));
    CUDA_TRY(cudaStreamWaitEvent(d->aside, p->fork, 0));
    LS_TRY(device_turn(d));
    enum ls_status st = run_node(p, node), turned = device_turn(d);
    LS_TRY(st);
    LS_TRY(turned);
    CUDA_TRY(cudaEventRecord(p->joined, d->aside));
    return LS_OK;
}

enum ls_status program_enqueue(struct ls_program *p, int first, int last)
{
    int aside = LS_NONE; /* the node that runs there */
    for (int n = first; n < last;) {
        int end = n + updates_run_length(p, n, last);
        if (aside != LS_NONE && n >= p->execs[aside].join) {
            CUDA_TRY(cudaStreamWaitEvent(p->device->compute, p->joined, 0));
            aside = LS_NONE;
        }
        if (end > n) {
            LS_TRY(run_updates(p, n, end));
        } else if (p->execs[n].join != LS_NONE) {
            LS_TRY(run_aside(p, n));
            aside = n;
        } else {
            LS_TRY(run_node(p, n));
        }
        n = end > n ? end : n + 1;
    }
    if (aside != LS_NONE)
        CUDA_TRY(cudaStreamWaitEvent(p->device->compute, p->joined, 0));
    return cuda_check(cudaGetLastError(), "a kernel's launch");
}

/* The range of all nodes is a step. With a collective, a step contains sums over processes. */
static enum ls_status enqueue(struct ls_program *p, int first, int last)
{
    bool shared = p->collective && first == 0 && last == p->core.g->n_nodes;
    return shared ? program_enqueue_shared(p) : program_enqueue(p, first, last);
}

enum ls_status program_capture(struct ls_program *p, int first, int last, cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    CUDA_TRY(cudaStreamBeginCapture(p->device->compute, cudaStreamCaptureModeThreadLocal));
    enum ls_status st = LS_OK;
    struct fronts fronts = {0};
    p->fronts = &fronts;
    if (p->small)
        st = cuda_check(cudaMemsetAsync(p->small, 0, p->small_bytes, p->device->compute), "cudaMemsetAsync");
    if (st == LS_OK)
        st = enqueue(p, first, last);
    p->fronts = NULL;
    cudaError_t ended = cudaStreamEndCapture(p->device->compute, &graph);
    if (st == LS_OK)
        st = cuda_check(ended, "recording the step as a graph");
    if (st == LS_OK && p->small)
        st = drop_clears(graph, p->small, p->small_bytes, &fronts);
    ls_free(fronts.nodes);
    if (st == LS_OK)
        st = cuda_check(cudaGraphInstantiate(exec, graph, 0), "cudaGraphInstantiate");
    if (graph)
        cudaGraphDestroy(graph);
    return st;
}

/* The first run of a range is not captured, so that every library loads what it needs. */
enum ls_status program_run(struct ls_program *p, int first, int last, const struct ls_run *run)
{
    enum { WORTH_A_GRAPH = 4 };
    struct captured *c = NULL;
    if (first >= last)
        return LS_OK;
    LS_TRY(program_feed(p, run, first == 0));
    for (int i = 0; i < p->n_captured && !c; i++)
        if (p->captured[i].first == first && p->captured[i].last == last)
            c = &p->captured[i];
    if (!c) {
        if (p->n_captured == p->captured_room) {
            int room = p->captured_room ? 2 * p->captured_room : 64;
            struct captured *more = ls_realloc(p->captured, (size_t)p->n_captured, (size_t)room, sizeof *more);
            if (!more)
                return LS_FAILED;
            p->captured = more;
            p->captured_room = room;
        }
        p->captured[p->n_captured++] = (struct captured){first, last, NULL};
        LS_TRY(enqueue(p, first, last));
    } else if (last - first < WORTH_A_GRAPH) {
        LS_TRY(enqueue(p, first, last));
    } else if (timeline_is_on(p)) {
        LS_TRY(timeline_launch(p, first, last));
    } else {
        if (!c->graph)
            LS_TRY(program_capture(p, first, last, &c->graph));
        CUDA_TRY(cudaGraphLaunch(c->graph, p->device->compute));
    }
    program_fed(p);
    return LS_OK;
}

/* One graph with an event behind each node, so that only time on the GPU counts. Nodes that run as one kernel have one event
 * behind all of them, as an event takes longer than a microsecond; the first of them gets their time, the others 0. Takes the
 * best of a few launches. */
enum ls_status program_profile(struct ls_program *p, int first, int last, const struct ls_run *run, double *seconds)
{
    enum { ROUNDS = 5 };
    enum ls_status st = LS_OK;
    cudaStream_t stream = p->device->compute;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    int n = last - first;
    cudaEvent_t *events = ls_alloc((size_t)n + 1, sizeof *events);
    if (!events)
        return LS_FAILED;
    for (int i = 0; i <= n && st == LS_OK; i++)
        st = cuda_check(cudaEventCreate(&events[i]), "cudaEventCreate");
    LS_TRY_GOTO(destroy, st);
    LS_TRY_GOTO(destroy, program_feed(p, run, first == 0));
    LS_TRY_GOTO(destroy, program_enqueue(p, first, last));
    LS_TRY_GOTO(destroy, cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
    LS_TRY_GOTO(destroy, cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture"));
    cudaEventRecordWithFlags(events[0], stream, cudaEventRecordExternal);
    for (int i = 0; i < n && st == LS_OK;) {
        int at = first + i, end = at + updates_run_length(p, at, last);
        st = end > at ? updates_run(p, at, end) : p->execs[at].kernel->run(p, at);
        i = end > at ? end - first : i + 1;
        cudaEventRecordWithFlags(events[i], stream, cudaEventRecordExternal);
    }
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    st = st == LS_OK ? cuda_check(ended, "capture") : st;
    if (st == LS_OK)
        st = cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    for (int round = 0; round < ROUNDS && st == LS_OK; round++) {
        st = cuda_check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
        if (st == LS_OK)
            st = cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        for (int i = 0, end; i < n && st == LS_OK; i = end) {
            float ms = 0;
            int together = updates_run_length(p, first + i, last);
            end = together > 0 ? i + together : i + 1;
            cudaEventElapsedTime(&ms, events[i], events[end]);
            seconds[i] = round > 0 && seconds[i] < ms * 1e-3 ? seconds[i] : ms * 1e-3;
            for (int k = i + 1; k < end; k++)
                seconds[k] = 0;
        }
    }
destroy:
    if (exec)
        cudaGraphExecDestroy(exec);
    if (graph)
        cudaGraphDestroy(graph);
    for (int i = 0; i <= n; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    ls_free(events);
    return st;
}
