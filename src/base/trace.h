/* A timeline of what the threads of this process do.
 *
 * A trace has tracks, one for each thread that is recorded. A slice is one piece of work on a track, with its begin and its
 * end. The memory of a track is allocated when the track is added, so recording allocates nothing. A slice that does not
 * fit is dropped and counted.
 *
 *     double begin = ls_trace_begin(track);
 *     work();
 *     ls_trace_end(track, begin, &(struct ls_slice){.kind = LS_SLICE_UPDATE, .name = "update", .number = bucket});
 *
 * The track is NULL without tracing; then and while the trace is off, each call costs one branch.
 *
 * One thread at a time writes to a track. Any thread may read the slices that ls_trace_count has counted. */
#ifndef LS_BASE_TRACE_H
#define LS_BASE_TRACE_H

#include "base/system/clock.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ls_slice_kind {
    LS_SLICE_STEP,     /* number: the step, from 1 */
    LS_SLICE_PASS,     /* number: the pass of this process's replicas, from 0 */
    LS_SLICE_PHASE,    /* forward or backward */
    LS_SLICE_NODE,     /* name: the layer; detail: the op; number: nodes that one kernel computes, or -1 */
    LS_SLICE_ENQUEUE,  /* nodes that a device computes later */
    LS_SLICE_UPDATE,   /* number: the bucket */
    LS_SLICE_WAIT,     /* the thread waits; number: the bucket it waits for, or -1 */
    LS_SLICE_SUM,      /* a collective; number: the bucket, or -1 */
    LS_SLICE_MESSAGE,  /* between two ranks; number: the other rank. Slices of this kind may overlap */
    LS_SLICE_INPUT,    /* the step waits for its batch */
    LS_SLICE_FILL,     /* number: samples that a loader thread prepares */
    LS_SLICE_DECODE,   /* number: the sample */
    LS_SLICE_EVALUATE, /* number: the step after which it is done */
    LS_SLICE_SAVE,     /* likewise */
    LS_SLICE_CHECK,    /* ranks compare their values; likewise */
    LS_SLICE_COPY      /* a device copies; number: -1 */
};

struct ls_slice {
    enum ls_slice_kind kind;
    const char *name, *detail; /* borrowed until the trace is freed; detail may be NULL */
    const char *kernel;        /* borrowed likewise; the kernel that computes a node, NULL: none is named */
    double begin, end;         /* ls_now() */
    int64_t number;
    uint64_t bytes; /* 0: none */
    /* Of a sum: the rank that came last, and how long this rank waited for it at the begin; the rank that stood still, and
     * how long this rank waited for it at the end. -1: unknown, or none. */
    int late_rank, stall_rank;
    float late_seconds, stall_seconds;
};

struct ls_track {
    struct ls_trace *trace;
    char name[32];
    int id; /* enum ls_track_id */
    struct ls_slice *slices;
    size_t room;
    _Atomic size_t count;
    _Atomic uint64_t dropped;
};

/* A loader has a track for each of its first LS_TRACK_LOADERS threads, from this id on. */
enum { LS_TRACK_LOADERS = 64 };
enum ls_track_id {
    LS_TRACK_MAIN = 1,
    LS_TRACK_COLLECTIVES = 2,
    LS_TRACK_MESSAGES = 3,
    LS_TRACK_CARD = 4, /* of a device: the stream that computes, */
    LS_TRACK_CARD_ASIDE = 5,
    LS_TRACK_CARD_COPIES = 6,
    LS_TRACK_CARD_SUMS = 7, /* that which sums over processes */
    LS_TRACK_LOADER = 8,
    LS_TRACK_EVALUATION_LOADER = LS_TRACK_LOADER + LS_TRACK_LOADERS,
    LS_TRACKS = LS_TRACK_EVALUATION_LOADER + LS_TRACK_LOADERS
};

struct ls_trace {
    atomic_bool on;
    _Atomic double since; /* when it was switched on; a slice that began before is not added */
    uint64_t first, last; /* steps to record, from 1 */
    struct ls_track *tracks[LS_TRACKS];
};

/* first, last: the steps to record, counted from 1. *trace is freed by ls_trace_free, which takes NULL. */
enum ls_status ls_trace_new(uint64_t first, uint64_t last, struct ls_trace **trace);
void ls_trace_free(struct ls_trace *trace);
/* Returns the track of that id, and adds it if it is not there. Its room is for `a_step` slices in each step to record, within
 * limits. *track is NULL where trace is NULL. One thread at a time may call it. */
enum ls_status ls_trace_track(struct ls_trace *trace, int id, const char *name, size_t a_step, struct ls_track **track);
/* Step `step` (from 1) begins: switches the trace on or off. Takes NULL. */
void ls_trace_step(struct ls_trace *trace, uint64_t step);
void ls_trace_stop(struct ls_trace *trace);
size_t ls_trace_count(const struct ls_track *track);

static inline bool ls_trace_on(const struct ls_track *track)
{
    return track && atomic_load_explicit(&track->trace->on, memory_order_relaxed);
}

/* The time at which a slice begins; 0: it is not recorded. */
static inline double ls_trace_begin(const struct ls_track *track)
{
    return ls_trace_on(track) ? ls_now() : 0;
}

/* Adds the slice, with its begin and end as they are. */
void ls_trace_add(struct ls_track *track, const struct ls_slice *slice);
/* Adds the slice from `begin` to now. */
void ls_trace_add_since(struct ls_track *track, double begin, const struct ls_slice *slice);

static inline void ls_trace_end(struct ls_track *track, double begin, const struct ls_slice *slice)
{
    if (begin > 0)
        ls_trace_add_since(track, begin, slice);
}

#endif
