#include "comm/comm.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/group.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- a group of one (COMM-4) ---------------------------------------------------------------------------------------------- */

/* The tree of a group of one has one part: the whole. */
static enum ls_status open_alone(struct ls_comm *c)
{
    c->rank = 0;
    c->size = c->nodes = c->locals = 1;
    c->local = 0;
    ls_free(c->peers);
    c->peers = ls_alloc(1, sizeof *c->peers);
    if (!c->peers)
        return LS_FAILED;
    if (gethostname(c->peers->host, LS_HOST_ROOM - 1) != 0)
        snprintf(c->peers->host, LS_HOST_ROOM, "unknown");
    c->peers->pid = (int32_t)getpid();
    ls_tree_release(&c->tree);
    return ls_tree_init(&c->tree, c->o.replicas > 0 ? c->o.replicas : 1, 1);
}

/* A send to this rank waits in the list for its receive, and the other way round. */
static void post_alone_message(struct ls_comm *c, struct ls_work *w)
{
    struct ls_work **at = &c->p2p.head;
    bool sends = w->kind == LS_WORK_SEND;
    while (*at && ((*at)->tag != w->tag || ((*at)->kind == LS_WORK_SEND) == sends))
        at = &(*at)->next;
    struct ls_work *other = *at;
    if (!other) {
        w->next = NULL;
        *at = w;
        return;
    }
    *at = other->next;
    struct ls_work *from = sends ? w : other, *to = sends ? other : w;
    enum ls_status st = LS_OK;
    if (from->bytes > to->bytes)
        st = ls_fail(LS_FAILED, "a message of %zu bytes does not fit the room of %zu made for it", from->bytes,
                     to->bytes);
    else if (from->bytes > 0)
        memcpy(to->data, from->data, from->bytes);
    to->bytes = from->bytes;
    to->peer = 0;
    ls_work_finish(from, st);
    ls_work_finish(to, st);
}

static void post_alone(struct ls_comm *c, struct ls_work *w)
{
    w->begun = w->posted;
    if (w->kind == LS_WORK_SEND || w->kind == LS_WORK_RECEIVE) {
        post_alone_message(c, w);
        return;
    }
    if (w->kind <= LS_WORK_SCATTER && w->parts && w->parts[0] != w->data && w->bytes > 0)
        memcpy(w->data, w->parts[0], w->bytes);
    w->last_rank = 0;
    w->last_wait = 0;
    ls_work_finish(w, LS_OK);
}

/* --- open and close --------------------------------------------------------------------------------------------------- */

static void release(struct ls_comm *c)
{
    ls_regions_release(c);
    if (c->event >= 0)
        close(c->event);
    ls_tree_release(&c->tree);
    pthread_mutex_destroy(&c->queue_lock);
    pthread_mutex_destroy(&c->drive);
    ls_free(c->peers);
    ls_free(c->missing);
    ls_free(c->ends);
    ls_free(c->messages);
    ls_free(c->envelopes);
    ls_free(c->operands);
    ls_free(c->wires);
    ls_free(c->results);
    ls_free(c);
}

/* Memory for buffers that lie in no region: for each of LS_SHM_DEPTH chunks in flight, a buffer for each index and part,
 * and one for the sum. */
static enum ls_status take_staging(struct ls_comm *c)
{
    size_t buffers = LS_SHM_DEPTH * ((size_t)c->node.size * (size_t)c->node.most_parts + 1);
    c->staging_bytes = LS_CODEC_BLOCK * sizeof(float) + 256;
    if (!c->segment && c->nodes == 1)
        return LS_OK;
    int region;
    LS_TRY(ls_region_take(c, buffers * c->staging_bytes, true, &region));
    pthread_mutex_lock(&c->drive);
    c->staging = c->regions[region].base ? region : -1;
    pthread_mutex_unlock(&c->drive);
    if (c->segment && c->staging < 0)
        return ls_fail(LS_FAILED,
                       "the workers of host %s cannot see each other's memory (/proc/PID/fd): start them as one "
                       "user, with /proc mounted without hidepid",
                       c->peers[c->rank].host);
    return LS_OK;
}

static enum ls_status connect_all(struct ls_comm *c)
{
    LS_TRY(ls_thread_start(c));
    if (c->size == 1) {
        ls_thread_stop(c, true);
        return open_alone(c);
    }
    LS_TRY(take_staging(c));
    return ls_cost_measure(c);
}

enum ls_status ls_comm_open(const struct ls_launch *launch, const struct ls_comm_options *options,
                            struct ls_comm **comm)
{
    struct ls_comm *c = ls_alloc(1, sizeof *c);
    if (!c)
        return LS_FAILED;
    pthread_mutex_init(&c->queue_lock, NULL);
    pthread_mutex_init(&c->drive, NULL);
    c->launch = *launch;
    c->o = *options;
    c->doorbell = &c->own;
    c->staging = c->event = -1;
    atomic_store(&c->since, ls_clock_ns());
    enum ls_status st = launch->kind == LS_LAUNCH_ALONE || launch->size == 1 ? open_alone(c) : connect_all(c);
    if (st != LS_OK) {
        ls_thread_stop(c, false);
        if (atomic_load(&c->opened) != 2) /* otherwise the abandoned thread still uses it */
            release(c);
        return st;
    }
    *comm = c;
    return LS_OK;
}

enum ls_status ls_comm_close(struct ls_comm *c, enum ls_status status)
{
    if (!c)
        return status;
    atomic_store(&c->closing, status == LS_OK);
    if (c->running && status == LS_OK)
        status = ls_comm_barrier(c);
    else if (c->running && !atomic_load(&c->broken))
        ls_comm_abort(c, status, "it ended early; its own messages say why");
    ls_thread_stop(c, status == LS_OK);
    release(c);
    return status;
}

/* --- work --------------------------------------------------------------------------------------------------------- */

static void prepare(struct ls_comm *c, struct ls_work *w)
{
    assert(w->kind < LS_WORK_SEND || w->tag < LS_TAG_LIMIT);
    w->posted = ls_now();
    w->next = NULL;
    w->asked = w->peer;
    atomic_store_explicit(&w->state, 1, memory_order_relaxed);
    if (c->size == 1)
        post_alone(c, w);
    else if (atomic_load(&c->broken))
        ls_work_finish(w, (enum ls_status)atomic_load(&c->broken));
    else
        ls_queue_push(c, w);
}

void ls_comm_post(struct ls_comm *c, struct ls_work *w)
{
    prepare(c, w);
    if (c->size > 1)
        ls_group_wake(c);
}

enum ls_status ls_comm_wait(struct ls_comm *c, struct ls_work *w)
{
    if (c->size > 1 && !ls_comm_done(w)) {
        double start = ls_now();
        ls_driver_wait(c, w);
        ls_usage_waited(c, w, start, ls_now());
    }
    if (!ls_comm_done(w))
        return ls_fail(LS_FAILED, "a message with tag %u has no other end in a group of one", w->tag);
    return w->status;
}

enum ls_status ls_comm_do(struct ls_comm *c, struct ls_work *w)
{
    prepare(c, w);
    return ls_comm_wait(c, w);
}

enum ls_status ls_comm_barrier(struct ls_comm *c)
{
    struct ls_work w = {.kind = LS_WORK_BARRIER, .bucket = -1};
    return ls_comm_do(c, &w);
}

enum ls_status ls_comm_broadcast(struct ls_comm *c, int root, void *data, size_t bytes)
{
    struct ls_work w = {.kind = LS_WORK_BROADCAST, .peer = root, .data = data, .bytes = bytes, .bucket = -1};
    return ls_comm_do(c, &w);
}

enum ls_status ls_comm_allgather(struct ls_comm *c, const void *mine, size_t bytes, void *all)
{
    struct ls_work w = {.kind = LS_WORK_ALLGATHER, .data = all, .bytes = bytes, .bucket = -1};
    char *place = (char *)all + (size_t)c->rank * bytes;
    if (bytes > 0 && place != mine)
        memmove(place, mine, bytes);
    return ls_comm_do(c, &w);
}

/* On one node they need no scratch memory (ls_collective_run). */
size_t ls_comm_most_scattered(const struct ls_comm *c)
{
    return c->nodes > 1 ? c->o.max_bytes : SIZE_MAX;
}

void ls_comm_range(const struct ls_comm *c, size_t count, int rank, size_t *first, size_t *last)
{
    ls_range(count, c->size, c->peers[rank].place, first, last);
}

size_t ls_comm_feedback(const struct ls_comm *c, size_t count)
{
    int first, n = ls_tree_parts(&c->tree, c->rank, &first);
    return ((size_t)n + 1) * count;
}

void ls_comm_trace(struct ls_comm *c, struct ls_track *collectives, struct ls_track *messages)
{
    atomic_store(&c->traced[0], collectives);
    atomic_store(&c->traced[1], messages);
}
