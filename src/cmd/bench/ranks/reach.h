/* Finds an address of rank 0's host at which every rank reaches it by TCP. */
#ifndef LS_CMD_BENCH_RANKS_REACH_H
#define LS_CMD_BENCH_RANKS_REACH_H

#include "cmd/world.h"

enum { LS_REACH_NAME = 256 };

/* All ranks call it. Tries the address of the launch, then those of rank 0's interfaces; 127.0.0.1 alone where all ranks share
 * a node. address is the same text on all ranks, or "": no address is reached by all. *lost is then the rank that reaches the
 * fewest. An error means that the group is broken. */
enum ls_status ls_reach_find(const struct ls_world *w, char address[LS_REACH_NAME], int *lost);
/* Chooses a port of this host that is free now. 0: there is none. */
int ls_reach_free_port(void);

#endif
