/* A segment of shared memory for the processes of one node, with a slot for each. It has a random name and mode 0600; the
 * name is removed as soon as all processes are attached.
 *
 *     +------+--------+--------+-----+---------------------------------+
 *     | head | slot 0 | slot 1 | ... | rings: from 0 to 0, 0 to 1, ... |
 *     +------+--------+--------+-----+---------------------------------+
 *
 *   SHM-1  Only its owner writes a slot, except for the doorbell. Counters only grow.
 *   SHM-2  A process that sees a counter raised sees everything that was written before.
 *   SHM-3  A process that waits for another sleeps; a process that raises a counter rings the doorbells of those that may
 *          wait for it. A sleeper tests its condition again after it has announced the sleep (doorbell.h), so that no ring
 *          is lost. */
#ifndef LS_COMM_SHM_SHM_SEGMENT_H
#define LS_COMM_SHM_SHM_SEGMENT_H

#include "base/status.h"
#include "comm/failures/mark.h"
#include "comm/shm/doorbell.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_SHM_SMALL = 16384, /* bytes that a process can leave in its slot */
    LS_SHM_PARTS = 32,
    LS_SHM_DEPTH = 4, /* chunks of a staged collective in flight */
    LS_REASON_ROOM = 512,
    LS_CACHE_LINE = 64
};

/* Where the other processes of the node find a buffer: in a region (ls_comm_region); -1: it is not shared. */
struct ls_region_ref {
    int64_t region;
    uint64_t offset;
};

/* What a process publishes when it arrives at a collective, in one cache line. Even and odd collectives have one each: no
 * process begins collective n + 2 before all have arrived at n + 1. */
struct ls_arrival {
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t arrived; /* the number of the collective */
    double at;                                        /* the time of arrival */
    struct ls_mark mark;
};
_Static_assert(sizeof(struct ls_arrival) == LS_CACHE_LINE, "an arrival is one cache line");

struct ls_slot {
    _Alignas(LS_CACHE_LINE) struct ls_doorbell doorbell;
    _Alignas(LS_CACHE_LINE) _Atomic int32_t pid; /* 0: not attached yet */
    _Atomic uint32_t closed;                     /* it has left and reported its failure, if any */
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t step;
    _Atomic uint64_t collective; /* collectives begun */
    _Atomic int32_t bucket, stage;
    _Atomic int64_t since;                           /* nanoseconds on the monotonic clock */
    _Atomic int64_t alive;                           /* the last sign of life */
    _Atomic int32_t waits;                           /* 1 + the rank it waits for; 0: none */
    _Alignas(LS_CACHE_LINE) _Atomic uint64_t marked; /* the collective of `mark`; 0: it is being written */
    struct ls_mark mark;                             /* for ls_mark_look */
    struct ls_arrival arrival[2];
    /* Chunks handed in, summed and taken out since the start. */
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
    _Atomic uint64_t ready;    /* a fixed number once the segment can be used */
    _Atomic uint32_t attached; /* futex: processes attached */
    uint32_t size, ring;       /* slots; bytes of a ring */
    _Atomic uint32_t failed;   /* 0 no; 1 being written; 2 status, rank and why are set */
    int32_t status, rank;
    char why[LS_REASON_ROOM];
    _Atomic int64_t allowed; /* no deadline before this time; nanoseconds */
};

struct ls_shm_segment {
    struct ls_shm_head *head; /* the mapping */
    size_t bytes;
    int size, me;
    size_t ring; /* bytes of a ring's stream; a power of two */
    int *pidfd;  /* owned; -1: not watched */
};

/* Attaches to the segment of this name as process `me` of `size`; makes it if it does not exist. Waits until all are
 * attached; after the deadline the error names the missing ones. */
enum ls_status ls_shm_segment_open(const char *name, int size, int me, double deadline,
                                   struct ls_shm_segment **segment);
void ls_shm_segment_close(struct ls_shm_segment *segment);
struct ls_slot *ls_shm_slot(const struct ls_shm_segment *segment, int index);
struct ls_ring *ls_shm_ring(const struct ls_shm_segment *segment, int from, int to);
/* The process has ended without closing. */
bool ls_shm_peer_gone(const struct ls_shm_segment *segment, int index);
/* Publishes a failure to all processes. Only the first call counts. rank -1: `why` names the rank. */
void ls_shm_segment_fail(struct ls_shm_segment *segment, int rank, enum ls_status status, const char *why);
bool ls_shm_segment_failed(const struct ls_shm_segment *segment);

/* Rings the doorbells of all other processes of the segment. */
void ls_shm_segment_ring_all(struct ls_shm_segment *segment);

#endif
