#include "exec/device/device_group.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>

enum ls_status ls_device_gather(void *context, const void *mine, size_t bytes, void *all)
{
    struct ls_device_group *d = context;
    if (d->comm)
        return ls_comm_allgather(d->comm, mine, bytes, all);
    if (all != mine)
        memcpy(all, mine, bytes);
    return LS_OK;
}

/* A step may take any time, unless a process is gone, or others wait for it longer than the deadline. */
enum ls_status ls_device_check_wait(void *context, double seconds)
{
    struct ls_device_group *d = context;
    if (!d->comm)
        return LS_OK;
    if (d->begun)
        return ls_comm_overdue(d->comm, seconds);
    LS_TRY(ls_comm_broken(d->comm));
    if (seconds < d->deadline)
        return LS_OK;
    return ls_fail(
        LS_PEER_LOST,
        "--collective nccl: NCCL did not connect the processes within --deadline %g s; NCCL_DEBUG=INFO shows "
        "what it tries, or leave --collective out",
        d->deadline);
}

struct ls_peers_group ls_device_group_of(struct ls_device_group *d)
{
    return (struct ls_peers_group){.rank = d->comm ? ls_comm_rank(d->comm) : 0,
                                   .size = d->comm ? ls_comm_size(d->comm) : 1,
                                   .nodes = d->nodes,
                                   .gather = ls_device_gather,
                                   .check_wait = ls_device_check_wait,
                                   .context = d};
}

enum ls_status ls_device_group_open(struct ls_device_group *d, struct ls_comm *comm, double deadline)
{
    int size = comm ? ls_comm_size(comm) : 1;
    *d = (struct ls_device_group){.comm = comm, .deadline = deadline};
    d->nodes = ls_alloc((size_t)size, sizeof *d->nodes);
    if (!d->nodes)
        return LS_FAILED;
    for (int rank = 0; rank < size && comm; rank++)
        d->nodes[rank] = ls_comm_node(comm, rank);
    return LS_OK;
}

void ls_device_group_close(struct ls_device_group *d)
{
    ls_free(d->nodes);
    d->nodes = NULL;
}
