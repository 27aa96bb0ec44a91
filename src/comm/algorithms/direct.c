/* Sums over messages in which each index sends its parts of a range to the range's owner. It works for any number of
 * processes and parts, and with codecs: a value is encoded once on its way to the owner and once on its way back.
 *
 * Scratch memory, in strides of one range: one for each incoming part of the tree; one for each of this rank's parts and
 * each index, outgoing and encoded; one for each index's encoded sum; one for the sum where it must not go to data. */
#include "base/log.h"
#include "comm/group.h"

#include <string.h>

struct exchange {
    struct ls_comm *c;
    const struct ls_subgroup *k;
    struct ls_work *w;
    const struct ls_codec *codec;
    size_t count, stride;
    int parts; /* of this index */
};

static size_t stride_for(size_t count, int size)
{
    size_t first, longest = 0;
    ls_range(count, size, size - 1, &first, &longest);
    longest = longest - first + 16; /* ranges differ by at most 16 values */
    return (longest * sizeof(float) + (longest / LS_CODEC_BLOCK + 1) * 256 + 127) / 64 * 64;
}

size_t ls_direct_scratch(const struct ls_subgroup *k, size_t count)
{
    size_t strides = (size_t)k->tree.n_parts + (size_t)k->size * (size_t)(k->most_parts + 1) + 1;
    size_t small = (size_t)k->tree.n_parts * LS_SHM_SMALL;
    size_t most = strides * stride_for(count, k->size);
    return most > small ? most : small;
}

static struct exchange begin(struct ls_comm *c, const struct ls_subgroup *k, struct ls_work *w)
{
    struct exchange x = {.c = c, .k = k, .w = w, .codec = w->kind == LS_WORK_COLLECT ? NULL : w->codec};
    int first;
    x.count = w->bytes / sizeof(float);
    x.stride = stride_for(x.count, k->size);
    x.parts = ls_tree_parts(&k->tree, k->me, &first);
    return x;
}

static char *coming(const struct exchange *x, int part)
{
    return x->c->scratch + (size_t)part * x->stride;
}

static char *going(const struct exchange *x, int part, int to)
{
    return coming(x, x->k->tree.n_parts + part * x->k->size + to);
}

static char *result(const struct exchange *x, int index)
{
    return going(x, x->k->most_parts, index);
}

/* Where the sum of this range is made. A reduce changes data on the root only. */
static float *sum_at(const struct exchange *x, size_t first)
{
    bool apart = x->w->kind == LS_WORK_REDUCE && x->w->peer != x->c->rank;
    return apart ? (float *)(void *)result(x, x->k->size) : (float *)x->w->data + first;
}

static size_t range_of(const struct exchange *x, int index, size_t *first)
{
    size_t last;
    ls_range(x->count, x->k->size, index, first, &last);
    return last - *first;
}

static size_t bytes_of(const struct exchange *x, size_t count)
{
    return x->codec ? ls_wire_bytes(x->codec, count) : count * sizeof(float);
}

static float *feedback(const struct exchange *x, int part, size_t first)
{
    float *all = x->codec && x->codec->feedback ? x->w->codec_state : NULL;
    return all ? all + (size_t)part * x->count + first : NULL;
}

/* --- to the owners -------------------------------------------------------------------------------------------------- */

static enum ls_status send_parts(struct exchange *x, int to)
{
    size_t first, n = range_of(x, to, &first);
    for (int i = 0; n > 0 && i < x->parts; i++) {
        const float *part = ls_work_part(x->w, i) + first;
        if (!x->codec) {
            LS_TRY(ls_message_send(x->c, x->k->ranks[to], part, n * sizeof(float)));
            continue;
        }
        ls_wire_encode(x->codec, part, feedback(x, i, first), n, going(x, i, to));
        LS_TRY(ls_message_send(x->c, x->k->ranks[to], going(x, i, to), bytes_of(x, n)));
    }
    return LS_OK;
}

static void sum_encoded(struct exchange *x, size_t first, size_t n)
{
    const struct ls_tree *t = &x->k->tree;
    for (size_t at = 0; at < n; at += LS_CODEC_BLOCK) {
        size_t block = n - at < LS_CODEC_BLOCK ? n - at : LS_CODEC_BLOCK, wire = ls_wire_bytes(x->codec, at);
        for (int i = 0; i < t->n_parts; i++) {
            bool own = t->parts[i].rank == x->k->me;
            x->c->wires[i] = own ? NULL : coming(x, i) + wire;
            x->c->operands[i] = own ? ls_work_part(x->w, i - t->first_part[x->k->me]) + first + at : NULL;
        }
        ls_summer_decode(x->k->summer, x->codec, x->c->wires, x->c->operands, block, sum_at(x, first) + at);
    }
}

static void sum_plain(struct exchange *x, size_t first, size_t n)
{
    const struct ls_tree *t = &x->k->tree;
    float *sum = sum_at(x, first);
    for (int i = 0; i < t->n_parts; i++)
        x->c->operands[i] = t->parts[i].rank == x->k->me ? ls_work_part(x->w, i - t->first_part[x->k->me]) + first
                                                         : (const float *)(void *)coming(x, i);
    ls_summer_run(x->k->summer, x->c->operands, n, &sum, 1);
}

enum ls_status ls_direct_sum(struct ls_comm *c, const struct ls_subgroup *k, struct ls_work *w)
{
    struct exchange x = begin(c, k, w);
    const struct ls_tree *t = &k->tree;
    size_t first, n = range_of(&x, k->me, &first);
    for (int i = 0; n > 0 && i < t->n_parts; i++)
        if (t->parts[i].rank != k->me)
            LS_TRY(ls_message_receive(c, k->ranks[t->parts[i].rank], coming(&x, i), bytes_of(&x, n)));
    for (int step = 1; step < k->size; step++)
        LS_TRY(send_parts(&x, (k->me + step) % k->size));
    LS_TRY(ls_messages_wait(c, 0, c->n_messages));
    ls_messages_clear(c);
    if (n > 0 && x.codec)
        sum_encoded(&x, first, n);
    else if (n > 0)
        sum_plain(&x, first, n);
    return LS_OK;
}

/* --- from the owners ---------------------------------------------------------------------------------------------- */

static enum ls_status send_sum(struct exchange *x, int root)
{
    size_t first, n = range_of(x, x->k->me, &first);
    float *sum = sum_at(x, first);
    const void *wire = sum;
    if (n == 0)
        return LS_OK;
    if (x->codec) {
        ls_wire_encode(x->codec, sum, feedback(x, x->parts, first), n, result(x, x->k->me));
        ls_wire_decode(x->codec, result(x, x->k->me), n, sum);
        wire = result(x, x->k->me);
    }
    for (int step = 1; step < x->k->size; step++) {
        int to = (x->k->me + step) % x->k->size;
        if (root < 0 || to == root)
            LS_TRY(ls_message_send(x->c, x->k->ranks[to], wire, bytes_of(x, n)));
    }
    return LS_OK;
}

enum ls_status ls_direct_share(struct ls_comm *c, const struct ls_subgroup *k, struct ls_work *w, int root)
{
    struct exchange x = begin(c, k, w);
    bool takes = root < 0 || root == k->me;
    for (int i = 0; takes && i < k->size; i++) {
        size_t first, n = range_of(&x, i, &first);
        void *to = x.codec ? (void *)result(&x, i) : (void *)((float *)w->data + first);
        if (i != k->me && n > 0)
            LS_TRY(ls_message_receive(c, k->ranks[i], to, bytes_of(&x, n)));
    }
    LS_TRY(send_sum(&x, root));
    LS_TRY(ls_messages_wait(c, 0, c->n_messages));
    ls_messages_clear(c);
    for (int i = 0; takes && x.codec && i < k->size; i++) {
        size_t first, n = range_of(&x, i, &first);
        if (i != k->me)
            ls_wire_decode(x.codec, result(&x, i), n, (float *)w->data + first);
    }
    return LS_OK;
}

/* --- small sums: every index sends to all and sums itself --------------------------------------------------------- */

enum ls_status ls_direct_small(struct ls_comm *c, const struct ls_subgroup *k, struct ls_work *w)
{
    const struct ls_tree *t = &k->tree;
    float *data = w->data;
    for (int i = 0; i < t->n_parts; i++) {
        int index = t->parts[i].rank;
        char *room = c->scratch + (size_t)i * w->bytes;
        if (index == k->me)
            memcpy(room, ls_work_part(w, i - t->first_part[index]), w->bytes);
        else
            LS_TRY(ls_message_receive(c, k->ranks[index], room, w->bytes));
        c->operands[i] = (const float *)(void *)room;
    }
    for (int i = t->first_part[k->me]; i < t->first_part[k->me + 1]; i++)
        for (int step = 1; step < k->size; step++)
            LS_TRY(ls_message_send(c, k->ranks[(k->me + step) % k->size], c->operands[i], w->bytes));
    LS_TRY(ls_messages_wait(c, 0, c->n_messages));
    ls_messages_clear(c);
    ls_summer_run(k->summer, c->operands, w->bytes / sizeof(float), &data, 1);
    return LS_OK;
}
