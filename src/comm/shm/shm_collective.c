/* Collectives of the processes of a node, through shared memory. Each index sums its own range of all parts in the order
 * of the tree, so that all work at once and every value is read once.
 *
 * Three ways, the same bits:
 *   small    everyone leaves all it has at its slot and sums what all have left: one wait.
 *   regions  where all buffers lie in ls_comm_region memory, an index reads its range straight out of everyone's parts
 *            and writes the sum straight into everyone's data: two waits, no copy.
 *   staged   buffers elsewhere, and encoded values, go through staging memory in chunks. Chunk a is handed in (1),
 *            summed (2) and taken out (3) at place a % DEPTH; the steps of three chunks are interleaved so that
 *            nobody waits in step.
 *   N1  in, out and got count chunks since the start and are equal on all slots between collectives. */
#include "base/clock.h"
#include "base/log.h"
#include "comm/group.h"

#include <stddef.h>
#include <string.h>

enum { DEPTH = 4, TINY = 2048 /* bytes that are copied sooner than looked for */ };
#define CHUNKS_BYTES ((size_t)256 << 10) /* of one chunk over all indices: it stays in the second cache */
#define CHUNK_LEAST ((size_t)2048)
#define SLICE ((size_t)1 << 20) /* values between looks at the messages */

struct pass {
    struct ls_comm *c;
    struct ls_work *w;
    const struct ls_subgroup *k; /* of the node */
    struct ls_slot *slot;        /* mine */
    size_t count, bytes;         /* values of a sum; bytes */
    size_t chunk;                /* values (of a range) or bytes in a chunk */
    uint64_t base, chunks;       /* the first chunk's number; how many */
    int root, parity, parts;     /* parts: mine */
    bool sum, share;             /* parts are summed; ranges travel back */
};

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

/* Until index's counter (-1: everybody's) has come to value. */
static enum ls_status await(struct ls_comm *c, size_t offset, uint64_t value, int index)
{
    struct ls_wait p = {0};
    struct counter k = {offset, value, index};
    enum ls_status st = LS_OK;
    for (int i = index < 0 ? 0 : index; i < (index < 0 ? c->node.size : index + 1); i++) {
        if (i == c->node.me)
            continue;
        while (read_counter(c, i, offset) < value)
            LS_TRY_GOTO(end, ls_wait_step(c, &p, mark_behind, &k));
    }
end:
    ls_wait_end(c, &p);
    return st;
}
#define AWAIT(c, counter, value, index) LS_TRY(await(c, offsetof(struct ls_slot, counter), value, index))

static void raise_to(struct ls_comm *c, _Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_release);
    ls_doorbell_ring_all(c->segment);
}

/* N1 */
static void finish(struct pass *p)
{
    p->c->chunks = p->base + p->chunks;
    atomic_store_explicit(&p->slot->in, p->c->chunks, memory_order_release);
    atomic_store_explicit(&p->slot->out, p->c->chunks, memory_order_release);
    raise_to(p->c, &p->slot->got, p->c->chunks);
}

/* --- arriving ------------------------------------------------------------------------------------------------------ */

/* Where the others see my buffers; false: they cannot see all of them. */
static bool place_buffers(struct pass *p)
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

/* All see the same slots, so all name the same two. */
static enum ls_status compare_arrivals(struct pass *p)
{
    const struct ls_mark *first = &ls_shm_slot(p->c->segment, 0)->arrival[p->parity].mark;
    for (int i = 1; i < p->k->size; i++) {
        const struct ls_mark *its = &ls_shm_slot(p->c->segment, i)->arrival[p->parity].mark;
        if (!ls_mark_same(its, first))
            return ls_mark_refuse(p->c, p->k->ranks[i], its, p->k->ranks[0], first);
    }
    return LS_OK;
}

/* Who came last, and how long it was waited for. */
static void note_last(struct pass *p)
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

static enum ls_status arrive(struct pass *p, bool shared)
{
    struct ls_comm *c = p->c;
    struct ls_arrival *o = &p->slot->arrival[p->parity];
    o->at = ls_now();
    o->mark = c->mark;
    o->mark.shared = shared;
    raise_to(c, &o->arrived, c->arrivals);
    AWAIT(c, arrival[p->parity].arrived, c->arrivals, -1);
    LS_TRY(compare_arrivals(p));
    note_last(p);
    return LS_OK;
}

/* How many have all their buffers in regions. */
static int count_shared(const struct pass *p)
{
    int n = 0;
    for (int i = 0; i < p->k->size; i++)
        n += ls_shm_slot(p->c->segment, i)->arrival[p->parity].mark.shared;
    return n;
}

/* --- small ----------------------------------------------------------------------------------------------------------- */

static unsigned char *small_of(const struct pass *p, int index)
{
    return ls_shm_slot(p->c->segment, index)->small[p->parity];
}

static bool is_small(const struct pass *p)
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

static void sum_small(struct pass *p)
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

static void leave_small(struct pass *p)
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

static void take_small(struct pass *p)
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

static char *data_of(const struct pass *p, int index)
{
    return at_ref(p->c, index, ls_shm_slot(p->c->segment, index)->data[p->parity]);
}

/* My range, straight from everyone to everyone. */
static void sum_regions(struct pass *p)
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

static enum ls_status run_regions(struct pass *p)
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
    finish(p);
    AWAIT(c, got, c->chunks, -1);
    return LS_OK;
}

/* --- staged -------------------------------------------------------------------------------------------------------------- */

/* What `from` hands in for `to`: its part number `part`. */
static char *in_buffer(const struct pass *p, uint64_t a, int from, int to, int part)
{
    const struct ls_comm *c = p->c;
    size_t slot = ((size_t)(a % DEPTH) * (size_t)p->k->size + (size_t)to) * (size_t)p->k->most_parts + (size_t)part;
    return c->regions[c->staging].base[from] + slot * c->staging_bytes;
}

static char *out_buffer(const struct pass *p, uint64_t a, int from)
{
    const struct ls_comm *c = p->c;
    size_t slot = (size_t)DEPTH * (size_t)p->k->size * (size_t)p->k->most_parts + (size_t)(a % DEPTH);
    return c->regions[c->staging].base[from] + slot * c->staging_bytes;
}

/* Values of chunk j in an index's range. */
static size_t cut(const struct pass *p, uint64_t j, int index, size_t *first)
{
    size_t last;
    ls_range(p->count, p->k->size, index, first, &last);
    *first += (size_t)j * p->chunk;
    if (*first >= last)
        return 0;
    return last - *first < p->chunk ? last - *first : p->chunk;
}

static float *feedback(const struct pass *p, int part, size_t first)
{
    float *all = p->w->codec && p->w->codec->feedback ? p->w->codec_state : NULL;
    return all ? all + (size_t)part * p->count + first : NULL;
}

static enum ls_status hand_in(struct pass *p, uint64_t j)
{
    struct ls_comm *c = p->c;
    uint64_t a = p->base + j;
    AWAIT(c, out, a + 1 < DEPTH ? 0 : a + 1 - DEPTH, -1);
    for (int step = 1; p->sum && step < p->k->size; step++) {
        int to = (p->k->me + step) % p->k->size;
        size_t first, n = cut(p, j, to, &first);
        for (int i = 0; n > 0 && i < p->parts; i++) {
            char *slot = in_buffer(p, a, p->k->me, to, i);
            if (p->w->codec)
                p->w->codec->encode(ls_work_part(p->w, i) + first, feedback(p, i, first), n, slot);
            else
                memcpy(slot, ls_work_part(p->w, i) + first, n * sizeof(float));
        }
    }
    raise_to(c, &p->slot->in, a + 1);
    return LS_OK;
}

static void sum_encoded(struct pass *p, uint64_t a, size_t first, size_t n)
{
    struct ls_comm *c = p->c;
    const struct ls_codec *codec = p->w->codec;
    float *data = (float *)p->w->data + first, *sum = (float *)(void *)c->scratch;
    if (!p->share) {
        ls_summer_decode(p->k->summer, codec, c->wires, c->operands, n, data);
        return;
    }
    ls_summer_decode(p->k->summer, codec, c->wires, c->operands, n, sum);
    codec->encode(sum, feedback(p, p->parts, first), n, out_buffer(p, a, p->k->me));
    if (p->root < 0 || p->root == p->k->me)
        codec->decode(out_buffer(p, a, p->k->me), n, data);
}

static void sum_chunk(struct pass *p, uint64_t a, size_t first, size_t n)
{
    struct ls_comm *c = p->c;
    const struct ls_tree *t = &p->k->tree;
    float *data = (float *)p->w->data + first, *out = (float *)(void *)out_buffer(p, a, p->k->me);
    int results = 0;
    for (int i = 0; i < t->n_parts; i++) {
        int index = t->parts[i].rank, nth = i - t->first_part[index];
        bool own = index == p->k->me;
        const char *slot = own ? NULL : in_buffer(p, a, index, p->k->me, nth);
        c->wires[i] = slot;
        c->operands[i] = own ? ls_work_part(p->w, nth) + first : (const float *)(const void *)slot;
    }
    if (p->w->codec) {
        sum_encoded(p, a, first, n);
        return;
    }
    if (p->root < 0 || p->root == p->k->me)
        c->results[results++] = data;
    if (p->share && p->root != p->k->me)
        c->results[results++] = out;
    ls_summer_run(p->k->summer, c->operands, n, c->results, results);
}

static enum ls_status sum_up(struct pass *p, uint64_t j)
{
    struct ls_comm *c = p->c;
    uint64_t a = p->base + j;
    size_t first, n;
    if (p->sum)
        AWAIT(c, in, a + 1, -1);
    AWAIT(c, got, a + 1 < DEPTH ? 0 : a + 1 - DEPTH, -1);
    if (p->w->kind <= LS_WORK_COLLECT) {
        n = cut(p, j, p->k->me, &first);
        if (n > 0 && p->sum)
            sum_chunk(p, a, first, n);
        else if (n > 0)
            memcpy(out_buffer(p, a, p->k->me), (float *)p->w->data + first, n * sizeof(float));
    } else if (p->w->kind == LS_WORK_ALLGATHER || p->root == p->k->me) {
        const char *data = p->w->data;
        first = (size_t)j * p->chunk;
        n = p->bytes - first < p->chunk ? p->bytes - first : p->chunk;
        memcpy(out_buffer(p, a, p->k->me), data + (p->root < 0 ? (size_t)p->k->me * p->bytes : 0) + first, n);
    }
    raise_to(c, &p->slot->out, a + 1);
    return LS_OK;
}

static void take_from(struct pass *p, uint64_t j, int from)
{
    const char *slot = out_buffer(p, p->base + j, from);
    size_t first, n;
    if (p->w->kind <= LS_WORK_COLLECT) {
        n = cut(p, j, from, &first);
        float *data = (float *)p->w->data + first;
        if (n > 0 && p->w->codec && p->sum)
            p->w->codec->decode(slot, n, data);
        else if (n > 0)
            memcpy(data, slot, n * sizeof(float));
        return;
    }
    first = (size_t)j * p->chunk;
    n = p->bytes - first < p->chunk ? p->bytes - first : p->chunk;
    memcpy((char *)p->w->data + (p->root < 0 ? (size_t)from * p->bytes : 0) + first, slot, n);
}

static enum ls_status take_out(struct pass *p, uint64_t j)
{
    struct ls_comm *c = p->c;
    uint64_t a = p->base + j;
    bool broadcast = p->w->kind == LS_WORK_BROADCAST;
    bool takes = p->share && (broadcast ? p->root != p->k->me : p->root < 0 || p->root == p->k->me);
    for (int step = 1; takes && step < p->k->size; step++) {
        int from = (p->k->me + step) % p->k->size;
        if (broadcast && from != p->root)
            continue;
        AWAIT(c, out, a + 1, from);
        take_from(p, j, from);
    }
    raise_to(c, &p->slot->got, a + 1);
    return LS_OK;
}

static enum ls_status run_staged(struct pass *p)
{
    struct ls_comm *c = p->c;
    size_t longest = p->bytes, first, last;
    if (c->staging < 0)
        return ls_fail(LS_FAILED, "a collective of %zu bytes before there is memory to share", p->bytes);
    p->chunk = c->staging_bytes;
    if (p->w->kind <= LS_WORK_COLLECT) {
        size_t each = CHUNKS_BYTES / sizeof(float) / (size_t)(p->k->size * p->k->most_parts) / 16 * 16;
        p->chunk = p->w->codec || each > LS_CODEC_BLOCK ? LS_CODEC_BLOCK : each < CHUNK_LEAST ? CHUNK_LEAST : each;
        longest = 0;
        for (int i = 0; i < p->k->size; i++) {
            ls_range(p->count, p->k->size, i, &first, &last);
            longest = last - first > longest ? last - first : longest;
        }
    }
    p->chunks = (longest + p->chunk - 1) / p->chunk;
    for (uint64_t j = 0; j < p->chunks + 2; j++) {
        if (j < p->chunks)
            LS_TRY(hand_in(p, j));
        if (j >= 1 && j - 1 < p->chunks)
            LS_TRY(sum_up(p, j - 1));
        if (j >= 2)
            LS_TRY(take_out(p, j - 2));
        ls_p2p_progress(c);
    }
    finish(p);
    return LS_OK;
}

enum ls_status ls_shm_collective_run(struct ls_comm *c, struct ls_work *w)
{
    struct pass p = {.c = c, .w = w, .k = &c->node, .slot = ls_shm_slot(c->segment, c->node.me)};
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
    return n == p.k->size ? run_regions(&p) : run_staged(&p);
}
