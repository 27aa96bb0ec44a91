#include "train/tracing.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/formats/trace_file.h"
#include "train/ranks/clock_offset.h"
#include "train/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG = LS_TAG_LIMIT - 3, PIECE = 1 << 22 }; /* bytes of a message */

/* --- before the run ----------------------------------------------------------------------------------- */

/* A whole number from 1 on, without sign or space. */
static bool read_step(const char **text, uint64_t *step)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *step = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && *step > 0 && *step <= INT64_MAX;
}

enum ls_status ls_tracing_parse(struct ls_tracing *tracing, const char *text)
{
    const char *at = text;
    uint64_t first, last;
    if (!text)
        return LS_OK;
    if (!read_step(&at, &first) || *at++ != ':' || !read_step(&at, &last) || *at)
        return ls_fail(LS_USAGE,
                       "--trace %s: expected FROM:TO, the first and the last step to record, counted from 1, such as "
                       "10:20",
                       text);
    if (last < first)
        return ls_fail(LS_USAGE, "--trace %s: step %" PRIu64 " comes before step %" PRIu64 "; say %" PRIu64 ":%" PRIu64,
                       text, last, first, last, first);
    tracing->first = first;
    tracing->last = last;
    return LS_OK;
}

/* Says what part of --trace this run does not reach. Returns false if that is all of it. */
static bool fits(const struct ls_trainer *t)
{
    const struct ls_tracing *g = &t->tracing;
    uint64_t done = t->state.step, end = (uint64_t)t->total_steps;
    uint64_t first = g->first > done ? g->first : done + 1, last = g->last < end ? g->last : end;
    if (!t->root || (first == g->first && last == g->last))
        return first <= last;
    if (g->first > end)
        ls_warn("--trace %" PRIu64 ":%" PRIu64 ": the run ends with step %" PRIu64 "; no trace is written", g->first,
                g->last, end);
    else if (g->last <= done)
        ls_warn("--trace %" PRIu64 ":%" PRIu64 ": the run goes on after step %" PRIu64 "; no trace is written",
                g->first, g->last, done);
    else
        ls_warn("--trace %" PRIu64 ":%" PRIu64 ": this run has steps %" PRIu64 " to %" PRIu64 "; steps %" PRIu64
                " to %" PRIu64 " are recorded",
                g->first, g->last, done + 1, end, first, last);
    return first <= last;
}

enum ls_status ls_tracing_open(struct ls_trainer *t)
{
    struct ls_tracing *g = &t->tracing;
    if (g->last == 0 || !fits(t))
        return LS_OK;
    uint64_t last = g->last < (uint64_t)t->total_steps ? g->last : (uint64_t)t->total_steps;
    uint64_t first = g->first > t->state.step ? g->first : t->state.step + 1;
    LS_TRY(ls_trace_new(first, last, &g->trace));
    t->task.trace = g->trace;
    return ls_stepper_trace(&t->stepper, g->trace);
}

void ls_tracing_close(struct ls_tracing *g)
{
    ls_trace_free(g->trace);
    ls_free(g->folder);
    *g = (struct ls_tracing){0};
}

/* --- the window --------------------------------------------------------------------------------------- */

/* Ranks that outlive a failure write to rank 0's run directory, where they see it. */
static enum ls_status share_folder(struct ls_trainer *t)
{
    struct ls_tracing *g = &t->tracing;
    char folder[PATH_MAX] = "";
    if (t->root) {
        char *absolute = ls_path_absolute(t->run);
        if (absolute && strlen(absolute) < sizeof folder)
            memcpy(folder, absolute, strlen(absolute) + 1);
        ls_free(absolute);
        ls_trace_file_remove_parts(t->run);
    }
    if (t->comm)
        LS_TRY(ls_comm_broadcast(t->comm, 0, folder, sizeof folder));
    g->folder = ls_strdup(folder);
    return g->folder ? LS_OK : LS_FAILED;
}

static enum ls_status begin(struct ls_trainer *t)
{
    struct ls_tracing *g = &t->tracing;
    double offset = 0;
    LS_TRY(share_folder(t));
    if (t->comm)
        LS_TRY(ls_clock_offset(t->comm, &offset, &g->error));
    g->zero = ls_now();
    if (t->comm)
        LS_TRY(ls_comm_broadcast(t->comm, 0, &g->zero, sizeof g->zero));
    g->zero -= offset;
    g->state = LS_TRACING_NOW;
    return LS_OK;
}

/* --- one file ----------------------------------------------------------------------------------------- */

/* What rank 0 is sent by a rank. */
struct parcel {
    uint64_t size, held, dropped;
};

/* The last step that this rank recorded whole: the run may end before the window, and slices may not fit. */
static uint64_t last_step(const struct ls_trace *trace)
{
    const struct ls_track *track = trace->tracks[LS_TRACK_MAIN];
    for (size_t i = ls_trace_count(track); i > 0; i--)
        if (track->slices[i - 1].kind == LS_SLICE_STEP)
            return (uint64_t)track->slices[i - 1].number;
    return trace->last;
}

static struct ls_trace_about about(const struct ls_trainer *t)
{
    return (struct ls_trace_about){.version = t->o->version,
                                   .first = t->tracing.trace->first,
                                   .last = last_step(t->tracing.trace),
                                   .ranks = t->comm ? ls_comm_size(t->comm) : 1};
}

static enum ls_status make_text(const struct ls_trainer *t, char **text, size_t *size)
{
    char host[256] = "unknown";
    int rank = t->comm ? ls_comm_rank(t->comm) : 0;
    gethostname(host, sizeof host - 1);
    struct ls_trace_process process = {.rank = rank,
                                       .host = t->comm ? ls_comm_host(t->comm, rank) : host,
                                       .zero = t->tracing.zero,
                                       .error = t->tracing.error};
    return ls_trace_text(t->tracing.trace, &process, text, size);
}

static enum ls_status move(struct ls_comm *comm, enum ls_work_kind kind, int peer, char *data, size_t bytes)
{
    struct ls_work w = {.kind = kind, .peer = peer, .tag = TAG, .data = data, .bytes = bytes, .bucket = -1};
    return ls_comm_do(comm, &w);
}

static enum ls_status send(const struct ls_trainer *t, char *text, size_t size)
{
    for (size_t at = 0; at < size; at += PIECE)
        LS_TRY(move(t->comm, LS_WORK_SEND, 0, text + at, size - at < PIECE ? size - at : PIECE));
    return LS_OK;
}

/* *writing: the file is open; a failure to write closes it, and what comes is then thrown away. */
static void put(struct ls_file_writer *w, bool *writing, const char *text, size_t size)
{
    if (!*writing || ls_file_writer_put(w, text, size) == LS_OK)
        return;
    ls_file_writer_cancel(w);
    *writing = false;
}

static enum ls_status receive(const struct ls_trainer *t, int peer, size_t size, char *room, struct ls_file_writer *w,
                              bool *writing)
{
    for (size_t at = 0; at < size; at += PIECE) {
        size_t bytes = size - at < PIECE ? size - at : PIECE;
        LS_TRY(move(t->comm, LS_WORK_RECEIVE, peer, room, bytes));
        if (at == 0)
            put(w, writing, ",\n", 2);
        put(w, writing, room, bytes);
    }
    return LS_OK;
}

static void say_written(const struct ls_trainer *t, const char *path, const struct parcel *parcels, int ranks)
{
    uint64_t held = 0, dropped = 0;
    for (int r = 0; r < ranks; r++) {
        held += parcels[r].held;
        dropped += parcels[r].dropped;
    }
    ls_trainer_say(
        t, "Wrote %s: steps %" PRIu64 " to %" PRIu64 " of %d rank%s, %" PRIu64 " slices; open it at ui.perfetto.dev.",
        path, t->tracing.trace->first, last_step(t->tracing.trace), ranks, ranks == 1 ? "" : "s", held);
    if (dropped > 0)
        ls_warn("--trace: %" PRIu64 " slices at the end of the window did not fit and are missing from %s; trace fewer "
                "steps",
                dropped, path);
}

static enum ls_status write_all(const struct ls_trainer *t, const char *text, const struct parcel *parcels)
{
    struct ls_trace_about head = about(t);
    struct ls_file_writer w;
    enum ls_status st = LS_OK;
    char *path = ls_format("%s/trace.json", t->run), *room = ls_alloc(PIECE, 1);
    if (!path || !room) {
        st = LS_FAILED;
        goto out;
    }
    bool writing = ls_trace_file_open(&w, path, &head) == LS_OK;
    put(&w, &writing, text, parcels[0].size);
    for (int r = 1; r < head.ranks && st == LS_OK; r++)
        st = receive(t, r, parcels[r].size, room, &w, &writing);
    if (st != LS_OK && writing)
        ls_file_writer_cancel(&w);
    else if (st == LS_OK && writing && ls_trace_file_close(&w) == LS_OK)
        say_written(t, path, parcels, head.ranks);
    else if (st == LS_OK)
        ls_warn("the run goes on without %s", path);
out:
    ls_free(path);
    ls_free(room);
    return st;
}

static enum ls_status finish(struct ls_trainer *t)
{
    struct parcel mine = {0}, *all = ls_alloc(t->comm ? (size_t)ls_comm_size(t->comm) : 1, sizeof *all);
    char *text = NULL;
    size_t size = 0;
    ls_trace_stop(t->tracing.trace);
    ls_stepper_trace_end(&t->stepper);
    enum ls_status st = all ? make_text(t, &text, &size) : LS_FAILED;
    if (st != LS_OK)
        goto out;
    mine.size = size;
    ls_trace_tally(t->tracing.trace, &mine.held, &mine.dropped);
    all[0] = mine;
    if (t->comm)
        LS_TRY_GOTO(out, ls_comm_allgather(t->comm, &mine, sizeof mine, all));
    LS_TRY_GOTO(out, t->root ? write_all(t, text, all) : send(t, text, size));
    t->tracing.state = LS_TRACING_OVER;
out:
    ls_free(text);
    ls_free(all);
    return st;
}

/* The group is lost or a rank has failed: no other rank is waited for. */
static void rescue(struct ls_trainer *t)
{
    struct ls_trace_about head = about(t);
    char *text = NULL, *config = ls_format("%s/config.yaml", t->tracing.folder);
    size_t size = 0;
    bool seen = config && ls_file_exists(config);
    ls_trace_stop(t->tracing.trace);
    ls_stepper_trace_end(&t->stepper);
    t->tracing.state = LS_TRACING_OVER;
    if (seen && make_text(t, &text, &size) == LS_OK &&
        ls_trace_file_rescue(t->tracing.folder, t->comm ? ls_comm_rank(t->comm) : 0, text, size, &head) == LS_OK)
        ls_trainer_say(t, "Wrote %s/trace.json, with the ranks that were left.", t->tracing.folder);
    ls_free(text);
    ls_free(config);
}

/* --- the run ------------------------------------------------------------------------------------------ */

enum ls_status ls_tracing_before_run(struct ls_trainer *t)
{
    return t->tracing.trace && t->engine.strategy->servers ? begin(t) : LS_OK;
}

enum ls_status ls_tracing_before_step(struct ls_trainer *t)
{
    struct ls_tracing *g = &t->tracing;
    uint64_t step = t->state.step + 1;
    if (!g->trace || t->engine.strategy->servers)
        return LS_OK;
    if (g->state == LS_TRACING_BEFORE && step >= g->trace->first && step <= g->trace->last)
        return begin(t);
    return g->state == LS_TRACING_NOW && step > g->trace->last ? finish(t) : LS_OK;
}

enum ls_status ls_tracing_after_run(struct ls_trainer *t, enum ls_status status)
{
    bool together = !t->comm || status == LS_OK || status == LS_INTERRUPTED || t->all_know;
    if (!t->tracing.trace || t->tracing.state != LS_TRACING_NOW)
        return status;
    enum ls_status st = together ? finish(t) : status;
    if (st == LS_OK)
        return status;
    rescue(t);
    return status == LS_OK || status == LS_INTERRUPTED ? st : status;
}
