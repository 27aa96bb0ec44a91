/* The communication thread: it connects, drives work until the group is closed, and disconnects. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/system/clock.h"
#include "base/system/thread.h"
#include "comm/group.h"

#include <math.h>
#include <string.h>
#include <sys/prctl.h>

#define IDLE_SLEEP 0.5 /* seconds between checks when there is no work */
#define NAP_LEAST 20e-6
#define NAP_MOST 2e-3
#define MPI_START 15.0 /* seconds that MPI_Init may take even if the deadline is shorter */

/* A waiting thread may hold `drive`, but never where there is a descriptor to sleep on (COMM-6). */
static void rest(struct ls_comm *c, uint32_t rung, double seconds)
{
    if (atomic_load(&c->polling))
        ls_group_sleep(c, rung, seconds);
    else
        ls_doorbell_sleep(c->doorbell, 0, rung, seconds);
}

static void serve(struct ls_comm *c)
{
    bool prepared = false, messages = false;
    uint32_t rung = 0;
    double checked = ls_now(), nap = NAP_LEAST, idle = c->heartbeats ? IDLE_SLEEP / 2 : IDLE_SLEEP;
    while (!atomic_load(&c->stop)) {
        ls_group_alive(c);
        if (ls_driver_try(c, &checked)) {
            if (prepared)
                ls_doorbell_cancel(c->doorbell, 0);
            atomic_store(&c->polling, false);
            prepared = false;
            nap = NAP_LEAST;
        } else if (!prepared) {
            messages = c->polled && atomic_load(&c->pending);
            if (messages && c->event >= 0)
                atomic_store(&c->polling, true);
            rung = ls_doorbell_prepare(c->doorbell, 0, atomic_load(&c->pending) ? LS_ASLEEP : LS_IDLE);
            prepared = true;
        } else {
            rest(c, rung, messages && c->event < 0 ? nap : idle);
            nap = nap < NAP_MOST ? 1.5 * nap : NAP_MOST;
            prepared = false;
        }
    }
}

static void *thread_main(void *argument)
{
    struct ls_comm *c = argument;
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    prctl(PR_SET_NAME, "lockstep-comm", 0UL, 0UL, 0UL);
    c->connect_status = ls_connect(c);
    bool connected = c->connect_status == LS_OK;
    atomic_store(&c->connected, connected ? 1 : 2);
    ls_futex_wake(&c->connected, false);
    if (connected && c->o.name_rank && c->size > 1)
        ls_log_place("rank %d (%s): ", c->rank, c->peers[c->rank].host);
    if (connected)
        serve(c);
    pthread_mutex_lock(&c->drive);
    c->driver = 0;
    ls_driver_end(c, connected);
    pthread_mutex_lock(&c->queue_lock);
    bool graceful = c->graceful;
    pthread_mutex_unlock(&c->queue_lock);
    ls_disconnect(c, graceful);
    pthread_mutex_unlock(&c->drive);
    return NULL;
}

/* MPI_Init waits for all processes, has no deadline and cannot be interrupted. Not every mpirun ends the other processes
 * when one exits before MPI_Init. So this thread is abandoned inside MPI_Init, with the memory it uses. */
static enum ls_status leave_thread(struct ls_comm *c)
{
    pthread_detach(c->thread);
    c->running = false;
    return ls_fail(LS_PEER_LOST,
                   "not all processes that %s started came to MPI_Init within %g s: one of them has ended or is late "
                   "(--deadline); look for its message",
                   c->launch.how, fmax(c->o.deadline, MPI_START));
}

enum ls_status ls_thread_start(struct ls_comm *c)
{
    double waited = 0, limit = fmax(c->o.deadline, MPI_START);
    int code = ls_thread_create(&c->thread, thread_main, c);
    if (code != 0)
        return ls_fail(LS_FAILED, "the communication thread cannot be started: %s", strerror(code));
    c->running = true;
    while (atomic_load(&c->connected) == 0) {
        double before = ls_now();
        int opening = 0;
        ls_futex_wait(&c->connected, 0, 0.1, false);
        waited += fmin(ls_now() - before, 0.1 + LS_STOPPED); /* time in which this process was stopped does not count */
        if (c->launch.kind == LS_LAUNCH_MPI && waited > limit &&
            atomic_compare_exchange_strong(&c->opened, &opening, 2))
            return leave_thread(c);
    }
    return c->connect_status;
}

void ls_thread_stop(struct ls_comm *c, bool graceful)
{
    if (!c->running)
        return;
    pthread_mutex_lock(&c->queue_lock); /* the doorbell stays valid while the lock is held */
    c->graceful = graceful;
    atomic_store(&c->stop, true);
    if (atomic_load(&c->connected) == 1)
        ls_group_wake(c);
    pthread_mutex_unlock(&c->queue_lock);
    pthread_join(c->thread, NULL);
    c->running = false;
}
