/* What a card does at which time (backend/cuda/timeline.h), without a card: streams, events and graphs are played here, on a
 * clock of the test's. The card's clock runs at another rate than the host's. Built where the backend cuda is. */
#include "backend/cuda/timeline.h"
#include "graph/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { NODES = 6, UPDATES = 2, ROOM = 64 };
#define DRIFT 1.0005 /* seconds of the card in one of the host */

struct CUstream_st {
    double busy; /* until then, on the card's clock */
};
struct CUevent_st {
    double time;
    bool recorded;
};
struct op {
    cudaEvent_t event; /* NULL: work */
    cudaStream_t stream;
    double seconds;
};
struct CUgraphExec_st {
    struct op ops[ROOM];
    int n;
};

static double host = 1000; /* every look at the clock takes a microsecond */
static struct CUgraphExec_st *captured;
static int events, streams, graphs;
static cudaError_t trouble; /* of cudaEventElapsedTime */
static void *left[20000];   /* what is made while `leaving`: nobody destroys it */
static int n_left;
static bool leaving;

/* --- what CUDA does --------------------------------------------------------------------------------------------- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    host += 1e-6;
    t->tv_sec = (time_t)host;
    t->tv_nsec = (long)((host - floor(host)) * 1e9);
    return 0;
}

static void *make(size_t size)
{
    void *memory = calloc(1, size);
    assert_true(n_left < (int)(sizeof left / sizeof *left));
    if (leaving)
        left[n_left++] = memory;
    return memory;
}

static double card_of(double host_time)
{
    return DRIFT * (host_time - 900);
}

static double host_of(double card_time)
{
    return card_time / DRIFT + 900;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = make(sizeof **event);
    events++;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    events--;
    return cudaSuccess;
}

static void play(const struct op *op)
{
    double now = card_of(host);
    op->stream->busy = op->stream->busy > now ? op->stream->busy : now;
    op->stream->busy += op->event ? 1e-7 : op->seconds;
    if (op->event)
        *op->event = (struct CUevent_st){op->stream->busy, true};
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    struct op op = {event, stream, 0};
    assert_int_equal(flags == cudaEventRecordExternal, captured != NULL);
    if (captured)
        captured->ops[captured->n++] = op;
    else
        play(&op);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    assert_true(event->recorded);
    assert_null(captured); /* CUDA allows no wait while it captures */
    double over = host_of(event->time) + 2e-6;
    host = host > over ? host : over;
    return cudaSuccess;
}

/* Nobody may ask before both are over, nor for an event before another one. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    assert_true(from->recorded && to->recorded);
    assert_true(host_of(from->time) <= host && host_of(to->time) <= host);
    assert_true(to->time >= from->time);
    *ms = (float)(1e3 * (to->time - from->time));
    return trouble;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags;
    assert_int_equal(priority, -5);
    *stream = make(sizeof **stream);
    streams++;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    streams--;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    (void)stream;
    for (int i = 0; i < graph->n; i++)
        play(&graph->ops[i]);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    free(graph);
    graphs--;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "trouble";
}

enum ls_status cuda_check(cudaError_t error, const char *what)
{
    (void)what;
    return error == cudaSuccess ? LS_OK : LS_FAILED;
}

/* --- the program ------------------------------------------------------------------------------------------------ */

static struct CUstream_st compute, aside, copies, sums;
static struct device device = {.compute = &compute, .aside = &aside, .copies = &copies};
static struct ls_node nodes[NODES];
static struct ls_graph graph = {.nodes = nodes, .n_nodes = NODES};
static struct node_exec execs[NODES];
static struct ls_program program = {.core = {.g = &graph}, .device = &device, .execs = execs};

enum ls_status program_await(const struct ls_program *p, cudaEvent_t event)
{
    (void)p;
    return cuda_check(cudaEventSynchronize(event), "");
}

static void work(cudaStream_t stream, double seconds)
{
    struct op op = {NULL, stream, seconds};
    if (captured)
        captured->ops[captured->n++] = op;
    else
        play(&op);
}

/* Node n takes n + 1 milliseconds; the third runs aside; the last two are one kernel; a sum comes behind the second. */
static void enqueue(void)
{
    for (int n = 0; n < NODES - UPDATES; n++) {
        cudaStream_t stream = n == 2 ? &aside : &compute;
        struct mark *m = timeline_begin(&program, stream);
        work(stream, 1e-3 * (n + 1));
        timeline_end_nodes(&program, m, n, n + 1);
        if (n != 1)
            continue;
        m = timeline_begin(&program, &sums);
        work(&sums, 1e-3);
        timeline_end(&program, m, &(struct ls_slice){.kind = LS_SLICE_SUM, .name = "sum", .number = 0, .bytes = 8});
    }
    struct mark *m = timeline_begin(&program, &compute);
    work(&compute, 1e-3);
    timeline_end_nodes(&program, m, NODES - UPDATES, NODES);
}

enum ls_status program_capture(struct ls_program *p, int first, int last, cudaGraphExec_t *exec)
{
    assert_ptr_equal(p, &program);
    assert_int_equal(first, 0);
    assert_int_equal(last, NODES);
    captured = make(sizeof *captured);
    graphs++;
    enqueue();
    *exec = captured;
    captured = NULL;
    return LS_OK;
}

static void copy_input(void)
{
    struct mark *m = timeline_begin(&program, &copies);
    work(&copies, 0.5e-3);
    timeline_end(&program, m, &(struct ls_slice){.kind = LS_SLICE_COPY, .name = "input", .number = -1, .bytes = 4});
}

/* The first step is enqueued, later ones are graphs, as in program_run. The host is a step ahead. */
static void run_steps(struct ls_trace *trace, int first, int last, int seen)
{
    for (int step = first; step <= last; step++) {
        ls_trace_step(trace, (uint64_t)step);
        copy_input();
        if (step == seen)
            enqueue();
        else if (timeline_is_on(&program))
            assert_int_equal(timeline_launch(&program, 0, NODES), LS_OK);
        else
            work(&compute, 12e-3);
        host += 8e-3;
    }
}

/* --- tests ------------------------------------------------------------------------------------------------------ */

static struct ls_trace *begin(uint64_t first, uint64_t last)
{
    struct ls_trace *trace;
    for (int n = 0; n < NODES; n++) {
        nodes[n].name = "layer";
        nodes[n].op = n < NODES - UPDATES ? &ls_op_conv : &ls_op_dense;
        execs[n].note[0] = 0;
    }
    strcpy(execs[1].note, "cuDNN engine 5");
    compute.busy = aside.busy = copies.busy = sums.busy = 0;
    trouble = cudaSuccess;
    assert_int_equal(ls_trace_new(first, last, &trace), LS_OK);
    assert_int_equal(timeline_open(&program, trace, 64), LS_OK);
    assert_int_equal(timeline_open(&program, trace, 64), LS_OK); /* again: the first one is closed */
    return trace;
}

static void end(struct ls_trace *trace)
{
    timeline_close(&program);
    timeline_close(&program); /* nothing is left to do */
    assert_null(device.timeline);
    assert_int_equal(events, 0);
    assert_int_equal(streams, 0);
    assert_int_equal(graphs, 0);
    ls_trace_free(trace);
}

static void expect_track(const struct ls_trace *trace, int id, size_t count, double from, double to)
{
    const struct ls_track *track = trace->tracks[id];
    assert_int_equal(ls_trace_count(track), count);
    for (size_t i = 0; i < count; i++) {
        const struct ls_slice *s = &track->slices[i];
        assert_true(s->begin >= from && s->end <= to && s->begin <= s->end);
        assert_true(i == 0 || s[-1].end <= s->begin);
    }
}

static bool near(double a, double b)
{
    return fabs(a - b) < 20e-6; /* the time that an event takes there and back */
}

static void test_every_node(void **state)
{
    (void)state;
    for (int steps = 1; steps <= 7; steps++) {
        struct ls_trace *trace = begin(1, (uint64_t)steps);
        double from = host;
        run_steps(trace, 1, steps, 1);
        double over = host_of(compute.busy);
        timeline_close(&program);
        size_t n = (size_t)steps;
        expect_track(trace, LS_TRACK_CARD, 4 * n, from, host);
        expect_track(trace, LS_TRACK_CARD_ASIDE, n, from, host);
        expect_track(trace, LS_TRACK_CARD_COPIES, n, from, host);
        expect_track(trace, LS_TRACK_CARD_SUMS, n, from, host);
        const struct ls_slice *s = trace->tracks[LS_TRACK_CARD]->slices;
        for (size_t i = 0; i < 4 * n; i++)
            assert_true(near(s[i].end - s[i].begin, 1e-3 * (double[]){1, 2, 4, 1}[i % 4] / DRIFT));
        assert_string_equal(s[1].kernel, "cuDNN engine 5");
        assert_string_equal(s[0].kernel, "own");
        assert_int_equal(s[0].number, -1);
        assert_int_equal(s[3].number, UPDATES);
        assert_string_equal(s[3].detail, "dense");
        assert_true(near(s[4 * n - 1].end, over));
        assert_int_equal(trace->tracks[LS_TRACK_CARD_SUMS]->slices[0].late_rank, -1);
        end(trace);
    }
}

/* A long window: what the clocks drift apart is taken out. 400 steps are about five seconds, in which they drift by 2.5 ms. */
static void test_drift(void **state)
{
    (void)state;
    struct ls_trace *trace = begin(3, 402);
    run_steps(trace, 1, 402, 1);
    double over = host_of(compute.busy);
    timeline_close(&program);
    const struct ls_track *card = trace->tracks[LS_TRACK_CARD];
    assert_int_equal(ls_trace_count(card), 4 * 400);
    assert_int_equal(atomic_load(&card->dropped), 0);
    expect_track(trace, LS_TRACK_CARD, 4 * 400, 1000, host);
    assert_true(near(card->slices[4 * 400 - 1].end, over));
    end(trace);
}

/* More work outside of graphs than the pool has events for. */
static void test_pool(void **state)
{
    (void)state;
    struct ls_trace *trace = begin(1, 5000);
    double from = host;
    ls_trace_step(trace, 1);
    for (int i = 0; i < 5000; i++)
        copy_input();
    timeline_close(&program);
    expect_track(trace, LS_TRACK_CARD_COPIES, 5000, from, host);
    end(trace);
}

/* Nothing is recorded outside of the window. */
static void test_off(void **state)
{
    (void)state;
    struct ls_trace *trace = begin(10, 12);
    assert_false(timeline_is_on(&program));
    run_steps(trace, 1, 9, 1);
    assert_null(timeline_begin(&program, &compute));
    timeline_end(&program, NULL, NULL);
    timeline_end_nodes(&program, NULL, 0, 1);
    end(trace);
    assert_null(timeline_begin(&program, &compute)); /* closed */
    timeline_forget(&program);
    assert_false(timeline_is_on(&program));
}

/* Graphs are dropped within the window, as where another data set comes; what they did is kept. */
static void test_forget(void **state)
{
    (void)state;
    struct ls_trace *trace = begin(1, 9);
    double from = host;
    run_steps(trace, 1, 4, 1);
    timeline_forget(&program);
    assert_int_equal(graphs, 0);
    run_steps(trace, 5, 6, 1);
    timeline_close(&program);
    assert_int_equal(ls_trace_count(trace->tracks[LS_TRACK_CARD]), 4 * 6);
    expect_track(trace, LS_TRACK_CARD, 4 * 6, from, host);
    end(trace);
}

/* An error of CUDA ends the recording, not the run. */
static void test_trouble(void **state)
{
    (void)state;
    struct ls_trace *trace = begin(1, 9);
    run_steps(trace, 1, 3, 1);
    trouble = cudaErrorInvalidResourceHandle;
    run_steps(trace, 4, 6, 1);
    assert_false(timeline_is_on(&program));
    trouble = cudaSuccess;
    timeline_close(&program);
    end(trace);
}

/* What a card does that is lost is waited for by nobody, and nothing on it is freed. */
static void test_lost(void **state)
{
    (void)state;
    struct ls_trace *trace = begin(11, 19);
    timeline_close(&program);
    leaving = true;
    assert_int_equal(timeline_open(&program, trace, 64), LS_OK);
    run_steps(trace, 11, 13, 11);
    device.lost = true;
    timeline_close(&program);
    device.lost = leaving = false;
    assert_null(device.timeline);
    ls_trace_free(trace);
    assert_int_equal(events + streams + graphs, n_left);
    while (n_left > 0)
        free(left[--n_left]);
    events = streams = graphs = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_node), cmocka_unit_test(test_drift),  cmocka_unit_test(test_pool),
        cmocka_unit_test(test_off),        cmocka_unit_test(test_forget), cmocka_unit_test(test_trouble),
        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
