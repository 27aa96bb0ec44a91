/* Ring allreduce: each rank adds what comes from its left neighbour and sends it on to its right one. It sends as many
 * bytes as halving. The order of additions differs from range to range, so the bits are not the tree's. */
#include "comm/group.h"

static enum ls_status pass_on(struct ls_comm *c, float *data, size_t count, int give, int take, bool add)
{
    size_t from, to, first, last;
    int n = c->size, right = (c->rank + 1) % n, left = (c->rank + n - 1) % n;
    ls_range(count, n, give, &from, &to);
    ls_range(count, n, take, &first, &last);
    float *room = add ? (float *)(void *)c->scratch : data + first;
    if (last > first)
        LS_TRY(ls_message_receive(c, left, room, (last - first) * sizeof(float)));
    if (to > from)
        LS_TRY(ls_message_send(c, right, data + from, (to - from) * sizeof(float)));
    LS_TRY(ls_messages_wait(c, 0, c->n_messages));
    ls_messages_clear(c);
    if (add)
        ls_sum_add(data + first, data + first, room, last - first);
    return LS_OK;
}

enum ls_status ls_ring_run(struct ls_comm *c, struct ls_work *w)
{
    int n = c->size;
    size_t count = w->bytes / sizeof(float);
    ls_parts_sum(c, w);
    for (int step = 0; step < n - 1; step++)
        LS_TRY(pass_on(c, w->data, count, (c->rank - step + 2 * n) % n, (c->rank - step - 1 + 2 * n) % n, true));
    for (int step = 0; step < n - 1; step++)
        LS_TRY(pass_on(c, w->data, count, (c->rank - step + 1 + 2 * n) % n, (c->rank - step + 2 * n) % n, false));
    return LS_OK;
}
