#define _GNU_SOURCE
#include "comm/shm/shm_segment.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READY UINT64_C(0x4c6f636b73746570)
#define RINGS_BYTES ((size_t)8 << 20) /* for all rings of a segment, more where there are very many */
#define RING_MOST ((size_t)128 << 10)
#define RING_LEAST ((size_t)8 << 10)

/* --- doorbells -------------------------------------------------------------------------------------------------- */

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

/* After a fence. */
static void ring(struct ls_doorbell *doorbell)
{
    uint32_t driver = atomic_load_explicit(&doorbell->driver, memory_order_relaxed) & 1;
    if (atomic_load_explicit(&doorbell->asleep[driver], memory_order_relaxed) == LS_ASLEEP)
        wake(doorbell, driver);
}

void ls_doorbell_ring(struct ls_doorbell *doorbell)
{
    atomic_thread_fence(memory_order_seq_cst);
    ring(doorbell);
}

void ls_doorbell_ring_all(struct ls_shm_segment *b)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < b->size; i++)
        if (i != b->me)
            ring(&ls_shm_slot(b, i)->doorbell);
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

/* --- where things lie --------------------------------------------------------------------------------------- */

static size_t slots_at(void)
{
    return (sizeof(struct ls_shm_head) + LS_CACHE_LINE - 1) / LS_CACHE_LINE * LS_CACHE_LINE;
}

static size_t ring_bytes(int size)
{
    size_t n = (size_t)size, ring = RING_MOST;
    while (ring > RING_LEAST && ring * n * n > RINGS_BYTES)
        ring /= 2;
    return ring;
}

static size_t segment_bytes(int size)
{
    size_t n = (size_t)size;
    return slots_at() + n * sizeof(struct ls_slot) + n * n * (sizeof(struct ls_ring) + ring_bytes(size));
}

struct ls_slot *ls_shm_slot(const struct ls_shm_segment *b, int index)
{
    return (struct ls_slot *)(void *)((char *)b->head + slots_at()) + index;
}

struct ls_ring *ls_shm_ring(const struct ls_shm_segment *b, int from, int to)
{
    size_t number = (size_t)from * (size_t)b->size + (size_t)to;
    char *rings = (char *)ls_shm_slot(b, b->size);
    return (struct ls_ring *)(void *)(rings + number * (sizeof(struct ls_ring) + b->ring));
}

/* --- coming together ---------------------------------------------------------------------------------------- */

static enum ls_status no_room(const char *name, size_t bytes, int code)
{
    return ls_fail(
        LS_FAILED,
        "/dev/shm%s: no shared memory of %zu bytes for the workers of this machine: %s; make /dev/shm larger "
        "(containers: --shm-size) or writable",
        name, bytes, strerror(code));
}

/* The first process to come makes the segment. */
static enum ls_status create(const char *name, int fd, struct ls_shm_segment *b)
{
    int code = posix_fallocate(fd, 0, (off_t)b->bytes);
    if (code != 0)
        return no_room(name, b->bytes, code);
    b->head = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b->head == MAP_FAILED)
        return no_room(name, b->bytes, errno);
    b->head->size = (uint32_t)b->size;
    b->head->ring = (uint32_t)b->ring;
    atomic_store(&b->head->ready, READY);
    return LS_OK;
}

/* The others find it. It is of full size a moment after it has its name. */
static enum ls_status attach(const char *name, int fd, double until, struct ls_shm_segment *b)
{
    struct stat info;
    const struct timespec moment = {.tv_nsec = 200000};
    for (;;) {
        if (fstat(fd, &info) != 0)
            return no_room(name, b->bytes, errno);
        if ((size_t)info.st_size == b->bytes)
            break;
        if (ls_now() > until)
            return ls_fail(LS_PEER_LOST, "/dev/shm%s: the worker that made it did not finish", name);
        nanosleep(&moment, NULL);
    }
    b->head = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b->head == MAP_FAILED)
        return no_room(name, b->bytes, errno);
    while (atomic_load(&b->head->ready) != READY) {
        if (ls_now() > until)
            return ls_fail(LS_PEER_LOST, "/dev/shm%s: the worker that made it did not finish", name);
        nanosleep(&moment, NULL);
    }
    return LS_OK;
}

static enum ls_status map(const char *name, double until, struct ls_shm_segment *b)
{
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    bool made = fd >= 0;
    if (!made && errno == EEXIST)
        fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return no_room(name, b->bytes, errno);
    enum ls_status st = made ? create(name, fd, b) : attach(name, fd, until, b);
    close(fd);
    if (b->head == MAP_FAILED)
        b->head = NULL;
    if (st != LS_OK && made)
        shm_unlink(name);
    return st;
}

static enum ls_status name_missing(const struct ls_shm_segment *b, double deadline)
{
    char list[256] = "";
    size_t used = 0;
    int missing = 0;
    for (int i = 0; i < b->size; i++)
        if (atomic_load(&ls_shm_slot(b, i)->pid) == 0 && used < sizeof list) {
            int n = snprintf(list + used, sizeof list - used, "%s%d", missing++ ? ", " : "", i);
            used += n > 0 ? (size_t)n : 0;
        }
    return ls_fail(LS_PEER_LOST, "worker%s %s of %d did not start within %.0f s: look for its message above",
                   missing > 1 ? "s" : "", list, b->size, deadline);
}

/* Sit down, wait for the others. */
static enum ls_status take_slot(struct ls_shm_segment *b, double until, double deadline)
{
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&ls_shm_slot(b, b->me)->pid, &nobody, (int32_t)getpid()))
        return ls_fail(LS_USAGE, "two workers say that they are number %d (processes %d and %d)", b->me, nobody,
                       (int)getpid());
    atomic_fetch_add(&b->head->attached, 1);
    ls_futex_wake(&b->head->attached, true);
    for (;;) {
        uint32_t attached = atomic_load(&b->head->attached);
        double left = until - ls_now();
        if (attached == (uint32_t)b->size)
            return LS_OK;
        if (left <= 0)
            return name_missing(b, deadline);
        ls_futex_wait(&b->head->attached, attached, left, true);
    }
}

static void watch(struct ls_shm_segment *b)
{
    for (int i = 0; i < b->size; i++) {
        pid_t pid = atomic_load(&ls_shm_slot(b, i)->pid);
        b->pidfd[i] = i == b->me ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    }
}

enum ls_status ls_shm_segment_open(const char *name, int size, int me, double deadline, struct ls_shm_segment **segment)
{
    double until = ls_now() + deadline;
    enum ls_status st = LS_FAILED;
    struct ls_shm_segment *b = ls_alloc(1, sizeof *b);
    if (!b)
        return LS_FAILED;
    b->size = size;
    b->me = me;
    b->ring = ring_bytes(size);
    b->bytes = segment_bytes(size);
    b->pidfd = ls_alloc((size_t)size, sizeof *b->pidfd);
    if (!b->pidfd)
        goto close_segment;
    for (int i = 0; i < size; i++)
        b->pidfd[i] = -1;
    LS_TRY_GOTO(close_segment, map(name, until, b));
    st = take_slot(b, until, deadline);
    shm_unlink(name); /* by the first who sees all slots taken, or gives up */
    if (st != LS_OK)
        goto close_segment;
    watch(b);
    *segment = b;
    return LS_OK;
close_segment:
    ls_shm_segment_close(b);
    return st;
}

void ls_shm_segment_close(struct ls_shm_segment *b)
{
    if (!b)
        return;
    for (int i = 0; b->pidfd && i < b->size; i++)
        if (b->pidfd[i] >= 0)
            close(b->pidfd[i]);
    if (b->head)
        munmap(b->head, b->bytes);
    ls_free(b->pidfd);
    ls_free(b);
}

/* --- who is there ------------------------------------------------------------------------------------------- */

/* For kernels without pidfds. A dead child that nobody has waited for still has a number. */
static bool dead_by_proc(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return kill(pid, 0) != 0 && errno == ESRCH;
    if (!fgets(line, sizeof line, f))
        line[0] = 0;
    fclose(f);
    const char *state = strrchr(line, ')');
    return state && state[1] && (state[2] == 'Z' || state[2] == 'X');
}

bool ls_shm_peer_gone(const struct ls_shm_segment *b, int index)
{
    struct ls_slot *slot = ls_shm_slot(b, index);
    if (index == b->me || atomic_load(&slot->closed))
        return false;
    bool dead;
    if (b->pidfd[index] >= 0) {
        struct pollfd p = {.fd = b->pidfd[index], .events = POLLIN};
        dead = poll(&p, 1, 0) == 1;
    } else {
        dead = dead_by_proc(atomic_load(&slot->pid));
    }
    return dead && !atomic_load(&slot->closed);
}

void ls_shm_segment_fail(struct ls_shm_segment *b, int rank, enum ls_status status, const char *why)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&b->head->failed, &none, 1))
        return;
    b->head->status = status;
    b->head->rank = rank;
    snprintf(b->head->why, sizeof b->head->why, "%s", why);
    atomic_store(&b->head->failed, 2);
    for (int i = 0; i < b->size; i++)
        if (i != b->me)
            ls_doorbell_wake(&ls_shm_slot(b, i)->doorbell);
}

bool ls_shm_segment_failed(const struct ls_shm_segment *b)
{
    return atomic_load_explicit(&b->head->failed, memory_order_acquire) == 2;
}
