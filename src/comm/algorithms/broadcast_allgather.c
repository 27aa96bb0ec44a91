/* Broadcast, allgather and barrier over messages; the allreduce of a library. */
#include "comm/group.h"

#include <string.h>

enum { PIECES_MOST = 64, SUM_BLOCK = 1024 };
#define PIECE ((size_t)1 << 20)

/* A binomial tree from the root; the data follows it in pieces. */
enum ls_status ls_broadcast_run(struct ls_comm *c, struct ls_work *w)
{
    int n = c->size, me = (c->rank - w->peer + n) % n, parent = -1, children = 1;
    size_t piece = w->bytes / PIECES_MOST + 1;
    piece = piece > PIECE ? piece : PIECE;
    while (children < n && !(me & children))
        children *= 2;
    if (me != 0)
        parent = ((me & (me - 1)) + w->peer) % n; /* its number without the lowest bit */
    for (size_t at = 0; at < w->bytes; at += piece) {
        size_t bytes = w->bytes - at < piece ? w->bytes - at : piece;
        char *data = (char *)w->data + at;
        if (parent >= 0) {
            LS_TRY(ls_message_receive(c, parent, data, bytes));
            LS_TRY(ls_messages_wait(c, c->n_messages - 1, c->n_messages));
        }
        for (int child = children / 2; child > 0; child /= 2)
            if (me + child < n)
                LS_TRY(ls_message_send(c, (me + child + w->peer) % n, data, bytes));
    }
    LS_TRY(ls_messages_wait(c, 0, c->n_messages));
    ls_messages_clear(c);
    return LS_OK;
}

enum ls_status ls_allgather_run(struct ls_comm *c, struct ls_work *w)
{
    char *data = w->data;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            LS_TRY(ls_message_receive(c, r, data + (size_t)r * w->bytes, w->bytes));
    for (int step = 1; step < c->size; step++)
        LS_TRY(ls_message_send(c, (c->rank + step) % c->size, data + (size_t)c->rank * w->bytes, w->bytes));
    LS_TRY(ls_messages_wait(c, 0, c->n_messages));
    ls_messages_clear(c);
    return LS_OK;
}

enum ls_status ls_barrier_run(struct ls_comm *c)
{
    for (int distance = 1; distance < c->size; distance *= 2) {
        LS_TRY(ls_message_receive(c, (c->rank + c->size - distance) % c->size, NULL, 0));
        LS_TRY(ls_message_send(c, (c->rank + distance) % c->size, NULL, 0));
        LS_TRY(ls_messages_wait(c, 0, c->n_messages));
        ls_messages_clear(c);
    }
    return LS_OK;
}

void ls_parts_sum(struct ls_comm *c, struct ls_work *w)
{
    int first, n = ls_tree_parts(&c->tree, c->rank, &first);
    size_t count = w->bytes / sizeof(float);
    float sum[SUM_BLOCK];
    for (size_t at = 0; w->parts && at < count; at += SUM_BLOCK) {
        size_t block = count - at < SUM_BLOCK ? count - at : SUM_BLOCK;
        memcpy(sum, w->parts[0] + at, block * sizeof(float));
        for (int i = 1; i < n; i++)
            ls_sum_add(sum, sum, w->parts[i] + at, block);
        memcpy((float *)w->data + at, sum, block * sizeof(float));
    }
}

static void mark_others(const struct ls_comm *c, const void *context, bool *missing)
{
    (void)context;
    for (int r = 0; r < c->size; r++)
        missing[r] = r != c->rank;
}

enum ls_status ls_library_allreduce_run(struct ls_comm *c, struct ls_work *w)
{
    struct ls_transport_request request = {0};
    struct ls_wait wait = {.for_messages = true};
    bool done = false;
    enum ls_status st;
    ls_parts_sum(c, w);
    LS_TRY(c->transport->allreduce(c->transport_state, w->data, w->bytes / sizeof(float), &request));
    for (;;) {
        LS_TRY_GOTO(end, ls_group_check_peer(c, c->transport->test(c->transport_state, &request, &done), request.peer));
        if (done)
            break;
        LS_TRY_GOTO(end, ls_wait_step(c, &wait, mark_others, NULL));
    }
end:
    ls_wait_end(c, &wait);
    return st;
}
