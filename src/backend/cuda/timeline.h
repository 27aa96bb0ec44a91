/* What the GPU does at which time, for --trace.
 *
 * While a trace is on, an event is recorded before and behind each node, sum and copy. Ranges of nodes still run as
 * CUDA graphs: graphs of their own, with the events as nodes. Events need no library besides the runtime, unlike CUPTI,
 * and the nodes of a graph follow each other as closely as in other steps, which they would not if they were enqueued
 * one by one. A pair of events takes a microsecond or two of the GPU.
 *
 * The events of a graph are recorded again at each launch, so every range has two graphs that take turns: the events of one
 * are read while the other runs, and the queue does not run dry. What is enqueued outside of graphs takes events from a pool.
 *
 * The clock of the GPU is set against the host's at the beginning and at the end, by the fastest of some events on an idle
 * stream. Times in between are interpolated, which removes drift. */
#ifndef LS_BACKEND_CUDA_TIMELINE_H
#define LS_BACKEND_CUDA_TIMELINE_H

#include "backend/cuda/program.h"
#include "base/trace.h"

struct mark;

/* trace and trace_end of struct ls_backend_queue. */
enum ls_status timeline_open(struct ls_program *p, struct ls_trace *trace, size_t a_step);
void timeline_close(struct ls_program *p);

/* Work begins on a stream that is being captured, or on any other; NULL: nothing is recorded. end: it is enqueued. The slice's
 * times are filled in later. */
struct mark *timeline_begin(struct ls_program *p, cudaStream_t stream);
void timeline_end(struct ls_program *p, struct mark *mark, const struct ls_slice *slice);
/* A copy of so many bytes ends. */
static inline void timeline_end_copy(struct ls_program *p, struct mark *mark, const char *name, size_t bytes)
{
    timeline_end(p, mark, &(struct ls_slice){.kind = LS_SLICE_COPY, .name = name, .number = -1, .bytes = bytes});
}
/* Likewise for the nodes first .. last-1, which run as one kernel where there are several. */
void timeline_end_nodes(struct ls_program *p, struct mark *mark, int first, int last);

/* Is the step recorded? Then launch runs a range of nodes instead of its plain graph. */
bool timeline_is_on(const struct ls_program *p);
enum ls_status timeline_launch(struct ls_program *p, int first, int last);
/* The program's graphs are no longer valid. */
void timeline_forget(struct ls_program *p);

#endif
