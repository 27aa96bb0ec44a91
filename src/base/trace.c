#include "base/trace.h"
#include "base/memory.h"

#include <stdio.h>

/* Slices of a track: the most keep the file small enough for a browser. */
#define ROOM_LEAST ((size_t)1 << 12)
#define ROOM_MOST ((size_t)1 << 18)

enum ls_status ls_trace_new(uint64_t first, uint64_t last, struct ls_trace **trace)
{
    struct ls_trace *t = ls_alloc(1, sizeof *t);
    if (!t)
        return LS_FAILED;
    t->first = first;
    t->last = last;
    *trace = t;
    return LS_OK;
}

void ls_trace_free(struct ls_trace *t)
{
    for (int i = 0; t && i < LS_TRACKS; i++) {
        if (t->tracks[i])
            ls_free(t->tracks[i]->slices);
        ls_free(t->tracks[i]);
    }
    ls_free(t);
}

static size_t room_for(const struct ls_trace *t, size_t a_step)
{
    uint64_t steps = t->last - t->first + 1;
    if (steps > ROOM_MOST || a_step > ROOM_MOST || steps * a_step > ROOM_MOST)
        return ROOM_MOST;
    return steps * a_step < ROOM_LEAST ? ROOM_LEAST : (size_t)(steps * a_step);
}

enum ls_status ls_trace_track(struct ls_trace *t, int id, const char *name, size_t a_step, struct ls_track **track)
{
    *track = NULL;
    if (!t)
        return LS_OK;
    if (!t->tracks[id]) {
        size_t room = room_for(t, a_step);
        struct ls_track *added = ls_alloc(1, sizeof *added);
        struct ls_slice *slices = ls_alloc(room, sizeof *slices);
        if (!added || !slices) {
            ls_free(added);
            ls_free(slices);
            return LS_FAILED;
        }
        added->trace = t;
        added->id = id;
        added->slices = slices;
        added->room = room;
        snprintf(added->name, sizeof added->name, "%s", name);
        t->tracks[id] = added;
    }
    *track = t->tracks[id];
    return LS_OK;
}

void ls_trace_step(struct ls_trace *t, uint64_t step)
{
    bool on = t && step >= t->first && step <= t->last;
    if (!t || on == atomic_load(&t->on))
        return;
    if (on)
        atomic_store(&t->since, ls_now());
    atomic_store(&t->on, on);
}

void ls_trace_stop(struct ls_trace *t)
{
    if (t)
        atomic_store(&t->on, false);
}

size_t ls_trace_count(const struct ls_track *track)
{
    return atomic_load_explicit(&track->count, memory_order_acquire);
}

void ls_trace_add(struct ls_track *track, const struct ls_slice *slice)
{
    size_t n = atomic_load_explicit(&track->count, memory_order_relaxed);
    if (slice->begin < atomic_load_explicit(&track->trace->since, memory_order_relaxed))
        return;
    if (n == track->room) {
        atomic_fetch_add_explicit(&track->dropped, 1, memory_order_relaxed);
        return;
    }
    track->slices[n] = *slice;
    atomic_store_explicit(&track->count, n + 1, memory_order_release);
}

void ls_trace_add_since(struct ls_track *track, double begin, const struct ls_slice *slice)
{
    struct ls_slice timed = *slice;
    timed.begin = begin;
    timed.end = ls_now();
    ls_trace_add(track, &timed);
}
