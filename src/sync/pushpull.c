#include "sync/pushpull.h"
#include "base/memory.h"

#include <string.h>

static int rank_of(const struct ls_pushpull *p, int server)
{
    return p->workers + server;
}

static int server_of(const struct ls_pushpull *p, int bucket)
{
    return bucket % p->servers;
}

size_t ls_pushpull_bytes(const struct ls_pushpull *p, int server)
{
    return sizeof(struct ls_pull) + p->values_of[server] * sizeof(float);
}

/* --- values of a server ------------------------------------------------------------------------------------ */

void ls_pushpull_move_values(const struct ls_sync *s, int server, struct ls_pull *pull, bool out)
{
    const struct ls_pushpull *p = s->state;
    float *at = (float *)(void *)(pull + 1);
    for (int b = server; b < s->n_buckets; b += p->servers)
        for (int v = 0; v < s->buckets[b].n_values; v++) {
            const struct ls_sync_values *values = &s->buckets[b].values[v];
            if (values->optimizer)
                continue;
            memcpy(out ? at : values->memory, out ? values->memory : at, values->count * sizeof *at);
            at += values->count;
        }
}

/* --- a worker ---------------------------------------------------------------------------------------------- */

enum ls_status ls_pushpull_ready(struct ls_sync *s, int bucket)
{
    const struct ls_pushpull *p = s->state;
    ls_sync_post(s, bucket, LS_WORK_SEND, rank_of(p, server_of(p, bucket)));
    return LS_OK;
}

static void post_push(struct ls_sync *s, int server)
{
    struct ls_pushpull *p = s->state;
    p->pushes[server] = (struct ls_work){.kind = LS_WORK_SEND,
                                         .peer = rank_of(p, server),
                                         .tag = LS_TAG_PUSH,
                                         .data = &p->push,
                                         .bytes = sizeof p->push,
                                         .step = s->step,
                                         .bucket = -1};
    ls_comm_post(s->comm, &p->pushes[server]);
}

static void post_pull(struct ls_sync *s, int server)
{
    struct ls_pushpull *p = s->state;
    p->pulls[server] = (struct ls_work){.kind = LS_WORK_RECEIVE,
                                        .peer = rank_of(p, server),
                                        .tag = LS_TAG_PULL,
                                        .data = p->pulled[server],
                                        .bytes = ls_pushpull_bytes(p, server),
                                        .step = s->step,
                                        .bucket = -1};
    ls_comm_post(s->comm, &p->pulls[server]);
}

/* SYNC-5: the push follows after the gradients have been sent. */
static enum ls_status push_all(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    for (int b = 0; b < s->n_buckets; b++)
        LS_TRY(ls_sync_wait(s, &s->works[b]));
    for (int k = 0; k < p->servers; k++)
        post_push(s, k);
    for (int k = 0; k < p->servers; k++)
        LS_TRY(ls_sync_wait(s, &p->pushes[k]));
    return LS_OK;
}

/* Reads the answers of the servers: the next step, and whether this push was dropped. */
static void take_answers(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    const struct ls_pull *first = p->pulled[0];
    uint64_t next = 0;
    bool dropped = false;
    int stop = 0;
    for (int k = 0; k < p->servers; k++) {
        dropped |= p->pulled[k]->dropped != 0;
        if (p->pulled[k]->next > next)
            next = p->pulled[k]->next;
    }
    if (next >= first->meet) { /* SYNC-7 */
        next = first->meet;
        stop = first->signal;
        p->tally.signal = first->signal;
    }
    p->tally.pushed++;
    p->tally.dropped += dropped;
    if (next > s->step + 1)
        p->tally.skipped += (int64_t)(next - s->step - 1);
    p->tally.behind_sum += first->lag.behind;
    if (first->lag.behind > p->tally.behind_most)
        p->tally.behind_most = first->lag.behind;
    if (first->lag.ahead > p->tally.ahead_most)
        p->tally.ahead_most = first->lag.ahead;
    p->next_step = next;
    s->outcome = (struct ls_sync_outcome){.next_step = next,
                                          .samples = first->counted,
                                          .reported = s->own,
                                          .gradients = s->ops->local_mean,
                                          .staleness = first->lag.behind,
                                          .closed_with = first->k,
                                          .stop = stop,
                                          .differ = true}; /* other workers are answered at other times */
}

enum ls_status ls_pushpull_finish(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    p->met = false;
    p->push = (struct ls_push){.kind = LS_PUSH_STEP,
                               .signal = s->signal(s->context),
                               .step = s->step,
                               .lr = s->lr,
                               .own = s->own,
                               .samples = s->samples};
    for (int k = 0; k < p->servers; k++)
        post_pull(s, k);
    LS_TRY(push_all(s));
    for (int k = 0; k < p->servers; k++) {
        LS_TRY(ls_sync_wait(s, &p->pulls[k]));
        ls_pushpull_move_values(s, k, p->pulled[k], false);
    }
    take_answers(s);
    return LS_OK;
}

/* SYNC-6 */
static enum ls_status leave(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    p->push = (struct ls_push){.kind = LS_PUSH_LEAVE, .step = p->next_step};
    for (int b = 0; b < s->n_buckets; b++) {
        s->works[b] = (struct ls_work){.kind = LS_WORK_SEND,
                                       .peer = rank_of(p, server_of(p, b)),
                                       .tag = (uint32_t)b,
                                       .data = &p->push,
                                       .step = p->next_step,
                                       .bucket = b};
        ls_comm_post(s->comm, &s->works[b]);
    }
    return push_all(s);
}

/* --- workers and servers ----------------------------------------------------------------------------------- */

static enum ls_status gather_tallies(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    if (p->tally.signal == 0)
        p->tally.signal = s->signal(s->context);
    LS_TRY(ls_comm_allgather(s->comm, &p->tally, sizeof p->tally, s->tallies));
    s->outcome.stop = 0;
    for (int rank = 0; rank < p->workers + p->servers; rank++)
        if (s->tallies[rank].signal > s->outcome.stop)
            s->outcome.stop = (int)s->tallies[rank].signal;
    return LS_OK;
}

static enum ls_status share(struct ls_sync *s, int bucket)
{
    const struct ls_pushpull *p = s->state;
    ls_sync_post_values(
        s, bucket, LS_PART_ALL,
        (struct ls_work){.kind = LS_WORK_BROADCAST, .peer = rank_of(p, server_of(p, bucket)), .step = p->next_step});
    return ls_sync_wait_values(s);
}

enum ls_status ls_pushpull_collect(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    if (p->met)
        return LS_OK;
    if (p->me < 0)
        LS_TRY(leave(s));
    LS_TRY(gather_tallies(s));
    for (int b = 0; b < s->n_buckets; b++)
        if (server_of(p, b) == p->me)
            LS_TRY(s->fetch_values(s->context, b, LS_PART_ALL));
    LS_TRY(s->values_arrived(s->context));
    for (int b = 0; b < s->n_buckets; b++)
        LS_TRY(share(s, b));
    p->met = true;
    return LS_OK;
}

/* --- open and close ---------------------------------------------------------------------------------------- */

static enum ls_status make_worker(struct ls_pushpull *p)
{
    p->pushes = ls_alloc((size_t)p->servers, sizeof *p->pushes);
    p->pulls = ls_alloc((size_t)p->servers, sizeof *p->pulls);
    p->pulled = ls_alloc((size_t)p->servers, sizeof *p->pulled);
    if (!p->pushes || !p->pulls || !p->pulled)
        return LS_FAILED;
    for (int k = 0; k < p->servers; k++)
        if (!(p->pulled[k] = ls_alloc(ls_pushpull_bytes(p, k), 1)))
            return LS_FAILED;
    return LS_OK;
}

/* The number of receives that a server keeps posted for a worker: at most one for each bucket of the server. */
static int most_coming(const struct ls_sync *s)
{
    const struct ls_pushpull *p = s->state;
    return s->n_buckets / p->servers + 1;
}

static enum ls_status make_server(const struct ls_sync *s, struct ls_pushpull *p)
{
    p->pushers = ls_alloc((size_t)p->workers, sizeof *p->pushers);
    if (!p->pushers)
        return LS_FAILED;
    for (int w = 0; w < p->workers; w++) {
        struct ls_pusher *from = &p->pushers[w];
        from->grads = ls_alloc(p->grads_of[p->me], sizeof *from->grads);
        from->coming = ls_alloc((size_t)most_coming(s), sizeof *from->coming);
        from->pull = ls_alloc(ls_pushpull_bytes(p, p->me), 1);
        if (!from->grads || !from->coming || !from->pull)
            return LS_FAILED;
    }
    return LS_OK;
}

enum ls_status ls_pushpull_open(struct ls_sync *s)
{
    int size = ls_comm_size(s->comm), servers = ls_sync_servers(s->o, size);
    struct ls_pushpull *p = s->state = ls_alloc(1, sizeof *p);
    s->tallies = ls_alloc((size_t)size, sizeof *s->tallies);
    if (!p || !s->tallies)
        return LS_FAILED;
    p->servers = servers;
    p->workers = size - servers;
    p->me = ls_comm_rank(s->comm) >= p->workers ? ls_comm_rank(s->comm) - p->workers : -1;
    p->met = true;
    p->grads_of = ls_alloc((size_t)servers, sizeof *p->grads_of);
    p->values_of = ls_alloc((size_t)servers, sizeof *p->values_of);
    if (!p->grads_of || !p->values_of)
        return LS_FAILED;
    for (int b = 0; b < s->n_buckets; b++) {
        p->grads_of[server_of(p, b)] += s->buckets[b].count;
        for (int v = 0; v < s->buckets[b].n_values; v++)
            if (!s->buckets[b].values[v].optimizer)
                p->values_of[server_of(p, b)] += s->buckets[b].values[v].count;
    }
    return p->me < 0 ? make_worker(p) : make_server(s, p);
}

static void give_up(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    ls_comm_give_up(s->comm, p->pushes, p->servers);
    ls_comm_give_up(s->comm, p->pulls, p->servers);
    for (int w = 0; p->pushers && w < p->workers; w++) {
        ls_comm_give_up(s->comm, p->pushers[w].coming, most_coming(s));
        ls_comm_give_up(s->comm, &p->pushers[w].answer, 1);
    }
}

void ls_pushpull_close(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    if (!p)
        return;
    give_up(s);
    for (int k = 0; p->pulled && k < p->servers; k++)
        ls_free(p->pulled[k]);
    for (int w = 0; p->pushers && w < p->workers; w++) {
        ls_free(p->pushers[w].grads);
        ls_free(p->pushers[w].coming);
        ls_free(p->pushers[w].pull);
    }
    ls_free(p->grads_of);
    ls_free(p->values_of);
    ls_free(p->pushes);
    ls_free(p->pulls);
    ls_free(p->pulled);
    ls_free(p->pushers);
    ls_free(p->start);
    ls_arrivals_close(&p->arrivals);
}
