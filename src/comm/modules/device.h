/* Which network device UCX should use. Left alone it takes the fastest by name, which on a host with containers may be a
 * bridge that leads nowhere. */
#ifndef LS_COMM_MODULES_DEVICE_H
#define LS_COMM_MODULES_DEVICE_H

#include "comm/launch.h"
#include <stdbool.h>

/* The device by which rank 0 is reached, or on which it is. False: leave the choice to UCX; there is RDMA, or the
 * address says nothing. */
bool ls_device_towards(const struct ls_launch *launch, char name[64]);

#endif
