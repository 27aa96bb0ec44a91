#include "train/ranks/clock_offset.h"
#include "base/system/clock.h"

#include <math.h>

enum { ROUNDS = 16, TAG = LS_TAG_LIMIT - 4 };

static enum ls_status message(struct ls_comm *comm, enum ls_work_kind kind, int peer, double *time)
{
    struct ls_work w = {.kind = kind, .peer = peer, .tag = TAG, .data = time, .bytes = sizeof *time, .bucket = -1};
    return ls_comm_do(comm, &w);
}

/* Rank 0 answers each message of `peer` with its time. */
static enum ls_status answer(struct ls_comm *comm, int peer)
{
    for (int i = 0; i < ROUNDS; i++) {
        double time;
        LS_TRY(message(comm, LS_WORK_RECEIVE, peer, &time));
        time = ls_now();
        LS_TRY(message(comm, LS_WORK_SEND, peer, &time));
    }
    return LS_OK;
}

static enum ls_status ask(struct ls_comm *comm, double *offset, double *error)
{
    double shortest = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        double sent = ls_now(), there = sent;
        LS_TRY(message(comm, LS_WORK_SEND, 0, &there));
        LS_TRY(message(comm, LS_WORK_RECEIVE, 0, &there));
        double back = ls_now();
        if (back - sent < shortest) {
            shortest = back - sent;
            *offset = there - (sent + back) / 2;
            *error = shortest / 2;
        }
    }
    return LS_OK;
}

enum ls_status ls_clock_offset(struct ls_comm *comm, double *offset, double *error)
{
    int home = ls_comm_node(comm, 0), rank = ls_comm_rank(comm);
    *offset = *error = 0;
    if (rank > 0)
        return ls_comm_node(comm, rank) == home ? LS_OK : ask(comm, offset, error);
    for (int peer = 1; peer < ls_comm_size(comm); peer++)
        if (ls_comm_node(comm, peer) != home)
            LS_TRY(answer(comm, peer));
    return LS_OK;
}
