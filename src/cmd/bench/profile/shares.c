/* lockstep bench --profile on several workers: how much of a step each rank computes, how much it communicates, and how much
 * of that is hidden behind computing. The figures come from a trace of the measured steps; on a card, of further steps.
 *
 *   compute        some node or update runs
 *   communication  a message is under way, or a collective to which all ranks have come
 *   overlapped     both at once: communication that costs no time
 *   exposed        communication - overlapped: what a step waits for
 *   late           neither: the step waits for a rank that has not come to a collective, or stands still in it
 *
 * The line of a rank in metrics.jsonl uses the same words. */
#include "base/log.h"
#include "base/memory.h"
#include "cmd/bench/bench.h"
#include "cmd/json.h"
#include "report/formats/table.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one rank, seconds over all steps. */
struct shares {
    double steps, seconds, compute, communication, overlapped, late;
};

struct span {
    double begin, end;
};

/* --- spans of time ------------------------------------------------------------------------------------ */

static int earlier(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin ? 1 : 0;
}

/* Spans in order, none touching the next: the union of those given. */
static size_t merge(struct span *spans, size_t n)
{
    size_t kept = 0;
    qsort(spans, n, sizeof *spans, earlier);
    for (size_t i = 0; i < n; i++)
        if (kept > 0 && spans[i].begin <= spans[kept - 1].end)
            spans[kept - 1].end = spans[i].end > spans[kept - 1].end ? spans[i].end : spans[kept - 1].end;
        else
            spans[kept++] = spans[i];
    return kept;
}

/* Which part of a collective: that in which all ranks take part, or that in which one of them has not come or stands still. */
enum part { WHOLE, TOGETHER, LATE };

static size_t put_part(struct span *spans, size_t n, const struct ls_slice *s, enum part part)
{
    double come = s->begin + (double)s->late_seconds, halt = s->end - (double)s->stall_seconds;
    come = come < s->end ? come : s->end;
    halt = halt > come ? halt : come;
    if (s->kind != LS_SLICE_SUM || part != LATE)
        spans[n++] =
            s->kind == LS_SLICE_SUM && part == TOGETHER ? (struct span){come, halt} : (struct span){s->begin, s->end};
    else {
        spans[n++] = (struct span){s->begin, come};
        spans[n++] = (struct span){halt, s->end};
    }
    return n;
}

/* The spans of the slices of these kinds (bits) in two tracks, either of which may be NULL. */
static enum ls_status collect(const struct ls_track *one, const struct ls_track *other, unsigned bits, enum part part,
                              struct span **spans, size_t *n)
{
    const struct ls_track *tracks[] = {one, other};
    size_t counts[] = {one ? ls_trace_count(one) : 0, other ? ls_trace_count(other) : 0};
    struct span *all = ls_alloc(2 * (counts[0] + counts[1]) + 1, sizeof *all);
    if (!all)
        return LS_FAILED;
    *n = 0;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < counts[t]; i++)
            if (bits >> tracks[t]->slices[i].kind & 1)
                *n = put_part(all, *n, &tracks[t]->slices[i], part);
    *n = merge(all, *n);
    *spans = all;
    return LS_OK;
}

/* The seconds that lie in a span of both lists; common[]: those spans, with room for n + m. */
static double intersect(const struct span *a, size_t n, const struct span *b, size_t m, struct span *common, size_t *k)
{
    double seconds = 0;
    *k = 0;
    for (size_t i = 0, j = 0; i < n && j < m;) {
        double begin = a[i].begin > b[j].begin ? a[i].begin : b[j].begin;
        double end = a[i].end < b[j].end ? a[i].end : b[j].end;
        if (begin < end) {
            common[(*k)++] = (struct span){begin, end};
            seconds += end - begin;
        }
        if (a[i].end < b[j].end)
            i++;
        else
            j++;
    }
    return seconds;
}

/* --- one rank ----------------------------------------------------------------------------------------- */

#define BIT(kind) (1u << LS_SLICE_##kind)

/* Where nodes run and where ranks communicate. */
struct places {
    const struct ls_track *work[2], *talk[2];
    bool card;
};

static struct places places_of(const struct ls_trace *trace)
{
    struct ls_track *const *t = trace->tracks;
    bool card = t[LS_TRACK_CARD] != NULL, sums = card && ls_trace_count(t[LS_TRACK_CARD_SUMS]) > 0;
    return (struct places){
        .work = {card ? t[LS_TRACK_CARD] : t[LS_TRACK_MAIN], card ? t[LS_TRACK_CARD_ASIDE] : NULL},
        .talk = {sums ? t[LS_TRACK_CARD_SUMS] : t[LS_TRACK_COLLECTIVES], sums ? NULL : t[LS_TRACK_MESSAGES]},
        .card = card};
}

/* A card is behind the host: its steps are the time from the begin of the first to the end of its last node. */
static size_t join_steps(struct span *steps, size_t n, const struct span *work, size_t n_work)
{
    if (n == 0)
        return 0;
    double last = n_work > 0 ? work[n_work - 1].end : 0;
    steps[0].end = steps[n - 1].end > last ? steps[n - 1].end : last;
    return 1;
}

/* Only whole steps count: slices that did not fit belong to none. */
static enum ls_status measure(const struct ls_trace *trace, struct shares *s)
{
    const struct ls_track *main = trace->tracks[LS_TRACK_MAIN];
    const struct places at = places_of(trace);
    struct span *steps = NULL, *work = NULL, *talk = NULL, *late = NULL, *room = NULL, *more = NULL;
    size_t n_steps = 0, n_work = 0, n_talk = 0, n_late = 0, n, k;
    enum ls_status st = LS_FAILED;
    *s = (struct shares){0};
    LS_TRY_GOTO(out, collect(main, NULL, BIT(STEP), WHOLE, &steps, &n_steps));
    LS_TRY_GOTO(out, collect(at.work[0], at.work[1], BIT(NODE) | BIT(UPDATE), WHOLE, &work, &n_work));
    LS_TRY_GOTO(out, collect(at.talk[0], at.talk[1], BIT(SUM) | BIT(MESSAGE), TOGETHER, &talk, &n_talk));
    LS_TRY_GOTO(out, collect(at.talk[0], NULL, BIT(SUM), LATE, &late, &n_late));
    n_steps = at.card ? join_steps(steps, n_steps, work, n_work) : n_steps;
    size_t all = n_steps + n_work + n_talk + n_late + 1;
    room = ls_alloc(all, sizeof *room);
    more = ls_alloc(2 * all, sizeof *more);
    st = room && more ? LS_OK : LS_FAILED;
    if (st != LS_OK)
        goto out;
    for (size_t i = 0; i < ls_trace_count(main); i++)
        s->steps += main->slices[i].kind == LS_SLICE_STEP;
    for (size_t i = 0; i < n_steps; i++)
        s->seconds += steps[i].end - steps[i].begin;
    s->compute = intersect(steps, n_steps, work, n_work, room, &n);
    s->communication = intersect(steps, n_steps, talk, n_talk, room, &n);
    s->overlapped = intersect(room, n, work, n_work, more, &k);
    /* what is late while the rank neither computes nor communicates */
    s->late = intersect(steps, n_steps, late, n_late, room, &n);
    memcpy(more, work, n_work * sizeof *more);
    memcpy(more + n_work, talk, n_talk * sizeof *more);
    k = merge(more, n_work + n_talk);
    s->late -= intersect(room, n, more, k, more + all, &k);
out:
    ls_free(steps);
    ls_free(work);
    ls_free(talk);
    ls_free(late);
    ls_free(room);
    ls_free(more);
    return st;
}

/* --- output ------------------------------------------------------------------------------------------- */

static double other_of(const struct shares *s)
{
    return s->seconds - s->compute - (s->communication - s->overlapped) - s->late;
}

static void add_row(struct ls_table *t, const char *rank, const char *host, const struct shares *s)
{
    double parts[] = {s->compute, s->communication, s->overlapped, s->communication - s->overlapped,
                      s->late,    other_of(s)};
    ls_table_row(t);
    ls_table_cell(t, "%s", rank);
    ls_table_cell(t, "%s", host);
    if (s->steps == 0) {
        ls_table_cell(t, "serves");
        return;
    }
    ls_table_cell(t, "%.3f", 1e3 * s->seconds / s->steps);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ls_table_cell(t, "%.1f%%", s->seconds > 0 ? 100 * parts[i] / s->seconds : 0);
}

static enum ls_status print(const struct ls_comm *comm, const struct shares *ranks, int n, const struct shares *mean)
{
    static const char *const heads[] = {"rank",       "host",    "step ms", "compute", "communication",
                                        "overlapped", "exposed", "late",    "other"};
    struct ls_table t;
    printf(
        "\nShares of a step on each rank, over %.0f steps. Communication is overlapped by computing, or exposed: the step\n"
        "waits for it. late: the step waits for a slower rank. compute + exposed + late + other = 100%%.\n",
        mean->steps);
    ls_table_init(&t, "llrrrrrrr", heads);
    for (int r = 0; r < n; r++) {
        char rank[16];
        snprintf(rank, sizeof rank, "%d", r);
        add_row(&t, rank, ls_comm_host(comm, r), &ranks[r]);
    }
    add_row(&t, "mean", "", mean);
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static json_t *as_json(const struct shares *s)
{
    double a_step = s->steps > 0 ? 1e3 / s->steps : 0, exposed = s->communication - s->overlapped;
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "steps", (json_int_t)s->steps, "step_ms",
                     a_step * s->seconds, "compute_ms", a_step * s->compute, "communication_ms",
                     a_step * s->communication, "overlapped_ms", a_step * s->overlapped, "exposed_ms", a_step * exposed,
                     "late_ms", a_step * s->late, "other_ms", a_step * other_of(s));
}

static enum ls_status print_json(const struct ls_comm *comm, const struct shares *ranks, int n,
                                 const struct shares *mean)
{
    json_t *list = json_array();
    for (int r = 0; r < n; r++) {
        json_t *one = as_json(&ranks[r]);
        json_object_set_new(one, "rank", json_integer(r));
        json_object_set_new(one, "host", json_string(ls_comm_host(comm, r)));
        json_array_append_new(list, one);
    }
    json_t *out = json_pack("{s:s, s:o, s:o}", "kind", "shares", "ranks", list, "mean", as_json(mean));
    int bad = !out || ls_json_print(out, JSON_REAL_PRECISION(9)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the result cannot be written to standard output") : LS_OK;
}

/* The mean over the ranks that compute. */
static struct shares mean_of(const struct shares *ranks, int n)
{
    struct shares sum = {0};
    double computing = 0;
    for (int r = 0; r < n; r++) {
        computing += ranks[r].steps > 0;
        sum.steps += ranks[r].steps;
        sum.seconds += ranks[r].seconds;
        sum.compute += ranks[r].compute;
        sum.communication += ranks[r].communication;
        sum.overlapped += ranks[r].overlapped;
        sum.late += ranks[r].late;
    }
    if (computing == 0)
        return sum;
    return (struct shares){sum.steps / computing,         sum.seconds / computing,    sum.compute / computing,
                           sum.communication / computing, sum.overlapped / computing, sum.late / computing};
}

enum ls_status ls_bench_shares_begin(const struct ls_options *o, struct ls_stepper *s, uint64_t first, uint64_t steps,
                                     struct ls_trace **trace)
{
    if (!o->profile || !s->engine->comm)
        return LS_OK;
    if (s->engine->backend->queue->delay > 0 && !s->engine->backend->queue->trace) {
        if (ls_comm_rank(s->engine->comm) == 0 && !o->json)
            ls_warn("--profile: the shares of computing and communication are not measured on this backend");
        return LS_OK;
    }
    LS_TRY(ls_trace_new(first, first + steps - 1, trace));
    return ls_stepper_trace(s, *trace);
}

enum ls_status ls_bench_shares(const struct ls_options *o, struct ls_stepper *s, struct ls_trace *trace)
{
    struct ls_comm *comm = s->engine->comm;
    struct shares mine;
    if (!trace)
        return LS_OK;
    int n = ls_comm_size(comm);
    ls_trace_stop(trace);
    ls_stepper_trace_end(s);
    LS_TRY(measure(trace, &mine));
    struct shares *all = ls_alloc((size_t)n, sizeof *all);
    enum ls_status st = all ? ls_comm_allgather(comm, &mine, sizeof mine, all) : LS_FAILED;
    if (st == LS_OK && ls_comm_rank(comm) == 0) {
        struct shares mean = mean_of(all, n);
        st = o->json ? print_json(comm, all, n, &mean) : print(comm, all, n, &mean);
    }
    ls_free(all);
    return st;
}
