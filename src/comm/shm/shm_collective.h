/* What shm_collective.c and shm_staged.c share. */
#ifndef LS_COMM_SHM_SHM_COLLECTIVE_H
#define LS_COMM_SHM_SHM_COLLECTIVE_H

#include "comm/group.h"
#include <stddef.h>

/* One collective through shared memory. */
struct ls_shm_pass {
    struct ls_comm *c;
    struct ls_work *w;
    const struct ls_subgroup *k; /* of the node */
    struct ls_slot *slot;        /* of this process */
    size_t count, bytes;         /* values of a sum; bytes of the buffer */
    size_t chunk;                /* values (of a range) or bytes in a chunk */
    uint64_t base, chunks;       /* the number of the first chunk; how many */
    int root, parity, parts;     /* parts: of this process */
    bool sum, share;             /* parts are summed; the ranges are shared */
};

/* Waits until the counter at `offset` of a slot (index -1: of all slots) has reached the value. */
enum ls_status ls_shm_await(struct ls_comm *c, size_t offset, uint64_t value, int index);
#define AWAIT(c, counter, value, index) LS_TRY(ls_shm_await(c, offsetof(struct ls_slot, counter), value, index))
/* Sets a counter of this process's slot and rings the others. */
void ls_shm_raise(struct ls_comm *c, _Atomic uint64_t *counter, uint64_t value);
/* The collective is over: all counters count its chunks. */
void ls_shm_pass_finish(struct ls_shm_pass *p);
enum ls_status ls_shm_staged_run(struct ls_shm_pass *p);

#endif
