/* What is known of the ranks of a group, and its end: places, positions, deadlines, failures. */
#include "base/log.h"
#include "base/system/clock.h"
#include "comm/group.h"

#include <stdio.h>

int ls_comm_rank(const struct ls_comm *c)
{
    return c->rank;
}

int ls_comm_size(const struct ls_comm *c)
{
    return c->size;
}

int ls_comm_node(const struct ls_comm *c, int rank)
{
    return c->peers[rank].node;
}

int ls_comm_local_rank(const struct ls_comm *c, int rank)
{
    return c->peers[rank].local;
}

int ls_comm_local_size(const struct ls_comm *c)
{
    return c->locals;
}

void ls_comm_title(struct ls_comm *c, int rank, const char *title)
{
    snprintf(c->peers[rank].title, sizeof c->peers[rank].title, ", %s", title);
}

const char *ls_comm_host(const struct ls_comm *c, int rank)
{
    return c->peers[rank].host;
}

const char *ls_comm_transport(const struct ls_comm *c)
{
    return c->transport && c->size > 1 ? c->transport->name : "self";
}

void ls_comm_library(const struct ls_comm *c, char text[64])
{
    text[0] = 0;
    if (c->transport && c->transport->library)
        c->transport->library(text);
}

const struct ls_tree *ls_comm_tree(const struct ls_comm *c)
{
    return &c->tree;
}

void ls_comm_position(struct ls_comm *c, uint64_t step, int bucket, enum ls_stage stage)
{
    struct ls_slot *slot = c->segment ? ls_shm_slot(c->segment, c->local) : NULL;
    atomic_store_explicit(slot ? &slot->step : &c->step, step, memory_order_relaxed);
    atomic_store_explicit(slot ? &slot->bucket : &c->bucket, bucket, memory_order_relaxed);
    atomic_store_explicit(slot ? &slot->stage : &c->stage, (int32_t)stage, memory_order_relaxed);
    atomic_store_explicit(slot ? &slot->since : &c->since, ls_clock_ns(), memory_order_relaxed);
}

static struct ls_position local_position(const struct ls_comm *c, int rank)
{
    const struct ls_slot *slot = c->segment ? ls_shm_slot(c->segment, c->peers[rank].local) : NULL;
    int64_t since = atomic_load_explicit(slot ? &slot->since : &c->since, memory_order_relaxed);
    return (struct ls_position){
        .step = atomic_load_explicit(slot ? &slot->step : &c->step, memory_order_relaxed),
        .bucket = atomic_load_explicit(slot ? &slot->bucket : &c->bucket, memory_order_relaxed),
        .stage = (enum ls_stage)atomic_load_explicit(slot ? &slot->stage : &c->stage, memory_order_relaxed),
        .age = 1e-9 * (double)(ls_clock_ns() - since),
    };
}

struct ls_position ls_comm_where(const struct ls_comm *c, int rank)
{
    const struct ls_peer *p = &c->peers[rank];
    if (p->node == c->peers[c->rank].node)
        return local_position(c, rank);
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&c->queue_lock; /* the lock is not part of the value */
    pthread_mutex_lock(lock);
    struct ls_position there = {.step = p->step, .bucket = p->bucket, .stage = p->stage, .age = ls_now() - p->since};
    pthread_mutex_unlock(lock);
    return there;
}

void ls_comm_allow(struct ls_comm *c, double seconds)
{
    ls_deadline_extend(&c->allowed, seconds);
    if (c->segment)
        ls_deadline_extend(&c->segment->head->allowed, seconds);
}

void ls_comm_abort(struct ls_comm *c, enum ls_status status, const char *why)
{
    int none = LS_OK;
    char last[LS_REASON_ROOM];
    if (c->size == 1 || !c->running)
        return;
    if (status == LS_OK)
        status = LS_FAILED;
    if (!why) {
        ls_log_last_copy(last, sizeof last);
        why = last;
    }
    pthread_mutex_lock(&c->queue_lock);
    if (!atomic_load(&c->aborting)) {
        snprintf(c->why, sizeof c->why, "%s", why);
        atomic_store(&c->aborting, (int)status);
    }
    pthread_mutex_unlock(&c->queue_lock);
    atomic_compare_exchange_strong(&c->broken, &none, (int)status);
    if (c->segment)
        ls_shm_segment_fail(c->segment, c->rank, status, why);
    ls_group_wake(c);
}

void ls_comm_give_up(struct ls_comm *c, struct ls_work *works, int n)
{
    for (int i = 0; works && i < n; i++) {
        if (atomic_load(&works[i].state) == 0 || ls_comm_done(&works[i]))
            continue;
        if (ls_comm_broken(c) == LS_OK)
            ls_comm_abort(c, LS_FAILED, NULL);
        ls_comm_wait(c, &works[i]); /* returns at once: COMM-8 */
    }
}

enum ls_status ls_comm_broken(const struct ls_comm *c)
{
    return (enum ls_status)atomic_load(&c->broken);
}

void ls_comm_lateness(const struct ls_comm *c, int rank, struct ls_lateness *l)
{
    l->times = atomic_load_explicit(&c->peers[rank].late_times, memory_order_relaxed);
    l->seconds = 1e-9 * (double)atomic_load_explicit(&c->peers[rank].late_ns, memory_order_relaxed);
}
