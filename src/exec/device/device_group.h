/* The processes whose devices exchange values among themselves (struct ls_peers_group), as the host sees them. */
#ifndef LS_EXEC_DEVICE_DEVICE_GROUP_H
#define LS_EXEC_DEVICE_DEVICE_GROUP_H

#include "backend/backend.h"
#include "comm/comm.h"

struct ls_device_group {
    struct ls_comm *comm; /* borrowed; NULL: this process is alone */
    double deadline;      /* seconds; for connecting */
    bool begun;           /* the devices are connected: from now on a rank is judged by its steps */
    int *nodes;           /* owned */
};

enum ls_status ls_device_group_open(struct ls_device_group *d, struct ls_comm *comm, double deadline);
void ls_device_group_close(struct ls_device_group *d);
/* Rank, size, nodes, gather and check_wait of a group whose context is d. */
struct ls_peers_group ls_device_group_of(struct ls_device_group *d);
/* As in struct ls_peers_group; context: d. */
enum ls_status ls_device_gather(void *context, const void *mine, size_t bytes, void *all);
enum ls_status ls_device_check_wait(void *context, double seconds);

#endif
