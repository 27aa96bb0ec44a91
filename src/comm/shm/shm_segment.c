#define _GNU_SOURCE
#include "comm/shm/shm_segment.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READY UINT64_C(0x4c6f636b73746570)
#define RINGS_BYTES ((size_t)8 << 20) /* of all rings of a segment; more with very many processes */
#define RING_MOST ((size_t)128 << 10)
#define RING_LEAST ((size_t)8 << 10)

/* --- layout --------------------------------------------------------------------------------------- */

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

struct ls_slot *ls_shm_slot(const struct ls_shm_segment *s, int index)
{
    return (struct ls_slot *)(void *)((char *)s->head + slots_at()) + index;
}

struct ls_ring *ls_shm_ring(const struct ls_shm_segment *s, int from, int to)
{
    size_t number = (size_t)from * (size_t)s->size + (size_t)to;
    char *rings = (char *)ls_shm_slot(s, s->size);
    return (struct ls_ring *)(void *)(rings + number * (sizeof(struct ls_ring) + s->ring));
}

void ls_shm_segment_ring_all(struct ls_shm_segment *s)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < s->size; i++)
        if (i != s->me)
            ls_doorbell_ring_fenced(&ls_shm_slot(s, i)->doorbell);
}

/* --- open and close ---------------------------------------------------------------------------------------- */

static enum ls_status no_room(const char *name, size_t bytes, int code)
{
    return ls_fail(
        LS_FAILED,
        "/dev/shm%s: no shared memory of %zu bytes for the workers of this machine: %s; make /dev/shm larger "
        "(containers: --shm-size) or writable",
        name, bytes, strerror(code));
}

/* The first process to come makes the segment. */
static enum ls_status create(const char *name, int fd, struct ls_shm_segment *s)
{
    int code = posix_fallocate(fd, 0, (off_t)s->bytes);
    if (code != 0)
        return no_room(name, s->bytes, code);
    s->head = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s->head == MAP_FAILED)
        return no_room(name, s->bytes, errno);
    s->head->size = (uint32_t)s->size;
    s->head->ring = (uint32_t)s->ring;
    atomic_store(&s->head->ready, READY);
    return LS_OK;
}

/* The others open it. The segment has a name shortly before it has its full size. */
static enum ls_status attach(const char *name, int fd, double until, struct ls_shm_segment *s)
{
    struct stat info;
    const struct timespec moment = {.tv_nsec = 200000};
    for (;;) {
        if (fstat(fd, &info) != 0)
            return no_room(name, s->bytes, errno);
        if ((size_t)info.st_size == s->bytes)
            break;
        if (ls_now() > until)
            return ls_fail(LS_PEER_LOST, "/dev/shm%s: the worker that made it did not finish", name);
        nanosleep(&moment, NULL);
    }
    s->head = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s->head == MAP_FAILED)
        return no_room(name, s->bytes, errno);
    while (atomic_load(&s->head->ready) != READY) {
        if (ls_now() > until)
            return ls_fail(LS_PEER_LOST, "/dev/shm%s: the worker that made it did not finish", name);
        nanosleep(&moment, NULL);
    }
    return LS_OK;
}

static enum ls_status map(const char *name, double until, struct ls_shm_segment *s)
{
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    bool made = fd >= 0;
    if (!made && errno == EEXIST)
        fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return no_room(name, s->bytes, errno);
    enum ls_status st = made ? create(name, fd, s) : attach(name, fd, until, s);
    close(fd);
    if (s->head == MAP_FAILED)
        s->head = NULL;
    if (st != LS_OK && made)
        shm_unlink(name);
    return st;
}

static enum ls_status report_missing(const struct ls_shm_segment *s, double deadline)
{
    char list[256] = "";
    size_t used = 0;
    int missing = 0;
    for (int i = 0; i < s->size; i++)
        if (atomic_load(&ls_shm_slot(s, i)->pid) == 0 && used < sizeof list) {
            int n = snprintf(list + used, sizeof list - used, "%s%d", missing++ ? ", " : "", i);
            used += n > 0 ? (size_t)n : 0;
        }
    return ls_fail(LS_PEER_LOST, "worker%s %s of %d did not start within %.0f s: look for its message above",
                   missing > 1 ? "s" : "", list, s->size, deadline);
}

/* Takes this process's slot and waits for the others. */
static enum ls_status take_slot(struct ls_shm_segment *s, double until, double deadline)
{
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&ls_shm_slot(s, s->me)->pid, &nobody, (int32_t)getpid()))
        return ls_fail(LS_USAGE, "two workers have the number %d (processes %d and %d)", s->me, nobody, (int)getpid());
    atomic_fetch_add(&s->head->attached, 1);
    ls_futex_wake(&s->head->attached, true);
    for (;;) {
        uint32_t attached = atomic_load(&s->head->attached);
        double left = until - ls_now();
        if (attached == (uint32_t)s->size)
            return LS_OK;
        if (left <= 0)
            return report_missing(s, deadline);
        ls_futex_wait(&s->head->attached, attached, left, true);
    }
}

static void watch(struct ls_shm_segment *s)
{
    for (int i = 0; i < s->size; i++) {
        pid_t pid = atomic_load(&ls_shm_slot(s, i)->pid);
        s->pidfd[i] = i == s->me ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    }
}

enum ls_status ls_shm_segment_open(const char *name, int size, int me, double deadline, struct ls_shm_segment **segment)
{
    double until = ls_now() + deadline;
    enum ls_status st = LS_FAILED;
    struct ls_shm_segment *s = ls_alloc(1, sizeof *s);
    if (!s)
        return LS_FAILED;
    s->size = size;
    s->me = me;
    s->ring = ring_bytes(size);
    s->bytes = segment_bytes(size);
    s->pidfd = ls_alloc((size_t)size, sizeof *s->pidfd);
    if (!s->pidfd)
        goto close_segment;
    for (int i = 0; i < size; i++)
        s->pidfd[i] = -1;
    LS_TRY_GOTO(close_segment, map(name, until, s));
    st = take_slot(s, until, deadline);
    shm_unlink(name); /* the first process that sees all slots taken, or that gives up, removes the name */
    if (st != LS_OK)
        goto close_segment;
    watch(s);
    *segment = s;
    return LS_OK;
close_segment:
    ls_shm_segment_close(s);
    return st;
}

void ls_shm_segment_close(struct ls_shm_segment *s)
{
    if (!s)
        return;
    for (int i = 0; s->pidfd && i < s->size; i++)
        if (s->pidfd[i] >= 0)
            close(s->pidfd[i]);
    if (s->head)
        munmap(s->head, s->bytes);
    ls_free(s->pidfd);
    ls_free(s);
}

/* --- failures ------------------------------------------------------------------------------------------- */

/* For kernels without pidfds. A zombie still has a pid. */
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

bool ls_shm_peer_gone(const struct ls_shm_segment *s, int index)
{
    struct ls_slot *slot = ls_shm_slot(s, index);
    if (index == s->me || atomic_load(&slot->closed))
        return false;
    bool dead;
    if (s->pidfd[index] >= 0) {
        struct pollfd p = {.fd = s->pidfd[index], .events = POLLIN};
        dead = poll(&p, 1, 0) == 1;
    } else {
        dead = dead_by_proc(atomic_load(&slot->pid));
    }
    return dead && !atomic_load(&slot->closed);
}

void ls_shm_segment_fail(struct ls_shm_segment *s, int rank, enum ls_status status, const char *why)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&s->head->failed, &none, 1))
        return;
    s->head->status = status;
    s->head->rank = rank;
    snprintf(s->head->why, sizeof s->head->why, "%s", why);
    atomic_store(&s->head->failed, 2);
    for (int i = 0; i < s->size; i++)
        if (i != s->me)
            ls_doorbell_wake(&ls_shm_slot(s, i)->doorbell);
}

bool ls_shm_segment_failed(const struct ls_shm_segment *s)
{
    return atomic_load_explicit(&s->head->failed, memory_order_acquire) == 2;
}
