/* The events of one process as lines of JSON. Numbers are written digit by digit, so that slices nest exactly. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/memory.h"
#include "report/formats/trace_file.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the kinds are called in the file, and what their number is; NULL: it has none. */
static const struct {
    const char *category, *number;
} kinds[] = {
    [LS_SLICE_STEP] = {"step", "step"},           [LS_SLICE_PASS] = {"pass", "pass"},
    [LS_SLICE_PHASE] = {"phase", NULL},           [LS_SLICE_NODE] = {"node", "nodes"},
    [LS_SLICE_ENQUEUE] = {"enqueue", "nodes"},    [LS_SLICE_UPDATE] = {"update", "bucket"},
    [LS_SLICE_WAIT] = {"wait", "bucket"},         [LS_SLICE_SUM] = {"communication", "bucket"},
    [LS_SLICE_MESSAGE] = {"message", "rank"},     [LS_SLICE_INPUT] = {"input", NULL},
    [LS_SLICE_FILL] = {"fill", "samples"},        [LS_SLICE_DECODE] = {"decode", "sample"},
    [LS_SLICE_EVALUATE] = {"evaluation", "step"}, [LS_SLICE_SAVE] = {"checkpoint", "step"},
    [LS_SLICE_CHECK] = {"check", "step"},         [LS_SLICE_COPY] = {"copy", NULL},
};

struct text {
    char *at; /* owned */
    size_t size, room;
    bool failed;
};

static int put(const char *bytes, size_t size, void *context)
{
    struct text *t = context;
    if (!t->failed && t->size + size > t->room) {
        size_t room = 2 * (t->size + size) + 65536;
        char *larger = t->at ? ls_realloc(t->at, t->room, room, 1) : ls_alloc(room, 1);
        t->failed = !larger;
        t->at = larger ? larger : t->at;
        t->room = larger ? room : t->room;
    }
    if (t->failed)
        return -1;
    memcpy(t->at + t->size, bytes, size);
    t->size += size;
    return 0;
}

__attribute__((format(printf, 2, 3))) static void print(struct text *t, const char *format, ...)
{
    char line[256];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (n > 0)
        put(line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1, t);
}

/* Quoted. */
static void put_string(struct text *t, const char *string)
{
    json_t *value = json_string(string);
    if (!value || json_dump_callback(value, put, t, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) != 0)
        print(t, "\"?\"");
    json_decref(value);
}

static void put_metadata(struct text *t, const char *what, int pid, int tid, const char *key)
{
    if (t->size > 0)
        print(t, ",\n");
    print(t, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"%s\":", pid, tid, what, key);
}

/* Nanoseconds since the file's time 0. Times of another host may be a little before it, by the error of its clock. */
static int64_t since(const struct ls_trace_process *p, double time)
{
    return llround(1e9 * (time - p->zero));
}

static void put_time(struct text *t, const char *key, int64_t ns)
{
    uint64_t size = (uint64_t)(ns < 0 ? -ns : ns);
    print(t, ",\"%s\":%s%" PRIu64 ".%03" PRIu64, key, ns < 0 ? "-" : "", size / 1000, size % 1000);
}

/* "step 12", "conv1 conv_bwd_data", "allreduce" */
static void put_name(struct text *t, const struct ls_slice *s)
{
    char name[256];
    if (s->detail)
        snprintf(name, sizeof name, "%s %s", s->name, s->detail);
    else if (s->kind == LS_SLICE_STEP)
        snprintf(name, sizeof name, "step %" PRId64, s->number);
    else
        snprintf(name, sizeof name, "%s", s->name);
    print(t, ",\"name\":");
    put_string(t, name);
}

static void put_arguments(struct text *t, const struct ls_slice *s)
{
    const char *comma = "";
    print(t, ",\"args\":{");
    if (kinds[s->kind].number && s->number >= 0) {
        print(t, "\"%s\":%" PRId64, kinds[s->kind].number, s->number);
        comma = ",";
    }
    if (s->kind == LS_SLICE_SUM || s->kind == LS_SLICE_MESSAGE || s->kind == LS_SLICE_COPY) {
        print(t, "%s\"bytes\":%" PRIu64, comma, s->bytes);
        comma = ",";
    }
    if (s->kernel) {
        print(t, "%s\"kernel\":", comma);
        put_string(t, s->kernel);
    }
    if (s->kind == LS_SLICE_SUM && s->late_rank >= 0)
        print(t, "%s\"last_rank\":%d,\"waited_for_it_ms\":%.6f", comma, s->late_rank, 1e3 * (double)s->late_seconds);
    if (s->kind == LS_SLICE_SUM && s->stall_rank >= 0)
        print(t, ",\"stalled_rank\":%d,\"stalled_ms\":%.6f", s->stall_rank, 1e3 * (double)s->stall_seconds);
    print(t, "}}");
}

static void put_event(struct text *t, char phase, int pid, int tid, const struct ls_slice *s)
{
    print(t, ",\n{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"cat\":\"%s\"", phase, pid, tid, kinds[s->kind].category);
    put_name(t, s);
}

/* Messages overlap, so each is a pair of asynchronous events with an id. */
static void put_message(struct text *t, const struct ls_trace_process *p, int tid, size_t i, const struct ls_slice *s)
{
    for (int end = 0; end < 2; end++) {
        put_event(t, end ? 'e' : 'b', p->rank + 1, tid, s);
        print(t, ",\"id\":\"%d.%zu\"", p->rank, i);
        put_time(t, "ts", since(p, end ? s->end : s->begin));
        put_arguments(t, s);
    }
}

static void put_slice(struct text *t, const struct ls_trace_process *p, int tid, const struct ls_slice *s)
{
    int64_t begin = since(p, s->begin);
    put_event(t, 'X', p->rank + 1, tid, s);
    put_time(t, "ts", begin);
    put_time(t, "dur", since(p, s->end) - begin);
    put_arguments(t, s);
}

/* By begin; of two that begin at once, the one that encloses the other comes first. It was added later. */
static int outer_first(const void *a, const void *b)
{
    const struct ls_slice *x = *(const struct ls_slice *const *)a, *y = *(const struct ls_slice *const *)b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end > y->end ? -1 : 1;
    return x > y ? -1 : 1;
}

static void put_slices(struct text *t, const struct ls_trace_process *p, const struct ls_track *track, size_t count)
{
    const struct ls_slice **order = ls_alloc(count, sizeof(const struct ls_slice *));
    t->failed = t->failed || !order;
    for (size_t i = 0; order && i < count; i++)
        order[i] = &track->slices[i];
    if (order)
        qsort(order, count, sizeof *order, outer_first);
    for (size_t i = 0; order && i < count; i++)
        if (order[i]->kind == LS_SLICE_MESSAGE)
            put_message(t, p, track->id, i, order[i]);
        else
            put_slice(t, p, track->id, order[i]);
    ls_free(order);
}

static void put_track(struct text *t, const struct ls_trace_process *p, const struct ls_track *track)
{
    size_t count = ls_trace_count(track);
    if (count == 0)
        return;
    put_metadata(t, "thread_name", p->rank + 1, track->id, "name");
    put_string(t, track->name);
    print(t, "}}");
    put_metadata(t, "thread_sort_index", p->rank + 1, track->id, "sort_index");
    print(t, "%d}}", track->id);
    put_slices(t, p, track, count);
}

static void put_process(struct text *t, const struct ls_trace_process *p, uint64_t dropped)
{
    char label[320];
    snprintf(label, sizeof label, "rank %d (%s)", p->rank, p->host);
    put_metadata(t, "process_name", p->rank + 1, 0, "name");
    put_string(t, label);
    print(t, "}}");
    put_metadata(t, "process_sort_index", p->rank + 1, 0, "sort_index");
    print(t, "%d}}", p->rank);
    if (dropped == 0 && p->error <= 0)
        return;
    put_metadata(t, "process_labels", p->rank + 1, 0, "labels");
    print(t, "\"");
    if (p->error > 0)
        print(t, "clock within %.3f us of rank 0%s", 1e6 * p->error, dropped > 0 ? "; " : "");
    if (dropped > 0)
        print(t, "%" PRIu64 " slices did not fit and are missing", dropped);
    print(t, "\"}}");
}

enum ls_status ls_trace_text(const struct ls_trace *trace, const struct ls_trace_process *process, char **text,
                             size_t *size)
{
    struct text t = {0};
    uint64_t held, dropped;
    ls_trace_tally(trace, &held, &dropped);
    put_process(&t, process, dropped);
    for (int i = 0; i < LS_TRACKS; i++)
        if (trace->tracks[i])
            put_track(&t, process, trace->tracks[i]);
    if (t.failed) {
        ls_free(t.at);
        return LS_FAILED;
    }
    *text = t.at;
    *size = t.size;
    return LS_OK;
}

void ls_trace_tally(const struct ls_trace *trace, uint64_t *held, uint64_t *dropped)
{
    *held = *dropped = 0;
    for (int i = 0; i < LS_TRACKS; i++)
        if (trace->tracks[i]) {
            *held += ls_trace_count(trace->tracks[i]);
            *dropped += atomic_load(&trace->tracks[i]->dropped);
        }
}
