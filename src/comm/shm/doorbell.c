#define _GNU_SOURCE
#include "comm/shm/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t ls_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void ls_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds, bool shared)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    syscall(SYS_futex, word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG), value, &t, NULL, 0);
}

void ls_futex_wake(_Atomic uint32_t *word, bool shared)
{
    syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), INT_MAX, NULL, NULL, 0);
}

static void wake(struct ls_doorbell *doorbell, uint32_t driver)
{
    atomic_fetch_add(&doorbell->rung[driver], 1);
    ls_futex_wake(&doorbell->rung[driver], true);
}

void ls_doorbell_ring_fenced(struct ls_doorbell *doorbell)
{
    uint32_t driver = atomic_load_explicit(&doorbell->driver, memory_order_relaxed) & 1;
    if (atomic_load_explicit(&doorbell->asleep[driver], memory_order_relaxed) == LS_ASLEEP)
        wake(doorbell, driver);
}

void ls_doorbell_ring(struct ls_doorbell *doorbell)
{
    atomic_thread_fence(memory_order_seq_cst);
    ls_doorbell_ring_fenced(doorbell);
}

void ls_doorbell_wake(struct ls_doorbell *doorbell)
{
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t driver = atomic_load_explicit(&doorbell->driver, memory_order_relaxed) & 1;
    if (atomic_load_explicit(&doorbell->asleep[driver], memory_order_relaxed) != LS_AWAKE)
        wake(doorbell, driver);
}

uint32_t ls_doorbell_prepare(struct ls_doorbell *doorbell, int driver, enum ls_sleep how)
{
    uint32_t rung = atomic_load(&doorbell->rung[driver]);
    atomic_store(&doorbell->asleep[driver], (uint32_t)how);
    atomic_thread_fence(memory_order_seq_cst);
    return rung;
}

void ls_doorbell_sleep(struct ls_doorbell *doorbell, int driver, uint32_t rung, double seconds)
{
    ls_futex_wait(&doorbell->rung[driver], rung, seconds, true);
    ls_doorbell_cancel(doorbell, driver);
}

void ls_doorbell_cancel(struct ls_doorbell *doorbell, int driver)
{
    atomic_store_explicit(&doorbell->asleep[driver], LS_AWAKE, memory_order_relaxed);
}
