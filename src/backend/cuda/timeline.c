#include "backend/cuda/timeline.h"
#include "backend/cuda/card_clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "graph/ops.h"

#include <stdlib.h>
#include <string.h>

enum { POOL = 4096, STREAMS = 4, SPARE = 16 };

struct mark {
    cudaEvent_t begin, end;
    cudaStream_t stream;
    struct ls_slice slice; /* without times */
};

/* Marks that are read together: those of a graph, or the pool. */
struct batch {
    struct mark *marks; /* owned */
    int n, room;
    cudaEvent_t anchor; /* recorded shortly before the first of them; their times are counted from it */
    double since;       /* when that was, in seconds of the GPU */
    bool in_flight;
    /* Of a graph. */
    cudaEvent_t done; /* behind all of it */
    const struct ls_program *program;
    int first, last;
    cudaGraphExec_t graph;
};

struct timeline {
    struct ls_track *tracks[STREAMS];
    cudaStream_t streams[STREAMS - 1]; /* compute, aside, copies; every other one is that of the sums */
    struct card_clock clock;
    bool failed;
    struct batch pool;
    struct batch **graphs; /* owned */
    int n_graphs, graph_room;
    struct batch *into; /* the graph that is being captured; NULL: none */
};

/* The first error ends the recording; the run goes on. */
static bool worked(struct timeline *t, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    if (!t->failed)
        ls_warn("--trace: the card's timeline ends here: %s: %s", what, cudaGetErrorString(error));
    t->failed = true;
    return false;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static struct ls_track *track_of(const struct timeline *t, cudaStream_t stream)
{
    int i = 0;
    while (i < STREAMS - 1 && t->streams[i] != stream)
        i++;
    return t->tracks[i];
}

static enum ls_status await_batch(const struct ls_program *p, const struct batch *b)
{
    if (b->graph)
        return program_await(p, b->done);
    for (int i = 0; i < b->n; i++)
        LS_TRY(program_await(p, b->marks[i].end));
    return LS_OK;
}

/* Waits for the work and adds its slices, with times as the GPU counts them. */
static void read_batch(struct timeline *t, const struct ls_program *p, struct batch *b)
{
    if (!b->in_flight || t->failed)
        return;
    b->in_flight = false;
    t->failed = await_batch(p, b) != LS_OK;
    for (int i = 0; i < b->n && !t->failed; i++) {
        struct mark *m = &b->marks[i];
        double begin = 0, end = 0;
        if (!worked(t, card_clock_between(b->anchor, m->begin, &begin), "cudaEventElapsedTime") ||
            !worked(t, card_clock_between(b->anchor, m->end, &end), "cudaEventElapsedTime"))
            return;
        m->slice.begin = t->clock.host + b->since + begin;
        m->slice.end = t->clock.host + b->since + end;
        ls_trace_add(track_of(t, m->stream), &m->slice);
    }
}

/* --- marks ------------------------------------------------------------------------------------------------------ */

static void free_batch(struct batch *b, bool lost)
{
    for (int i = 0; i < b->room && !lost; i++) {
        if (b->marks[i].begin)
            cudaEventDestroy(b->marks[i].begin);
        if (b->marks[i].end)
            cudaEventDestroy(b->marks[i].end);
    }
    if (b->anchor && !lost)
        cudaEventDestroy(b->anchor);
    if (b->done && !lost)
        cudaEventDestroy(b->done);
    if (b->graph && !lost)
        cudaGraphExecDestroy(b->graph);
    ls_free(b->marks);
    *b = (struct batch){0};
}

static enum ls_status make_batch(struct batch *b, int room)
{
    b->marks = ls_alloc((size_t)room, sizeof *b->marks);
    if (!b->marks)
        return LS_FAILED;
    b->room = room;
    CUDA_TRY(cudaEventCreate(&b->anchor));
    CUDA_TRY(cudaEventCreateWithFlags(&b->done, cudaEventDisableTiming));
    for (int i = 0; i < room; i++) {
        CUDA_TRY(cudaEventCreate(&b->marks[i].begin));
        CUDA_TRY(cudaEventCreate(&b->marks[i].end));
    }
    return LS_OK;
}

bool timeline_is_on(const struct ls_program *p)
{
    const struct timeline *t = p->device->timeline;
    return t && !t->failed && ls_trace_on(t->tracks[0]);
}

static bool begin_batch(struct timeline *t, struct batch *b)
{
    if (!t->clock.is_set && !worked(t, card_clock_set(&t->clock), "the clock"))
        return false;
    b->in_flight = worked(t, card_clock_record(&t->clock, b->anchor, &b->since), "the clock");
    return b->in_flight;
}

/* The pool is read when it is full. A graph has room for all of its marks. */
static struct mark *new_mark(struct timeline *t, const struct ls_program *p)
{
    struct batch *b = t->into ? t->into : &t->pool;
    if (!t->into && b->n == b->room) {
        read_batch(t, p, b);
        b->n = 0;
    }
    if (!t->into && b->n == 0 && !begin_batch(t, b))
        return NULL;
    if (b->n == b->room) {
        atomic_fetch_add(&t->tracks[0]->dropped, 1);
        return NULL;
    }
    return &b->marks[b->n++];
}

static bool record(struct timeline *t, cudaEvent_t event, cudaStream_t stream)
{
    return worked(t,
                  cudaEventRecordWithFlags(event, stream, t->into ? cudaEventRecordExternal : cudaEventRecordDefault),
                  "cudaEventRecordWithFlags");
}

struct mark *timeline_begin(struct ls_program *p, cudaStream_t stream)
{
    struct timeline *t = p->device->timeline;
    if (!timeline_is_on(p))
        return NULL;
    struct mark *m = new_mark(t, p);
    if (!m)
        return NULL;
    m->stream = stream;
    return record(t, m->begin, stream) ? m : NULL;
}

void timeline_end(struct ls_program *p, struct mark *m, const struct ls_slice *slice)
{
    struct timeline *t = p->device->timeline;
    if (!m || !record(t, m->end, m->stream))
        return;
    m->slice = *slice;
    m->slice.late_rank = m->slice.stall_rank = -1;
}

void timeline_end_nodes(struct ls_program *p, struct mark *m, int first, int last)
{
    if (!m)
        return;
    const struct ls_node *node = &p->core.g->nodes[first];
    const char *note = p->execs[first].note;
    timeline_end(p, m,
                 &(struct ls_slice){.kind = LS_SLICE_NODE,
                                    .name = node->name,
                                    .detail = node->op->name,
                                    .kernel = *note ? note : "own",
                                    .number = last - first > 1 ? last - first : -1});
}

/* --- graphs ----------------------------------------------------------------------------------------------------- */

/* Of the two of a range, the one that was launched longer ago. */
static struct batch *find_graph(struct timeline *t, const struct ls_program *p, int first, int last)
{
    int found = 0, at = -1;
    for (int i = 0; i < t->n_graphs; i++)
        if (t->graphs[i]->program == p && t->graphs[i]->first == first && t->graphs[i]->last == last) {
            at = at < 0 ? i : at;
            found++;
        }
    if (found < 2)
        return NULL;
    struct batch *b = t->graphs[at];
    memmove(t->graphs + at, t->graphs + at + 1, (size_t)(t->n_graphs - at - 1) * sizeof(struct batch *));
    t->graphs[t->n_graphs - 1] = b;
    return b;
}

static enum ls_status add_graph(struct timeline *t, struct ls_program *p, int first, int last, struct batch **added)
{
    if (t->n_graphs == t->graph_room) {
        int room = t->graph_room ? 2 * t->graph_room : 64;
        struct batch **more = t->graphs ? ls_realloc(t->graphs, (size_t)t->graph_room, (size_t)room, sizeof *more)
                                        : ls_alloc((size_t)room, sizeof(struct batch *));
        if (!more)
            return LS_FAILED;
        t->graphs = more;
        t->graph_room = room;
    }
    struct batch *b = ls_alloc(1, sizeof *b);
    if (!b)
        return LS_FAILED;
    *added = t->graphs[t->n_graphs++] = b;
    *b = (struct batch){.program = p, .first = first, .last = last};
    LS_TRY(make_batch(b, 3 * (last - first) + SPARE)); /* nodes; at most a sum and its additions behind each */
    t->into = b;
    enum ls_status st = program_capture(p, first, last, &b->graph);
    t->into = NULL;
    return st;
}

enum ls_status timeline_launch(struct ls_program *p, int first, int last)
{
    struct timeline *t = p->device->timeline;
    struct batch *b = find_graph(t, p, first, last);
    if (b)
        read_batch(t, p, b);
    else
        LS_TRY(add_graph(t, p, first, last, &b));
    begin_batch(t, b);
    CUDA_TRY(cudaGraphLaunch(b->graph, p->device->compute));
    CUDA_TRY(cudaEventRecord(b->done, p->device->compute));
    return LS_OK;
}

void timeline_forget(struct ls_program *p)
{
    struct timeline *t = p->device->timeline;
    int kept = 0;
    for (int i = 0; t && i < t->n_graphs; i++) {
        struct batch *b = t->graphs[i];
        if (b->program != p) {
            t->graphs[kept++] = b;
            continue;
        }
        if (!p->device->lost)
            read_batch(t, p, b);
        free_batch(b, p->device->lost);
        ls_free(b);
    }
    if (t)
        t->n_graphs = kept;
}

/* --- opened and closed ------------------------------------------------------------------------------------------- */

static void free_timeline(struct device *d)
{
    struct timeline *t = d->timeline;
    d->timeline = NULL;
    for (int i = 0; i < t->n_graphs; i++) {
        free_batch(t->graphs[i], d->lost);
        ls_free(t->graphs[i]);
    }
    ls_free(t->graphs);
    free_batch(&t->pool, d->lost);
    if (!d->lost)
        card_clock_close(&t->clock);
    ls_free(t);
}

enum ls_status timeline_open(struct ls_program *p, struct ls_trace *trace, size_t a_step)
{
    static const char *const names[STREAMS] = {"card", "card, aside", "card, copies", "card, sums"};
    struct device *d = p->device;
    if (d->timeline)
        timeline_close(p);
    struct timeline *t = d->timeline = ls_alloc(1, sizeof *t);
    enum ls_status st = t ? LS_OK : LS_FAILED;
    for (int i = 0; i < STREAMS && st == LS_OK; i++)
        st = ls_trace_track(trace, LS_TRACK_CARD + i, names[i], i == 0 ? a_step : a_step / 2, &t->tracks[i]);
    if (st == LS_OK) {
        memcpy(t->streams, (const cudaStream_t[]){d->compute, d->aside, d->copies}, sizeof t->streams);
        st = cuda_check(card_clock_open(&t->clock), "the clock");
    }
    if (st == LS_OK)
        st = make_batch(&t->pool, POOL);
    if (st != LS_OK && t)
        free_timeline(d);
    return st;
}

static int earlier(const void *a, const void *b)
{
    const struct ls_slice *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin ? 1 : x->end < y->end ? -1 : x->end > y->end;
}

/* From the GPU's clock to the host's. Work on one stream does not overlap: what is left of that is rounding. */
static void adjust(const struct timeline *t, struct ls_track *track, double rate)
{
    size_t n = ls_trace_count(track);
    qsort(track->slices, n, sizeof *track->slices, earlier);
    for (size_t i = 0; i < n; i++) {
        struct ls_slice *s = &track->slices[i];
        s->begin = t->clock.host + rate * (s->begin - t->clock.host);
        s->end = t->clock.host + rate * (s->end - t->clock.host);
        if (i > 0 && s[-1].end > s->begin)
            s[-1].end = s->begin;
        s->end = s->end > s->begin ? s->end : s->begin;
    }
}

void timeline_close(struct ls_program *p)
{
    struct timeline *t = p ? p->device->timeline : NULL;
    if (!t)
        return;
    t->failed = t->failed || p->device->lost;
    for (int i = 0; i < t->n_graphs; i++)
        read_batch(t, p, t->graphs[i]);
    read_batch(t, p, &t->pool);
    double rate = 1;
    if (t->clock.is_set && !t->failed)
        worked(t, card_clock_rate(&t->clock, &rate), "the clock");
    for (int i = 0; i < STREAMS; i++)
        adjust(t, t->tracks[i], rate);
    free_timeline(p->device);
}
