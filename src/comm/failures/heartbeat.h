/* What a rank sends to every rank of every other node: once a second its position, and once its failure. */
#ifndef LS_COMM_HEARTBEAT_H
#define LS_COMM_HEARTBEAT_H

#include "comm/failures/mark.h"
#include "comm/shm/shm_segment.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_heartbeat {
    int32_t rank;          /* the sender */
    int32_t status;        /* LS_OK, or the failure that `why` describes */
    int32_t about;         /* the rank that failed; -1: `why` names it */
    int32_t bucket, stage; /* the sender's position */
    int32_t waits;         /* 1 + the rank for which the sender waits; 0: none */
    uint64_t collective, step;
    struct ls_mark mark; /* of the sender's last collective */
    double age;          /* seconds in this position */
    double allowed;      /* seconds from now on without a deadline */
    double unheard;      /* seconds since the sender last heard from the receiver */
    char why[LS_REASON_ROOM];
};

/* A received message of `bytes` bytes is a heartbeat of rank `sender` in a group of `size`: every number is in its range.
 * `why` need not end with a 0. */
bool ls_heartbeat_valid(const struct ls_heartbeat *h, size_t bytes, int sender, int size);

#endif
