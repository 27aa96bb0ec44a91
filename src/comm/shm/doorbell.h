/* Sleeping and waking between processes. A process has two threads that may drive its communication, one at a time: its
 * communication thread (0) and a thread that waits (1). A doorbell wakes the one that drives.
 *
 *     uint32_t rung = ls_doorbell_prepare(doorbell, driver, LS_ASLEEP);
 *     if (condition)                           test again: no ring is lost after prepare
 *         ls_doorbell_cancel(doorbell, driver);
 *     else
 *         ls_doorbell_sleep(doorbell, driver, rung, seconds); */
#ifndef LS_COMM_SHM_DOORBELL_H
#define LS_COMM_SHM_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ls_sleep { LS_AWAKE, LS_ASLEEP, LS_IDLE /* no work under way: only its own process wakes it */ };
struct ls_doorbell {
    _Atomic uint32_t driver;
    _Atomic uint32_t asleep[2]; /* enum ls_sleep */
    _Atomic uint32_t rung[2];   /* futexes */
};

/* Wakes a driver that is LS_ASLEEP. Costs a fence and a load while it is awake. */
void ls_doorbell_ring(struct ls_doorbell *doorbell);
/* The same without the fence, after a fence of the caller. */
void ls_doorbell_ring_fenced(struct ls_doorbell *doorbell);
/* Wakes the driver of this process, LS_IDLE or LS_ASLEEP. */
void ls_doorbell_wake(struct ls_doorbell *doorbell);
/* Announces a sleep of `driver`. */
uint32_t ls_doorbell_prepare(struct ls_doorbell *doorbell, int driver, enum ls_sleep how);
/* Sleeps until the doorbell is rung, at most this many seconds. */
void ls_doorbell_sleep(struct ls_doorbell *doorbell, int driver, uint32_t rung, double seconds);
/* Takes the announcement back. */
void ls_doorbell_cancel(struct ls_doorbell *doorbell, int driver);

/* The monotonic clock, which the processes of a node share, in nanoseconds. */
int64_t ls_clock_ns(void);
/* The system call: sleeps while *word is `value`, at most this long; wakes all sleepers. shared: across processes. */
void ls_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds, bool shared);
void ls_futex_wake(_Atomic uint32_t *word, bool shared);

#endif
