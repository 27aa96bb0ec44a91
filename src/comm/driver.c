/* Posted work: the driver that executes it, and threads that wait for it. One thread drives at a time: the communication
 * thread, or a thread that waits (COMM-6). */
#include "base/log.h"
#include "base/system/clock.h"
#include "base/trace.h"
#include "comm/group.h"

#include <string.h>

/* --- work ----------------------------------------------------------------------------------------------------------- */

enum { POSTED = 1, DONE = 2, AWAITED = 3 /* a thread sleeps until it is done */ };

static _Atomic uint32_t *state_word(struct ls_work *w)
{
    _Static_assert(sizeof w->state == sizeof(uint32_t), "a futex is 32 bits");
    return (_Atomic uint32_t *)(void *)&w->state;
}

void ls_work_finish(struct ls_work *w, enum ls_status status)
{
    w->status = status;
    w->done = ls_now();
    /* After the exchange the work belongs to its owner again. */
    if (atomic_exchange(&w->state, DONE) == AWAITED)
        ls_futex_wake(state_word(w), false);
}

void ls_work_trace(struct ls_comm *c, const struct ls_work *w)
{
    bool message = w->kind == LS_WORK_SEND || w->kind == LS_WORK_RECEIVE;
    struct ls_track *track = atomic_load_explicit(&c->traced[message], memory_order_relaxed);
    if (ls_trace_on(track))
        ls_trace_add_since(track, w->begun,
                           &(struct ls_slice){.kind = message ? LS_SLICE_MESSAGE : LS_SLICE_SUM,
                                              .name = ls_work_name(w->kind),
                                              .number = message ? w->peer : w->bucket,
                                              .bytes = w->bytes,
                                              .late_rank = message ? -1 : w->last_rank,
                                              .late_seconds = message ? 0 : (float)w->last_wait,
                                              .stall_rank = message ? -1 : w->stall_rank,
                                              .stall_seconds = message ? 0 : (float)w->stall});
}

static void list_add(struct ls_list *l, struct ls_work *w)
{
    w->next = NULL;
    if (l->tail)
        l->tail->next = w;
    else
        l->head = w;
    l->tail = w;
}

void ls_queue_push(struct ls_comm *c, struct ls_work *w)
{
    pthread_mutex_lock(&c->queue_lock);
    list_add(&c->queue, w);
    atomic_fetch_add(&c->posted, 1);
    pthread_mutex_unlock(&c->queue_lock);
}

static void take_one(struct ls_comm *c, struct ls_work *w)
{
    bool message = w->kind == LS_WORK_SEND || w->kind == LS_WORK_RECEIVE;
    enum ls_status st = (enum ls_status)atomic_load(&c->broken);
    if (st == LS_OK && message)
        st = ls_p2p_begin(c, w);
    if (st != LS_OK) {
        ls_work_finish(w, st);
        return;
    }
    atomic_fetch_add(&c->pending, 1);
    list_add(message ? &c->p2p : &c->collectives, w);
}

static bool take_posted(struct ls_comm *c)
{
    if (atomic_load(&c->posted) == atomic_load_explicit(&c->taken, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&c->queue_lock);
    struct ls_work *w = c->queue.head;
    c->queue = (struct ls_list){0};
    atomic_store(&c->taken, atomic_load(&c->posted));
    pthread_mutex_unlock(&c->queue_lock);
    while (w) {
        struct ls_work *next = w->next;
        take_one(c, w);
        w = next;
    }
    return true;
}

/* --- the driver (COMM-6) ---------------------------------------------------------------------------------------------- */

/* The rank to blame when this work is late; -1: none. */
static int waited_for(const struct ls_work *w)
{
    return w->asked == LS_ANY_RANK && w->kind == LS_WORK_RECEIVE ? w->late - 1 : w->asked;
}

/* A thread reports that it has waited for a message beyond the deadline. */
static void check_overdue(struct ls_comm *c)
{
    struct ls_work *late = atomic_exchange(&c->overdue, NULL);
    for (struct ls_work *w = late ? c->p2p.head : NULL; w; w = w->next)
        if (w == late && waited_for(w) >= 0) {
            struct ls_work *before = c->current;
            memset(c->missing, 0, (size_t)c->size * sizeof *c->missing);
            c->missing[waited_for(w)] = true;
            c->current = w;
            ls_blame(c, atomic_load(&c->beyond));
            c->current = before;
            return;
        }
}

bool ls_p2p_progress(struct ls_comm *c)
{
    take_posted(c);
    if (atomic_load_explicit(&c->overdue, memory_order_relaxed))
        check_overdue(c);
    return c->p2p.head && ls_p2p_test(c);
}

static void drop_all(struct ls_comm *c)
{
    enum ls_status st = (enum ls_status)atomic_load(&c->broken);
    ls_p2p_cancel_all(c, st);
    while (c->collectives.head) {
        struct ls_work *w = c->collectives.head;
        c->collectives.head = w->next;
        atomic_fetch_sub(&c->pending, 1);
        ls_work_finish(w, st);
    }
    c->collectives.tail = NULL;
}

static void run_next(struct ls_comm *c)
{
    struct ls_work *w = c->collectives.head;
    c->collectives.head = w->next;
    if (!w->next)
        c->collectives.tail = NULL;
    c->current = w;
    enum ls_status st = ls_collective_run(c, w);
    if (st != LS_OK && !atomic_load(&c->broken))
        st = ls_group_lose(c, st, "the %s of step %lu failed on rank %d", ls_work_name(w->kind), (unsigned long)w->step,
                           c->rank);
    c->current = NULL;
    atomic_fetch_sub(&c->pending, 1);
    ls_work_trace(c, w);
    ls_usage_count(c, w, ls_now() - w->begun);
    ls_work_finish(w, st);
}

/* Makes progress; false: there was nothing to do. */
static bool drive(struct ls_comm *c)
{
    bool moved = take_posted(c);
    if (atomic_load(&c->broken)) {
        moved |= c->p2p.head || c->collectives.head;
        ls_heartbeat_report_abort(c); /* before work is cancelled, which may end the use of the transport */
        drop_all(c);
        return moved;
    }
    moved |= ls_p2p_progress(c);
    if (c->collectives.head) {
        run_next(c);
        moved = true;
    }
    return moved;
}

bool ls_driver_try(struct ls_comm *c, double *checked)
{
    if (pthread_mutex_trylock(&c->drive) != 0)
        return false; /* a waiting thread drives */
    c->driver = 0;
    bool moved = drive(c);
    double now = ls_now();
    if (!moved && now - *checked > 0.1) {
        *checked = now;
        ls_group_check(c);
    }
    pthread_mutex_unlock(&c->drive);
    return moved;
}

void ls_driver_end(struct ls_comm *c, bool connected)
{
    int none = LS_OK;
    take_posted(c);
    if (!connected)
        return;
    atomic_compare_exchange_strong(&c->broken, &none, LS_FAILED); /* ends work that is left */
    drop_all(c);
}

/* --- waiting for work ------------------------------------------------------------------------------------------------- */

bool ls_comm_done(const struct ls_work *w)
{
    return atomic_load_explicit(&w->state, memory_order_acquire) == DONE;
}

static void mark_peer(const struct ls_comm *c, const void *context, bool *missing)
{
    int rank = waited_for(context);
    (void)c;
    if (rank >= 0)
        missing[rank] = true;
}

/* Drives until this work is done; the caller holds `drive`. */
static void help(struct ls_comm *c, struct ls_work *w)
{
    struct ls_wait p = {0};
    c->driver = 1;
    atomic_store(&c->doorbell->driver, 1);
    while (!ls_comm_done(w)) {
        if (drive(c))
            continue;
        c->current = w;
        if (w->kind == LS_WORK_RECEIVE && waited_for(w) < 0)
            p.since = ls_now(); /* any rank may be late: there is none to blame */
        ls_wait_step(c, &p, mark_peer, w);
        c->current = NULL;
    }
    ls_wait_end(c, &p);
    c->driver = 0;
    atomic_store(&c->doorbell->driver, 0);
}

/* Sleeps until the driver has done the work. */
static void sleep_on(struct ls_comm *c, struct ls_work *w)
{
    bool message = w->kind == LS_WORK_SEND || w->kind == LS_WORK_RECEIVE;
    double since = ls_now();
    int posted = POSTED;
    atomic_compare_exchange_strong(&w->state, &posted, AWAITED);
    if (message)
        ls_group_waits(c, waited_for(w));
    while (!ls_comm_done(w)) {
        double before = ls_now();
        ls_futex_wait(state_word(w), AWAITED, 0.1, false);
        if (ls_now() - before > 0.1 + LS_STOPPED)
            since += ls_now() - before;
        double beyond = ls_now() - ls_group_limit(c, since);
        if (message && !ls_comm_done(w) && beyond > 0) {
            atomic_store(&c->beyond, beyond);
            atomic_store(&c->overdue, w);
            ls_group_wake(c);
        }
    }
    if (message)
        ls_group_waits(c, -1);
}

void ls_driver_wait(struct ls_comm *c, struct ls_work *w)
{
    if (ls_comm_done(w))
        return;
    if (c->may_help && pthread_mutex_trylock(&c->drive) == 0) {
        help(c, w);
        pthread_mutex_unlock(&c->drive);
        /* Other work goes back to the communication thread. */
        if (atomic_load(&c->pending) || atomic_load(&c->posted) != atomic_load(&c->taken))
            ls_group_wake(c);
        return;
    }
    ls_group_wake(c);
    sleep_on(c, w);
}

bool ls_comm_wait_until(struct ls_comm *c, struct ls_work *w, double until)
{
    int posted = POSTED;
    double start = ls_now(), now = start;
    if (ls_comm_done(w) || c->size == 1)
        return ls_comm_done(w);
    atomic_compare_exchange_strong(&w->state, &posted, AWAITED);
    for (; !ls_comm_done(w) && now < until; now = ls_now())
        ls_futex_wait(state_word(w), AWAITED, until - now < 0.1 ? until - now : 0.1, false);
    ls_usage_waited(c, w, start, now);
    return ls_comm_done(w);
}
