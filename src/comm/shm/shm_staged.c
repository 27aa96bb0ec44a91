/* The staged way of shm_collective.c: for buffers that lie in no region and for encoded values. */
#include "base/log.h"
#include "comm/shm/shm_collective.h"

#include <string.h>

#define CHUNKS_BYTES ((size_t)256 << 10) /* of one chunk over all indices: it stays in the second-level cache */
#define CHUNK_LEAST ((size_t)2048)

/* The buffer in which `from` hands in its part `part` for `to`. */
static char *in_buffer(const struct ls_shm_pass *p, uint64_t a, int from, int to, int part)
{
    const struct ls_comm *c = p->c;
    size_t number =
        ((size_t)(a % LS_SHM_DEPTH) * (size_t)p->k->size + (size_t)to) * (size_t)p->k->most_parts + (size_t)part;
    return c->regions[c->staging].base[from] + number * c->staging_bytes;
}

static char *out_buffer(const struct ls_shm_pass *p, uint64_t a, int from)
{
    const struct ls_comm *c = p->c;
    size_t number = (size_t)LS_SHM_DEPTH * (size_t)p->k->size * (size_t)p->k->most_parts + (size_t)(a % LS_SHM_DEPTH);
    return c->regions[c->staging].base[from] + number * c->staging_bytes;
}

/* The values of chunk j in an index's range: their number and the first. */
static size_t cut(const struct ls_shm_pass *p, uint64_t j, int index, size_t *first)
{
    size_t last;
    ls_range(p->count, p->k->size, index, first, &last);
    *first += (size_t)j * p->chunk;
    if (*first >= last)
        return 0;
    return last - *first < p->chunk ? last - *first : p->chunk;
}

static float *feedback(const struct ls_shm_pass *p, int part, size_t first)
{
    float *all = p->w->codec && p->w->codec->feedback ? p->w->codec_state : NULL;
    return all ? all + (size_t)part * p->count + first : NULL;
}

static enum ls_status hand_in(struct ls_shm_pass *p, uint64_t j)
{
    struct ls_comm *c = p->c;
    uint64_t a = p->base + j;
    AWAIT(c, out, a + 1 < LS_SHM_DEPTH ? 0 : a + 1 - LS_SHM_DEPTH, -1);
    for (int step = 1; p->sum && step < p->k->size; step++) {
        int to = (p->k->me + step) % p->k->size;
        size_t first, n = cut(p, j, to, &first);
        for (int i = 0; n > 0 && i < p->parts; i++) {
            char *buffer = in_buffer(p, a, p->k->me, to, i);
            if (p->w->codec)
                p->w->codec->encode(ls_work_part(p->w, i) + first, feedback(p, i, first), n, buffer);
            else
                memcpy(buffer, ls_work_part(p->w, i) + first, n * sizeof(float));
        }
    }
    ls_shm_raise(c, &p->slot->in, a + 1);
    return LS_OK;
}

static void sum_encoded(struct ls_shm_pass *p, uint64_t a, size_t first, size_t n)
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

static void sum_chunk(struct ls_shm_pass *p, uint64_t a, size_t first, size_t n)
{
    struct ls_comm *c = p->c;
    const struct ls_tree *t = &p->k->tree;
    float *data = (float *)p->w->data + first, *out = (float *)(void *)out_buffer(p, a, p->k->me);
    int results = 0;
    for (int i = 0; i < t->n_parts; i++) {
        int index = t->parts[i].rank, nth = i - t->first_part[index];
        bool own = index == p->k->me;
        const char *wire = own ? NULL : in_buffer(p, a, index, p->k->me, nth);
        c->wires[i] = wire;
        c->operands[i] = own ? ls_work_part(p->w, nth) + first : (const float *)(const void *)wire;
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

static enum ls_status sum_up(struct ls_shm_pass *p, uint64_t j)
{
    struct ls_comm *c = p->c;
    uint64_t a = p->base + j;
    size_t first, n;
    if (p->sum)
        AWAIT(c, in, a + 1, -1);
    AWAIT(c, got, a + 1 < LS_SHM_DEPTH ? 0 : a + 1 - LS_SHM_DEPTH, -1);
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
    ls_shm_raise(c, &p->slot->out, a + 1);
    return LS_OK;
}

static void take_from(struct ls_shm_pass *p, uint64_t j, int from)
{
    const char *wire = out_buffer(p, p->base + j, from);
    size_t first, n;
    if (p->w->kind <= LS_WORK_COLLECT) {
        n = cut(p, j, from, &first);
        float *data = (float *)p->w->data + first;
        if (n > 0 && p->w->codec && p->sum)
            p->w->codec->decode(wire, n, data);
        else if (n > 0)
            memcpy(data, wire, n * sizeof(float));
        return;
    }
    first = (size_t)j * p->chunk;
    n = p->bytes - first < p->chunk ? p->bytes - first : p->chunk;
    memcpy((char *)p->w->data + (p->root < 0 ? (size_t)from * p->bytes : 0) + first, wire, n);
}

static enum ls_status take_out(struct ls_shm_pass *p, uint64_t j)
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
    ls_shm_raise(c, &p->slot->got, a + 1);
    return LS_OK;
}

enum ls_status ls_shm_staged_run(struct ls_shm_pass *p)
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
    ls_shm_pass_finish(p);
    return LS_OK;
}
