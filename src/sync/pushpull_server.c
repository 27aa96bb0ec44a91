/* Parameter servers: the side of a server. */
#include "base/system/clock.h"
#include "sync/pushpull.h"

#include <math.h>
#include <string.h>

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
                                 .k = p->last_k,
                                 .lag = lag,
                                 .counted = p->counted - to->counted};
    ls_pushpull_move_values(s, p->me, to->pull, true);
    to->waits = to->held = false;
    to->began = ls_now();
    to->pulled = p->updates;
    to->counted = p->counted;
    to->answer = (struct ls_work){.kind = LS_WORK_SEND,
                                  .peer = worker,
                                  .tag = LS_TAG_PULL,
                                  .data = to->pull,
                                  .bytes = ls_pushpull_bytes(p, p->me),
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
    return s->values_arrived(s->context);
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
 * step. So is a worker that waits for a step to open, because none may open before all stop. */
static enum ls_status call_back(struct ls_sync *s)
{
    struct ls_pushpull *p = s->state;
    for (int w = 0; w < p->workers; w++)
        if (p->pushers[w].waits && (p->pushers[w].push.step >= p->meet || (p->pushers[w].held && p->meet < UINT64_MAX)))
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
        from->waits = from->left = from->held = false;
        from->began = 0;
        from->clock = step;
        from->pulled = p->updates;
        expect_grads(s, w);
    }
}

/* Waits for a push. While none comes, the strategy may act at times that it chooses. */
static enum ls_status wait_for_push(struct ls_sync *s, const struct ls_serving *serving, struct ls_work *work)
{
    while (serving->until && isfinite(serving->until(s)) && !ls_comm_wait_until(s->comm, work, serving->until(s)))
        LS_TRY(serving->expired(s));
    return ls_sync_wait(s, work);
}

enum ls_status ls_pushpull_serve(struct ls_sync *s, const struct ls_serving *serving, uint64_t *step)
{
    struct ls_pushpull *p = s->state;
    struct ls_push push = {0};
    begin(s, *step);
    for (int left = 0; left < p->workers; left += push.kind == LS_PUSH_LEAVE) {
        struct ls_work work = {.kind = LS_WORK_RECEIVE,
                               .peer = LS_ANY_RANK,
                               .tag = LS_TAG_PUSH,
                               .late = serving->late(s) + 1,
                               .data = &push,
                               .bytes = sizeof push,
                               .step = s->step,
                               .bucket = -1};
        ls_comm_post(s->comm, &work);
        LS_TRY(wait_for_push(s, serving, &work));
        LS_TRY(take(s, serving, work.peer, &push));
    }
    for (int w = 0; w < p->workers; w++)
        LS_TRY(end_answer(s, w));
    p->tally.signal = p->signal;
    *step = p->next_step = push.step;
    return LS_OK;
}
