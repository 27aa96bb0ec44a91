/* Recursive halving and doubling, for a power of two of indices with one part each. At distance size/2, size/4, ... an
 * index sends half of its current range to its partner and adds the partner's values to the other half. These are the
 * additions of the tree, level by level. */
#include "comm/group.h"

#define PIECE ((size_t)1 << 18) /* values of a message; one is added while the next travels */
enum { PIECES_MOST = 128 };

/* The values in the ranges of indices first .. first+n-1. */
static void span(const struct ls_subgroup *k, size_t count, int first, int n, size_t *from, size_t *to)
{
    size_t unused;
    ls_range(count, k->size, first, from, &unused);
    ls_range(count, k->size, first + n - 1, &unused, to);
}

static size_t piece_for(size_t count)
{
    size_t piece = count / PIECES_MOST + 1;
    return piece > PIECE ? piece : PIECE;
}

/* data[own] = part[own] + the partner's values; part[other] is sent to the partner. */
static enum ls_status exchange(struct ls_comm *c, int partner, const float *part, float *data, const size_t own[2],
                               const size_t other[2])
{
    size_t mine = own[1] - own[0], its = other[1] - other[0], in = piece_for(mine), out = piece_for(its);
    float *coming = (float *)(void *)c->scratch;
    for (size_t at = 0; at < mine; at += in)
        LS_TRY(ls_message_receive(c, partner, coming + at, (mine - at < in ? mine - at : in) * sizeof(float)));
    int received = c->n_messages;
    for (size_t at = 0; at < its; at += out)
        LS_TRY(ls_message_send(c, partner, part + other[0] + at, (its - at < out ? its - at : out) * sizeof(float)));
    size_t at = 0;
    for (int i = 0; i < received; i++, at += in) {
        LS_TRY(ls_messages_wait(c, i, i + 1));
        ls_sum_add(data + own[0] + at, part + own[0] + at, coming + at, mine - at < in ? mine - at : in);
    }
    LS_TRY(ls_messages_wait(c, received, c->n_messages));
    ls_messages_clear(c);
    return LS_OK;
}

enum ls_status ls_halving_sum(struct ls_comm *c, const struct ls_subgroup *k, const float *part, float *data,
                              size_t count)
{
    int first = 0;
    for (int distance = k->size / 2; distance > 0; distance /= 2) {
        size_t own[2], other[2];
        int high = (k->me & distance) ? distance : 0;
        span(k, count, first + high, distance, &own[0], &own[1]);
        span(k, count, first + distance - high, distance, &other[0], &other[1]);
        LS_TRY(exchange(c, k->ranks[k->me ^ distance], part, data, own, other));
        first += high;
        part = data;
    }
    return LS_OK;
}

enum ls_status ls_halving_share(struct ls_comm *c, const struct ls_subgroup *k, float *data, size_t count)
{
    for (int distance = 1; distance < k->size; distance *= 2) {
        size_t own[2], other[2];
        int first = k->me / distance * distance, partner = k->ranks[k->me ^ distance];
        span(k, count, first, distance, &own[0], &own[1]);
        span(k, count, first ^ distance, distance, &other[0], &other[1]);
        if (other[1] > other[0])
            LS_TRY(ls_message_receive(c, partner, data + other[0], (other[1] - other[0]) * sizeof(float)));
        if (own[1] > own[0])
            LS_TRY(ls_message_send(c, partner, data + own[0], (own[1] - own[0]) * sizeof(float)));
        LS_TRY(ls_messages_wait(c, 0, c->n_messages));
        ls_messages_clear(c);
    }
    return LS_OK;
}
