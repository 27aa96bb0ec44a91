/* What the processes of one node see of each other: a segment of shared memory with a slot for each of them. The segment
 * has a random name and mode 0600, and loses its name as soon as every process is attached.
 *
 *     +------+--------+--------+-----+---------------------------------+
 *     | head | slot 0 | slot 1 | ... | rings: from 0 to 0, 0 to 1, ... |
 *     +------+--------+--------+-----+---------------------------------+
 *
 *   B1  A slot is written by its owner alone, but for the doorbell. Counters only grow.
 *   B2  What a process writes before it raises a counter is seen by whoever sees the counter raised.
 *   B3  Who waits for a peer sleeps; who raises a counter that a sleeper may wait for rings its doorbell. A sleeper looks at
 *       what it waits for once more after it has said that it sleeps, so no ring is lost. */
#ifndef LS_COMM_SHM_SHM_SEGMENT_H
#define LS_COMM_SHM_SHM_SEGMENT_H

#include "base/status.h"
#include "comm/mark.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_SHM_SMALL = 16384, LS_REASON_ROOM = 512, LS_SHM_PARTS = 32, LS_CACHE_LINE = 64 };

/* One of a process's two threads drives its communication at a time: its own thread (0), or one that waits (1). */
enum ls_sleep { LS_AWAKE, LS_ASLEEP, LS_IDLE /* nothing under way: only its own process wakes it */ };
struct ls_doorbell {
    _Atomic uint32_t driver;
    _Atomic uint32_t asleep[2]; /* enum ls_sleep */
    _Atomic uint32_t rung[2];   /* futexes */
};

/* Where a buffer lies, for the other processes of the node: in a region (ls_comm_region), or -1: they cannot see it. */
struct ls_region_ref {
    int64_t region;
    uint64_t offset;
};

/* What a process brings to a collective, in one cache line. Even and odd collectives have one each: nobody begins the
 * second next before everyone has come to the next. */
struct ls_arrival {
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t arrived; /* at the segment, so many times */
    double at;                                        /* when it came */
    struct ls_mark mark;
};
_Static_assert(sizeof(struct ls_arrival) == LS_CACHE_LINE, "an arrival is one cache line");

struct ls_slot {
    _Alignas(LS_CACHE_LINE) struct ls_doorbell doorbell;
    _Alignas(LS_CACHE_LINE) _Atomic int32_t pid; /* 0: not attached yet */
    _Atomic uint32_t closed;                     /* has left in good order, or after saying why */
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t step;
    _Atomic uint64_t collective; /* has begun so many */
    _Atomic int32_t bucket, stage;
    _Atomic int64_t since;                           /* nanoseconds on the monotonic clock */
    _Atomic int64_t alive;                           /* when its process was last seen to run */
    _Atomic int32_t waits;                           /* 1 + the rank it waits for; 0: none */
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t marked; /* the collective that mark is of; 0: being written */
    struct ls_mark mark;                             /* for those who have waited for long */
    struct ls_arrival arrival[2];
    /* Chunks handed in, summed and taken out, since the start. */
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t in;
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t out;
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t got;
    _Alignas(LS_CACHE_LINE) struct ls_region_ref data[2], parts[2][LS_SHM_PARTS];
    _Alignas(LS_CACHE_LINE) unsigned char small[2][LS_SHM_SMALL];
};

/* A stream of records from one process to another (shm_transport.c). */
struct ls_ring {
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t written;
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t taken;
    _Alignas(LS_CACHE_LINE) unsigned char bytes[];
};

struct ls_shm_head {
    _Atomic uint64_t ready;    /* a fixed number once it can be used */
    _Atomic uint32_t attached; /* futex: processes attached */
    uint32_t size, ring;       /* slots; bytes of a ring */
    _Atomic uint32_t failed;   /* 0, 1: being written, 2: status, rank and why are there */
    int32_t status, rank;
    char why[LS_REASON_ROOM];
    _Atomic int64_t allowed; /* no deadline before then; nanoseconds */
};

struct ls_shm_segment {
    struct ls_shm_head *head; /* the mapping */
    size_t bytes;
    int size, me;
    size_t ring; /* bytes of a ring's stream; a power of two */
    int *pidfd;  /* owned; -1: not watched */
};

/* Take slot `me` of `size` at the segment that goes by this name; waits for the others until the deadline and names the
 * slots that stayed empty. */
enum ls_status ls_shm_segment_open(const char *name, int size, int me, double deadline,
                                   struct ls_shm_segment **segment);
void ls_shm_segment_close(struct ls_shm_segment *segment);
struct ls_slot *ls_shm_slot(const struct ls_shm_segment *segment, int index);
struct ls_ring *ls_shm_ring(const struct ls_shm_segment *segment, int from, int to);
/* Is its process gone, other than by leaving in good order? */
bool ls_shm_peer_gone(const struct ls_shm_segment *segment, int index);
/* The first to call this decides what everybody is told. */
void ls_shm_segment_fail(struct ls_shm_segment *segment, int rank, enum ls_status status, const char *why);
bool ls_shm_segment_failed(const struct ls_shm_segment *segment);

/* Ring a peer's doorbell: it looks again at what it waits for. Costs a fence and a load while the peer is awake. */
void ls_doorbell_ring(struct ls_doorbell *doorbell);
/* The doorbells of all others at the segment. */
void ls_doorbell_ring_all(struct ls_shm_segment *segment);
/* Wake whoever drives this process, idle or not. */
void ls_doorbell_wake(struct ls_doorbell *doorbell);
/* Say that `driver` is about to sleep; what rung says is for ls_doorbell_sleep. Look once more at what is waited for in
 * between. */
uint32_t ls_doorbell_prepare(struct ls_doorbell *doorbell, int driver, enum ls_sleep how);
/* Until rung or the time is over (seconds). */
void ls_doorbell_sleep(struct ls_doorbell *doorbell, int driver, uint32_t rung, double seconds);
/* Not sleeping after all. */
void ls_doorbell_cancel(struct ls_doorbell *doorbell, int driver);

/* The monotonic clock, which the processes of a node share, in nanoseconds. */
int64_t ls_clock_ns(void);
/* The system call: sleep while *word is `value`, at most so long; wake all that do. */
void ls_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds, bool shared);
void ls_futex_wake(_Atomic uint32_t *word, bool shared);

#endif
