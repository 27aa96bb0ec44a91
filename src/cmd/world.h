/* The processes that run a command together: found, connected, and told apart. */
#ifndef LS_CMD_WORLD_H
#define LS_CMD_WORLD_H

#include "comm/comm.h"

struct ls_world {
    struct ls_launch launch;
    struct ls_comm *comm; /* owned; NULL: alone */
};

/* Connect to the others, where a launcher started some. From then on rank 0 alone speaks, but for errors; --replicas
 * that nobody gave is one for each process, and --threads the cores that this process does not share. */
enum ls_status ls_world_open(struct ls_world *w, struct ls_options *o);
/* The same for sums of up to so many bytes. */
enum ls_status ls_world_open_for(struct ls_world *w, struct ls_options *o, size_t max_bytes);
/* status: how the command ended here. When that is a failure the others are told why. */
void ls_world_close(struct ls_world *w, enum ls_status status);
/* As --collective spells it. */
const char *ls_collective_name(enum ls_collective way);

#endif
