/* The processes that run a command together. */
#ifndef LS_CMD_WORLD_H
#define LS_CMD_WORLD_H

#include "comm/comm.h"

struct ls_world {
    struct ls_launch launch;
    struct ls_comm *comm; /* owned; NULL: alone */
};

/* Connect to the other processes, where a launcher started some. From then on only rank 0 prints, except errors. Without
 * --replicas there is one for each worker; without --threads each process takes the cores that it does not share. */
enum ls_status ls_world_open(struct ls_world *w, struct ls_options *o);
/* The same for sums of up to so many bytes. */
enum ls_status ls_world_open_for(struct ls_world *w, struct ls_options *o, size_t max_bytes);
/* status: how the command ended here. A failure is sent to the other processes with its message. */
void ls_world_close(struct ls_world *w, enum ls_status status);
/* As --collective spells it. */
const char *ls_collective_name(enum ls_collective way);

#endif
