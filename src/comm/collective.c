/* Chooses the algorithm of a collective and runs it. */
#include "base/system/clock.h"
#include "base/log.h"
#include "comm/group.h"
#include "comm/algorithms/sum.h"

#include <string.h>

#define STALL_LEAST 1e-3 /* seconds; the time slices of a busy machine are about as long */

void ls_range(size_t count, int n, int i, size_t *first, size_t *last)
{
    size_t units = (count + 15) / 16, parts = (size_t)n, at = (size_t)i;
    size_t each = units / parts, extra = units % parts;
    size_t from = at * each + (at < extra ? at : extra), to = from + each + (at < extra);
    *first = from * 16 < count ? from * 16 : count;
    *last = to * 16 < count ? to * 16 : count;
}

static enum ls_status allreduce_by_tree(struct ls_comm *c, struct ls_work *w)
{
    const struct ls_subgroup *k = &c->all;
    if (!w->codec && w->bytes * (size_t)k->most_parts <= LS_SHM_SMALL)
        return ls_direct_small(c, k, w);
    if (!w->codec && k->halving) {
        size_t count = w->bytes / sizeof(float);
        LS_TRY(ls_halving_sum(c, k, ls_work_part(w, 0), w->data, count));
        return ls_halving_share(c, k, w->data, count);
    }
    LS_TRY(ls_direct_sum(c, k, w));
    return ls_direct_share(c, k, w, -1);
}

/* Encoded values take one algorithm only, so that a codec sees the same values however ranks are placed. */
static enum ls_collective choose(const struct ls_comm *c, const struct ls_work *w)
{
    if (w->kind != LS_WORK_ALLREDUCE || w->codec)
        return LS_COLLECTIVE_TREE;
    if (c->force != LS_COLLECTIVE_AUTO)
        return c->force;
    return ls_comm_choice(c, w->bytes);
}

static enum ls_status run_over_messages(struct ls_comm *c, struct ls_work *w)
{
    const struct ls_subgroup *k = &c->all;
    size_t count = w->bytes / sizeof(float);
    switch (w->kind) {
    case LS_WORK_ALLREDUCE:
        return allreduce_by_tree(c, w);
    case LS_WORK_REDUCE:
        LS_TRY(ls_direct_sum(c, k, w));
        return ls_direct_share(c, k, w, c->peers[w->peer].place);
    case LS_WORK_SCATTER:
        return !w->codec && k->halving ? ls_halving_sum(c, k, ls_work_part(w, 0), w->data, count)
                                       : ls_direct_sum(c, k, w);
    case LS_WORK_COLLECT:
        return k->halving ? ls_halving_share(c, k, w->data, count) : ls_direct_share(c, k, w, -1);
    case LS_WORK_BROADCAST:
        LS_TRY(ls_broadcast_run(c, w));
        return w->call.number ? ls_barrier_run(c) : LS_OK; /* COMM-5 */
    case LS_WORK_ALLGATHER:
        return ls_allgather_run(c, w);
    case LS_WORK_BARRIER:
        return ls_barrier_run(c);
    case LS_WORK_SEND:
    case LS_WORK_RECEIVE:
        break;
    }
    return ls_fail(LS_FAILED, "%s is no collective", ls_work_name(w->kind));
}

/* Sums within a node and sums of the MPI library are made in place and need no scratch memory. */
static bool needs_scratch(const struct ls_comm *c, enum ls_collective algorithm)
{
    return algorithm == LS_COLLECTIVE_RING || (c->nodes > 1 && algorithm != LS_COLLECTIVE_MPI);
}

/* SCATTER and COLLECT define the owners of the ranges of the whole, and cannot be cut. */
static bool may_be_cut(const struct ls_work *w)
{
    return w->kind == LS_WORK_ALLREDUCE || w->kind == LS_WORK_REDUCE;
}

static enum ls_status check(const struct ls_comm *c, const struct ls_work *w, enum ls_collective algorithm)
{
    int first;
    bool sums = w->kind <= LS_WORK_COLLECT, rooted = w->kind == LS_WORK_REDUCE || w->kind == LS_WORK_BROADCAST;
    if (sums && w->bytes % sizeof(float) != 0)
        return ls_fail(LS_FAILED, "a sum of %zu bytes is not one of floats", w->bytes);
    if (w->kind <= LS_WORK_SCATTER && !w->parts && ls_tree_parts(&c->tree, c->rank, &first) != 1)
        return ls_fail(LS_FAILED, "a sum without a list of parts on a rank that has several");
    if (rooted && (w->peer < 0 || w->peer >= c->size))
        return ls_fail(LS_FAILED, "a %s needs a rank from 0 to %d, not %d", ls_work_name(w->kind), c->size - 1,
                       w->peer);
    if (sums && needs_scratch(c, algorithm) && w->bytes > c->o.max_bytes && !may_be_cut(w))
        return ls_fail(LS_FAILED, "a sum of %zu bytes in a group opened for at most %zu", w->bytes, c->o.max_bytes);
    return LS_OK;
}

/* Clocks of nodes differ, and a wait for a message includes the network's time. The time beyond twice the measured cost
 * is attributed to the rank whose message took longest. */
static void note_last(struct ls_comm *c, struct ls_work *w, enum ls_collective algorithm)
{
    double usual = c->cost[algorithm].alpha + c->cost[algorithm].beta * (double)w->bytes,
           wait = c->longest_wait - 2 * usual;
    if (wait <= w->last_wait || c->cost[algorithm].alpha == 0)
        return;
    w->last_rank = c->longest_peer;
    w->last_wait = wait;
    atomic_fetch_add(&c->peers[w->last_rank].late_times, 1);
    atomic_fetch_add(&c->peers[w->last_rank].late_ns, (int64_t)(1e9 * wait));
}

/* On one node: a wait for a rank that has come counts where it is longer than the collective usually takes. */
static void note_stall(struct ls_comm *c, struct ls_work *w, enum ls_collective algorithm)
{
    double usual = c->cost[algorithm].alpha + c->cost[algorithm].beta * (double)w->bytes;
    if (c->stall < STALL_LEAST || c->stall < 2 * usual)
        return;
    w->stall = c->stall;
    w->stall_rank = c->stall_rank;
}

static enum ls_status run_one(struct ls_comm *c, struct ls_work *w, enum ls_collective algorithm)
{
    if (algorithm == LS_COLLECTIVE_RING)
        return ls_ring_run(c, w);
    if (algorithm == LS_COLLECTIVE_MPI)
        return ls_library_allreduce_run(c, w);
    if (c->nodes == 1)
        return ls_shm_collective_run(c, w);
    if (w->bytes == 0) /* only marks travel (COMM-5) */
        return ls_barrier_run(c);
    if (algorithm == LS_COLLECTIVE_HIER)
        return ls_hier_run(c, w);
    return run_over_messages(c, w);
}

/* A sum that is larger than the scratch memory, in pieces. */
static enum ls_status run_pieces(struct ls_comm *c, struct ls_work *w, enum ls_collective algorithm)
{
    int first, n = ls_tree_parts(&c->tree, c->rank, &first);
    size_t most = c->o.max_bytes / sizeof(float) / LS_CODEC_BLOCK * LS_CODEC_BLOCK, count = w->bytes / sizeof(float);
    float *parts[LS_MAX_PARTS];
    if (most == 0 || n > LS_MAX_PARTS)
        return ls_fail(LS_FAILED, "a sum of %zu bytes in a group opened for at most %zu", w->bytes, c->o.max_bytes);
    for (size_t at = 0; at < count; at += most) {
        struct ls_work piece = *w;
        piece.data = (float *)w->data + at;
        piece.bytes = (count - at < most ? count - at : most) * sizeof(float);
        for (int i = 0; w->parts && i < n; i++)
            parts[i] = w->parts[i] + at;
        piece.parts = w->parts ? parts : NULL;
        piece.codec_state = w->codec_state ? (float *)w->codec_state + ls_comm_feedback(c, at) : NULL;
        LS_TRY(run_one(c, &piece, algorithm));
    }
    return LS_OK;
}

enum ls_status ls_collective_run(struct ls_comm *c, struct ls_work *w)
{
    enum ls_collective algorithm = choose(c, w);
    enum ls_status st = check(c, w, algorithm);
    w->begun = ls_now();
    w->last_rank = -1;
    w->last_wait = 0;
    w->stall_rank = -1;
    w->stall = 0;
    c->longest_wait = c->stall = 0;
    ls_mark_begin(c, w);
    if (st != LS_OK)
        return st;
    st = needs_scratch(c, algorithm) && may_be_cut(w) && w->bytes > c->o.max_bytes ? run_pieces(c, w, algorithm)
                                                                                   : run_one(c, w, algorithm);
    if (st != LS_OK)
        ls_heartbeat_report_abort(c); /* before messages are cancelled, which may end the use of the transport */
    ls_messages_clear(c);
    if (c->nodes > 1)
        note_last(c, w, algorithm);
    else
        note_stall(c, w, algorithm);
    return st;
}
