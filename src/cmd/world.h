/* The processes that run a command together. */
#ifndef LS_CMD_WORLD_H
#define LS_CMD_WORLD_H

#include "comm/comm.h"

struct ls_world {
    struct ls_launch launch;
    struct ls_comm *comm; /* owned; NULL: one process */
};

/* Connects to the other processes if a launcher started any. From then on only rank 0 prints, except errors. The
 * default of --replicas is one for each worker. The default of --threads is the smallest share of cores that a rank
 * has. */
enum ls_status ls_world_open(struct ls_world *w, struct ls_options *o);
/* The same, for sums of up to max_bytes bytes. */
enum ls_status ls_world_open_for(struct ls_world *w, struct ls_options *o, size_t max_bytes);
/* status is the result of the command in this process. A failure is sent to the other processes with its message. */
void ls_world_close(struct ls_world *w, enum ls_status status);
/* Returns the name that --collective uses. */
const char *ls_collective_name(enum ls_collective way);

#endif
