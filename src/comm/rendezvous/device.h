/* Which network device and address lead to rank 0. Left alone UCX takes the fastest by name, which on a host with containers may be a
 * bridge that leads nowhere. */
#ifndef LS_COMM_RENDEZVOUS_DEVICE_H
#define LS_COMM_RENDEZVOUS_DEVICE_H

#include "launch/launch.h"
#include <stdbool.h>
#include <sys/socket.h>

/* The device by which rank 0 is reached, or on which it is. False: leave the choice to UCX; there is RDMA, or the
 * address says nothing. */
bool ls_device_towards(const struct ls_launch *launch, char name[64]);
/* The own address on the way to rank 0. False: the name of rank 0's host says nothing about it. */
bool ls_device_address(const struct ls_launch *launch, struct sockaddr_storage *own);
bool ls_device_has_rdma(void);

#endif
