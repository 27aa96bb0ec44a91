/* Collectives among the processes of a node, through shared memory. Each index sums its own range of all parts in the
 * order of the tree: all processes work at once, and every value is read once.
 *
 * There are three ways with the same bits:
 *   small    Every process leaves its data in its slot and sums what all have left: one wait.
 *   regions  All buffers lie in ls_comm_region memory. An index reads its range out of all parts and writes the sum into
 *            all results: two waits, no copy.
 *   staged   Other buffers, and encoded values, go through staging memory in chunks (shm_staged.c). Chunk a is handed in,
 *            summed and taken out in buffer a % LS_SHM_DEPTH; three chunks are in flight, in different stages.
 *
 *   SHM-4  The counters in, out and got count chunks since the start, and are equal in all slots between collectives. */
#include "base/system/clock.h"
#include "comm/shm/shm_collective.h"

#include <string.h>

enum { TINY = 2048 /* bytes; copying so few is faster than finding their region */ };
#define SLICE ((size_t)1 << 20) /* values between progress of messages */

/* --- counters --------------------------------------------------------------------------------------------------- */

struct counter {
    size_t offset;
    uint64_t value;
    int index; /* -1: all */
};

static uint64_t read_counter(const struct ls_comm *c, int index, size_t offset)
{
    char *slot = (char *)ls_shm_slot(c->segment, index);
    return atomic_load_explicit((_Atomic uint64_t *)(void *)(slot + offset), memory_order_acquire);
}

static void mark_behind(const struct ls_comm *c, const void *context, bool *missing)
{
    const struct counter *k = context;
    for (int i = 0; i < c->node.size; i++)
        if (i != c->node.me && (k->index < 0 || k->index == i) && read_counter(c, i, k->offset) < k->value)
            missing[c->node.ranks[i]] = true;
}

/* Takes the time since `before` from the clock that the wait has read anyway. */
static void note_stall(struct ls_comm *c, int index, double waited, double before)
{
    if (waited - before <= c->stall)
        return;
    c->stall = waited - before;
    c->stall_rank = c->node.ranks[index];
}

enum ls_status ls_shm_await(struct ls_comm *c, size_t offset, uint64_t value, int index)
{
    struct ls_wait w = {0};
    struct counter k = {offset, value, index};
    enum ls_status st = LS_OK;
    for (int i = index < 0 ? 0 : index; i < (index < 0 ? c->node.size : index + 1); i++) {
        if (i == c->node.me)
            continue;
        double before = w.seen - w.since;
        while (read_counter(c, i, offset) < value)
            LS_TRY_GOTO(end, ls_wait_step(c, &w, mark_behind, &k));
        note_stall(c, i, w.seen - w.since, before);
    }
end:
    ls_wait_end(c, &w);
    return st;
}

void ls_shm_raise(struct ls_comm *c, _Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_release);
    ls_shm_segment_ring_all(c->segment);
}

/* SHM-4 */
void ls_shm_pass_finish(struct ls_shm_pass *p)
{
    p->c->chunks = p->base + p->chunks;
    atomic_store_explicit(&p->slot->in, p->c->chunks, memory_order_release);
    atomic_store_explicit(&p->slot->out, p->c->chunks, memory_order_release);
    ls_shm_raise(p->c, &p->slot->got, p->c->chunks);
}

/* --- arriving ------------------------------------------------------------------------------------------------------ */

/* Publishes where the others find this process's buffers; false: not all lie in regions. */
static bool place_buffers(struct ls_shm_pass *p)
{
    struct ls_slot *s = p->slot;
    size_t all = p->w->kind == LS_WORK_ALLGATHER ? p->bytes * (size_t)p->k->size : p->bytes;
    if (p->parts > LS_SHM_PARTS || p->w->codec)
        return false;
    s->data[p->parity] = ls_region_find(p->c, p->w->data, all);
    bool shared = s->data[p->parity].region >= 0;
    for (int i = 0; p->sum && shared && i < p->parts; i++) {
        s->parts[p->parity][i] = ls_region_find(p->c, ls_work_part(p->w, i), p->bytes);
        shared = s->parts[p->parity][i].region >= 0;
    }
    return shared;
}

/* All processes see the same slots and report the same two ranks. */
static enum ls_status compare_arrivals(struct ls_shm_pass *p)
{
    const struct ls_mark *first = &ls_shm_slot(p->c->segment, 0)->arrival[p->parity].mark;
    for (int i = 1; i < p->k->size; i++) {
        const struct ls_mark *its = &ls_shm_slot(p->c->segment, i)->arrival[p->parity].mark;
        if (!ls_mark_same(its, first))
            return ls_mark_refuse(p->c, p->k->ranks[i], its, p->k->ranks[0], first);
    }
    return LS_OK;
}

/* Which rank came last, and how long this one waited for it. */
static void note_last(struct ls_shm_pass *p)
{
    double mine = p->slot->arrival[p->parity].at, last = mine, first = mine;
    int who = p->k->me;
    for (int i = 0; i < p->k->size; i++) {
        double at = ls_shm_slot(p->c->segment, i)->arrival[p->parity].at;
        if (at > last) {
            last = at;
            who = i;
        }
        if (at < first)
            first = at;
    }
    p->w->last_rank = p->k->ranks[who];
    p->w->last_wait = last - mine;
    struct ls_peer *late = &p->c->peers[p->w->last_rank];
    atomic_fetch_add_explicit(&late->late_times, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&late->late_ns, (int64_t)(1e9 * (last - (who == p->k->me ? first : mine))),
                              memory_order_relaxed);
}

static enum ls_status arrive(struct ls_shm_pass *p, bool shared)
{
    struct ls_comm *c = p->c;
    struct ls_arrival *o = &p->slot->arrival[p->parity];
    o->at = ls_now();
    o->mark = c->mark;
    o->mark.shared = shared;
    ls_shm_raise(c, &o->arrived, c->arrivals);
    double stall = c->stall;
    int stall_rank = c->stall_rank;
    AWAIT(c, arrival[p->parity].arrived, c->arrivals, -1);
    c->stall = stall; /* that wait is note_last's */
    c->stall_rank = stall_rank;
    LS_TRY(compare_arrivals(p));
    note_last(p);
    return LS_OK;
}

/* The number of processes whose buffers all lie in regions. */
static int count_shared(const struct ls_shm_pass *p)
{
    int n = 0;
    for (int i = 0; i < p->k->size; i++)
        n += ls_shm_slot(p->c->segment, i)->arrival[p->parity].mark.shared;
    return n;
}

/* --- small ----------------------------------------------------------------------------------------------------------- */

static unsigned char *small_of(const struct ls_shm_pass *p, int index)
{
    return ls_shm_slot(p->c->segment, index)->small[p->parity];
}

static bool is_small(const struct ls_shm_pass *p)
{
    switch (p->w->kind) {
    case LS_WORK_ALLREDUCE:
    case LS_WORK_REDUCE:
        return !p->w->codec && p->bytes * (size_t)p->k->most_parts <= LS_SHM_SMALL;
    case LS_WORK_BROADCAST:
    case LS_WORK_ALLGATHER:
        return p->bytes <= LS_SHM_SMALL;
    default:
        return p->bytes == 0;
    }
}

static void sum_small(struct ls_shm_pass *p)
{
    const struct ls_tree *t = &p->k->tree;
    float *data = p->w->data;
    if (p->root >= 0 && p->root != p->k->me)
        return;
    for (int i = 0; i < t->n_parts; i++) {
        size_t nth = (size_t)(i - t->first_part[t->parts[i].rank]);
        p->c->operands[i] = (const float *)(void *)(small_of(p, t->parts[i].rank) + nth * p->bytes);
    }
    ls_summer_run(p->k->summer, p->c->operands, p->count, &data, 1);
}

static void leave_small(struct ls_shm_pass *p)
{
    unsigned char *mine = small_of(p, p->k->me), *data = p->w->data;
    size_t n = p->bytes;
    if (n == 0)
        return;
    if (p->sum)
        for (int i = 0; i < p->parts; i++)
            memcpy(mine + (size_t)i * n, ls_work_part(p->w, i), n);
    else if (p->w->kind == LS_WORK_ALLGATHER)
        memcpy(mine, data + (size_t)p->k->me * n, n);
    else if (p->root == p->k->me)
        memcpy(mine, data, n);
}

static void take_small(struct ls_shm_pass *p)
{
    unsigned char *data = p->w->data;
    size_t n = p->bytes;
    if (p->sum)
        sum_small(p);
    else if (p->w->kind == LS_WORK_BROADCAST && p->root != p->k->me)
        memcpy(data, small_of(p, p->root), n);
    for (int i = 0; p->w->kind == LS_WORK_ALLGATHER && i < p->k->size; i++)
        if (i != p->k->me)
            memcpy(data + (size_t)i * n, small_of(p, i), n);
}

/* --- regions ----------------------------------------------------------------------------------------------------------- */

static char *at_ref(const struct ls_comm *c, int index, struct ls_region_ref s)
{
    return c->regions[s.region].base[index] + s.offset;
}

static char *data_of(const struct ls_shm_pass *p, int index)
{
    return at_ref(p->c, index, ls_shm_slot(p->c->segment, index)->data[p->parity]);
}

/* Sums this index's range from all parts into all results. */
static void sum_regions(struct ls_shm_pass *p)
{
    struct ls_comm *c = p->c;
    const struct ls_tree *t = &p->k->tree;
    size_t first, last;
    ls_range(p->count, p->k->size, p->k->me, &first, &last);
    for (; first < last; first += SLICE) {
        size_t n = last - first < SLICE ? last - first : SLICE;
        int results = 0;
        for (int i = 0; p->sum && i < t->n_parts; i++) {
            int index = t->parts[i].rank;
            struct ls_region_ref s = ls_shm_slot(c->segment, index)->parts[p->parity][i - t->first_part[index]];
            c->operands[i] = (const float *)(void *)at_ref(c, index, s) + first;
        }
        for (int i = 0; i < p->k->size; i++) {
            bool gets = p->root >= 0 ? i == p->root : p->share || i == p->k->me;
            if (gets && (p->sum || i != p->k->me))
                c->results[results++] = (float *)(void *)data_of(p, i) + first;
        }
        if (p->sum)
            ls_summer_run(p->k->summer, c->operands, n, c->results, results);
        else
            for (int i = 0; i < results; i++)
                memcpy(c->results[i], (const float *)p->w->data + first, n * sizeof(float));
        ls_p2p_progress(c);
    }
}

static enum ls_status run_regions(struct ls_shm_pass *p)
{
    struct ls_comm *c = p->c;
    char *data = p->w->data;
    size_t n = p->bytes;
    p->chunks = 1;
    if (p->w->kind <= LS_WORK_COLLECT) {
        sum_regions(p);
    } else if (p->w->kind == LS_WORK_BROADCAST) {
        if (p->root != p->k->me)
            memcpy(data, data_of(p, p->root), n);
    } else {
        for (int i = 0; i < p->k->size; i++)
            if (i != p->k->me)
                memcpy(data + (size_t)i * n, data_of(p, i) + (size_t)i * n, n);
    }
    ls_shm_pass_finish(p);
    AWAIT(c, got, c->chunks, -1);
    return LS_OK;
}

enum ls_status ls_shm_collective_run(struct ls_comm *c, struct ls_work *w)
{
    struct ls_shm_pass p = {.c = c, .w = w, .k = &c->node, .slot = ls_shm_slot(c->segment, c->node.me)};
    p.bytes = w->kind == LS_WORK_BARRIER ? 0 : w->bytes;
    p.count = w->bytes / sizeof(float);
    p.base = c->chunks;
    p.root = w->kind == LS_WORK_REDUCE || w->kind == LS_WORK_BROADCAST ? c->peers[w->peer].local : -1;
    p.sum = w->kind <= LS_WORK_SCATTER;
    p.share = w->kind != LS_WORK_SCATTER;
    int first_part;
    p.parts = ls_tree_parts(&p.k->tree, p.k->me, &first_part);
    p.parity = (int)(++c->arrivals & 1);
    bool small = is_small(&p);
    bool shared = (!small || (p.sum && p.bytes > TINY)) && place_buffers(&p);
    if (small && !shared)
        leave_small(&p);
    LS_TRY(arrive(&p, shared));
    int n = count_shared(&p);
    if (p.bytes == 0)
        return LS_OK;
    if (small && n == 0) {
        take_small(&p);
        return LS_OK;
    }
    return n == p.k->size ? run_regions(&p) : ls_shm_staged_run(&p);
}
