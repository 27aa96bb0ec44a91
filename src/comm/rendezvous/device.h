/* The network device and the local address that lead to rank 0. UCX by itself takes the fastest device by name, which on
 * a host with containers may be a bridge that leads nowhere. */
#ifndef LS_COMM_RENDEZVOUS_DEVICE_H
#define LS_COMM_RENDEZVOUS_DEVICE_H

#include "launch/launch.h"
#include <stdbool.h>
#include <sys/socket.h>

/* The device that leads to rank 0, or on which rank 0 is. False: UCX should choose, because there is RDMA or the device
 * is not known. */
bool ls_device_towards(const struct ls_launch *launch, char name[64]);
/* The local address on the way to rank 0. False: it is not known. */
bool ls_device_address(const struct ls_launch *launch, struct sockaddr_storage *own);
bool ls_device_has_rdma(void);

#endif
