#include "sync/pushpull.h"
#include "base/memory.h"

#include <string.h>

/* The tag of a gradient is the number of its bucket. */
enum { TAG_PUSH = LS_TAG_LIMIT - 1, TAG_PULL = LS_TAG_LIMIT - 2 };

static int rank_of(const struct ls_pushpull *p, int server)
{
    return p->workers + server;
}

static int server_of(const struct ls_pushpull *p, int bucket)
{
    return bucket % p->servers;
}

static size_t pull_bytes(const struct ls_pushpull *p, int server)
{
    return sizeof(struct ls_pull) + p->values_of[server] * sizeof(float);
}

/* --- values of a server ------------------------------------------------------------------------------------ */

/* Copies the values of a server's buckets to the message (out) or from it. Optimizer state is not copied. */
static void move_values(const struct ls_sync *s, int server, struct ls_pull *pull, bool out)
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
                                         .tag = TAG_PUSH,
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
                                        .tag = TAG_PULL,
                                        .data = p->pulled[server],
                                        .bytes = pull_bytes(p, server),
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
        move_values(s, k, p->pulled[k], false);
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

/* --- a server ---------------------------------------------------------------------------------------------- */

static void expect_grads(struct ls_sync *s, int worker)
{
    struct ls_pushpull *p = s->state;
    struct ls_pusher *from = &p->pushers[worker];
    float *at = from->grads;
    for (int b = p->me, i = 0; b < s->n_buckets; b += p->servers, i++) {
        from->coming[i] = (struct ls_work){.kind = LS_WORK_RECEIVE,
                                           .peer = worker,
                                           .tag = (uint32_t)b,
                                           .data = at,
                                           .bytes = s->buckets[b].count * sizeof *at,
                                           .step = from->clock,
                                           .bucket = b};
        ls_comm_post(s->comm, &from->coming[i]);
        at += s->buckets[b].count;
    }
}

/* The gradients have arrived or are about to arrive (SYNC-5). */
static enum ls_status wait_for_grads(struct ls_sync *s, int worker)
{
    struct ls_pushpull *p = s->state;
    for (int b = p->me, i = 0; b < s->n_buckets; b += p->servers, i++)
        LS_TRY(ls_sync_wait(s, &p->pushers[worker].coming[i]));
    return LS_OK;
}

/* Completes the previous answer. The worker has received it, because it has pushed again. */
static enum ls_status end_answer(struct ls_sync *s, int worker)
{
    struct ls_pushpull *p = s->state;
    struct ls_pusher *to = &p->pushers[worker];
    if (!to->answering)
        return LS_OK;
    to->answering = false;
    return ls_sync_wait(s, &to->answer);
}

enum ls_status ls_pushpull_answer(struct ls_sync *s, int worker, uint64_t next, struct ls_lag lag, bool dropped)
{
    struct ls_pushpull *p = s->state;
    struct ls_pusher *to = &p->pushers[worker];
    LS_TRY(end_answer(s, worker));
    *to->pull = (struct ls_pull){.next = next,
                                 .meet = p->meet,
                                 .signal = p->signal,
                                 .dropped = dropped,
                                 .lag = lag,
                                 .counted = p->counted - to->counted};
    move_values(s, p->me, to->pull, true);
    to->waits = false;
    to->pulled = p->updates;
    to->counted = p->counted;
    to->answer = (struct ls_work){.kind = LS_WORK_SEND,
                                  .peer = worker,
                                  .tag = TAG_PULL,
                                  .data = to->pull,
                                  .bytes = pull_bytes(p, p->me),
                                  .step = to->push.step,
                                  .bucket = -1};
    expect_grads(s, worker);
    ls_comm_post(s->comm, &to->answer);
    to->answering = true;
    return LS_OK;
}

enum ls_status ls_pushpull_update(struct ls_sync *s, const float *grads, uint64_t step, double lr, int64_t counted)
{
    struct ls_pushpull *p = s->state;
    s->step = step;
    s->lr = lr;
    p->counted += counted;
    p->updates++;
    for (int b = p->me; counted > 0 && b < s->n_buckets; b += p->servers) {
        memcpy(s->grads + s->buckets[b].first, grads, s->buckets[b].count * sizeof *grads);
        grads += s->buckets[b].count;
        LS_TRY(ls_sync_update(s, b));
    }
    return LS_OK;
}

/* SYNC-7: no worker is beyond the step that it pushes next. */
static void note_signal(struct ls_pushpull *p, const struct ls_push *push, int mine)
{
    int signal = push->signal ? push->signal : mine;
    if (!signal || p->signal || p->me > 0)
        return;
    uint64_t most = push->step;
    for (int w = 0; w < p->workers; w++)
        if (p->pushers[w].clock > most)
            most = p->pushers[w].clock;
    p->signal = signal;
    p->meet = most + 1;
}

/* With several servers a worker may have been sent beyond the step at which all stop. Its push is answered with that
 * step. */
static enum ls_status call_back(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    for (int w = 0; w < p->workers; w++)
        if (p->pushers[w].waits && p->pushers[w].push.step >= p->meet)
            LS_TRY(ls_pushpull_answer(s, w, p->meet, (struct ls_lag){0}, true));
    return LS_OK;
}

static enum ls_status take(struct ls_sync *s, const struct ls_serving *serving, int worker, const struct ls_push *push)
{
    struct ls_pushpull *p = s->state;
    struct ls_pusher *from = &p->pushers[worker];
    LS_TRY(wait_for_grads(s, worker));
    from->push = *push;
    if (push->kind == LS_PUSH_LEAVE) {
        from->left = true;
        p->meet = push->step;
        return call_back(s);
    }
    from->waits = true;
    note_signal(p, push, s->signal(s->context));
    LS_TRY(call_back(s));
    if (from->waits) {
        ls_comm_position(s->comm, push->step, 0, LS_STAGE_UPDATE);
        LS_TRY(serving->arrived(s, worker));
        ls_comm_position(s->comm, push->step, 0, LS_STAGE_REDUCE);
    }
    return LS_OK;
}

static void begin(struct ls_sync *s, uint64_t step)
{
    struct ls_pushpull *p = s->state;
    p->met = false;
    p->open = step;
    p->meet = UINT64_MAX;
    p->signal = 0;
    for (int w = 0; w < p->workers; w++) {
        struct ls_pusher *from = &p->pushers[w];
        from->waits = from->left = false;
        from->clock = step;
        from->pulled = p->updates;
        expect_grads(s, w);
    }
}

enum ls_status ls_pushpull_serve(struct ls_sync *s, const struct ls_serving *serving, uint64_t *step)
{
    struct ls_pushpull *p = s->state;
    struct ls_push push = {0};
    begin(s, *step);
    for (int left = 0; left < p->workers; left += push.kind == LS_PUSH_LEAVE) {
        struct ls_work work = {.kind = LS_WORK_RECEIVE,
                               .peer = LS_ANY_RANK,
                               .tag = TAG_PUSH,
                               .late = serving->late(s) + 1,
                               .data = &push,
                               .bytes = sizeof push,
                               .step = s->step,
                               .bucket = -1};
        ls_comm_post(s->comm, &work);
        LS_TRY(ls_sync_wait(s, &work));
        LS_TRY(take(s, serving, work.peer, &push));
    }
    for (int w = 0; w < p->workers; w++)
        LS_TRY(end_answer(s, w));
    p->tally.signal = p->signal;
    *step = p->next_step = push.step;
    return LS_OK;
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
    const struct ls_bucket *b = &s->buckets[bucket];
    if (server_of(p, bucket) == p->me)
        LS_TRY(s->pull_values(s->context, bucket, LS_PART_ALL));
    for (int v = 0; v < b->n_values; v++) {
        struct ls_work work = {.kind = LS_WORK_BROADCAST,
                               .peer = rank_of(p, server_of(p, bucket)),
                               .data = b->values[v].memory,
                               .bytes = b->values[v].count * sizeof(float),
                               .step = p->next_step,
                               .bucket = bucket};
        ls_comm_post(s->comm, &work);
        LS_TRY(ls_sync_wait(s, &work));
    }
    return LS_OK;
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
        if (!(p->pulled[k] = ls_alloc(pull_bytes(p, k), 1)))
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
        from->pull = ls_alloc(pull_bytes(p, p->me), 1);
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
}
